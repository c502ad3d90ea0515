package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
)

// share is one of several parts of the mutants, as of 3/10.
type share struct{ k, n int }

// Set parses the flag.
func (s *share) Set(text string) error {
	if _, err := fmt.Sscanf(text, "%d/%d", &s.k, &s.n); err != nil || s.k < 1 || s.k > s.n {
		return errors.New("want one of N, such as 3/10")
	}
	return nil
}

func (s *share) String() string { return fmt.Sprintf("%d/%d", s.k, s.n) }

// choose returns the mutants of the share, and then those that break a package for which touched is
// true. Of the latter it takes as many as most allows, and begins at another one for each share.
func (s *share) choose(mutants []mutant, touched func(folder string) bool, most int) []mutant {
	var chosen, changed []mutant
	for i, m := range mutants {
		switch {
		case i%s.n == s.k-1:
			chosen = append(chosen, m)
		case slices.ContainsFunc(m.files, func(f filePatch) bool { return touched(path.Dir(f.path)) }):
			changed = append(changed, m)
		}
	}
	start := len(changed) * (s.k - 1) / s.n
	changed = slices.Concat(changed[start:], changed[:start])
	return append(chosen, changed[:min(len(changed), max(0, most-len(chosen)))]...)
}

// touchedSince returns whether a folder has Go code that changed after the commit.
func touchedSince(ctx context.Context, root, commit string) (func(folder string) bool, error) {
	if commit == "" {
		return func(string) bool { return false }, nil
	}
	cmd := exec.CommandContext(ctx, "git", "diff", "--name-only", commit, "--", "*.go", "*.sql")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", commit, err)
	}
	folders := map[string]bool{}
	for name := range bytes.Lines(out) {
		folders[path.Dir(string(bytes.TrimSpace(name)))] = true
	}
	return func(folder string) bool { return folders[folder] }, nil
}
