package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// confirm asks whether to go on, unless this is a dry run. Without a person at the terminal nobody can
// be asked, and the command is refused.
func (a *app) confirm(w who, question string) error {
	if w.yes || w.dryRun {
		return nil
	}
	if !a.Terminal {
		return refused("nobody can be asked here, so nothing was done: repeat the command with --yes")
	}
	_, _ = fmt.Fprintf(a.Err, "%s [y/N] ", question)
	answer, err := a.answers.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return refused("not confirmed, so nothing was done")
}
