package cli

import (
	"os/user"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// who is the person who changes something, and the reason.
type who struct {
	actor, reason string
	yes, dryRun   bool
}

func (w *who) flags(c *cobra.Command) {
	w.yesFlag(c)
	w.reasonFlags(c)
}

func (w *who) reasonFlags(c *cobra.Command) {
	c.Flags().StringVar(&w.reason, "reason", "", "why")
	w.actorFlag(c)
}

func (w *who) yesFlag(c *cobra.Command) { c.Flags().BoolVar(&w.yes, "yes", false, "do not ask") }

func (w *who) dryRunFlag(c *cobra.Command) {
	c.Flags().BoolVar(&w.dryRun, "dry-run", false, "print what would change, and change nothing")
}

// either returns is, or would in a dry run.
func (w *who) either(is, would string) string {
	if w.dryRun {
		return would
	}
	return is
}

func (w *who) actorFlag(c *cobra.Command) {
	c.Flags().StringVar(&w.actor, "actor", "", "who (default: the user of the system)")
}

// check requires a reason, and finds the actor. The limits are the same as in package core. They
// are checked here because a dry run stores nothing, and ends as the command would. A dry run needs
// no reason: a stand-in lets the rest of the request be checked.
func (w *who) check() error {
	switch {
	case w.reason == "" && w.dryRun:
		w.reason = "dry run"
	case w.reason == "":
		return usage("--reason is missing: it is stored with the change")
	}
	return w.find()
}

// find finds the actor, and refuses texts that no audit row can have.
func (w *who) find() error {
	if w.actor == "" {
		w.actor = "unknown"
		if u, err := user.Current(); err == nil {
			w.actor = u.Username
		}
	}
	for _, text := range []struct {
		flag, is string
		most     int
	}{{"actor", w.actor, 255}, {"reason", w.reason, 1024}} {
		switch {
		case len(text.is) > text.most:
			return usage("--%s has %d bytes, more than %d", text.flag, len(text.is), text.most)
		case !utf8.ValidString(text.is):
			return usage("--%s is not valid UTF-8", text.flag)
		}
	}
	return nil
}
