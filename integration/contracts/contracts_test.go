// Package contracts compares what other programs rely on with the files in testdata: the names of
// headers, the tables and their columns, the numbers of statuses, the checksums of migrations, the
// metrics, the default topics, and the answers of the Idempotency-Key middleware. The JSON of the
// command line is in the same folder, and the tests of the program compare it
// (cmd/outbox/internal/cli).
//
// Until the first tag a change is the golden file and a line in the changelog. Afterwards it is
// also a new version, and a migration where tables change.
package contracts_test

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// compare requires that a golden file has a text.
func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(old) == got {
		return
	}
	t.Errorf("integration/contracts/%s: other programs rely on what is recorded there, and it is different now:\n%s"+
		"If that is meant, run `go test ./integration/contracts -update` and add a line to CHANGELOG.md; after the "+
		"first "+
		"tag it also needs a new version, and a migration where tables change.", path, difference(string(old), got))
}

// difference returns the lines that only one of two texts has, each with its section.
func difference(old, got string) string {
	lines := func(text string) (all []string) {
		section := ""
		for line := range strings.Lines(text) {
			if title, is := strings.CutPrefix(line, "== "); is {
				section = strings.TrimSpace(title) + ": "
			}
			all = append(all, section+line)
		}
		return all
	}
	before, after := lines(old), lines(got)
	var b strings.Builder
	for _, line := range before {
		if !slices.Contains(after, line) {
			fmt.Fprintf(&b, "- %s", line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			fmt.Fprintf(&b, "+ %s", line)
		}
	}
	if b.Len() == 0 {
		return "the lines are in another order\n"
	}
	return b.String()
}
