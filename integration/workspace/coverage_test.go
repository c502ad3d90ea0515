package workspace_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// The coverage table names every requirement once, and only tests that exist.
func TestCoverageTable(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "design", "requirements.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if !regexp.MustCompile(`^[A-G]\d+$`).MatchString(cells[0]) {
			continue
		}
		id := cells[0]
		switch {
		case len(cells) != 5:
			t.Errorf("%s has %d columns, want 5", id, len(cells))
			continue
		case rows[id] != nil:
			t.Errorf("%s is there twice", id)
		case cells[4] != "done" && cells[4] != "open" && !strings.HasPrefix(cells[4], "open: "):
			t.Errorf("%s: state %q, want done or open", id, cells[4])
		case cells[4] == "done" && cells[2] == "–":
			t.Errorf("%s is done nowhere", id)
		}
		rows[id] = cells
	}
	for group, n := range map[string]int{"A": 23, "B": 53, "C": 56, "D": 19} {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprintf("%s%02d", group, i); rows[id] == nil {
				t.Errorf("%s is missing", id)
			}
		}
	}
	tests := testsOfRepository(t)
	for id, cells := range rows {
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(cells[3], -1) {
			if !tests[name] {
				t.Errorf("%s names %s, which does not exist", id, name)
			}
		}
	}
}

// The tests that the Makefile moves from one run to another exist.
func TestLongTestsAreThere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(fixture.Root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOfRepository(t)
	n := 0
	for _, line := range regexp.MustCompile(`(?m)^LONG := .*$`).FindAllString(string(text), -1) {
		for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(line, -1) {
			n++
			if !tests[name] {
				t.Errorf("the Makefile names %s, which does not exist", name)
			}
		}
	}
	if n == 0 {
		t.Error("the Makefile names no long tests")
	}
}

func testsOfRepository(t *testing.T) map[string]bool {
	t.Helper()
	tests := map[string]bool{}
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err := filepath.WalkDir(fixture.Root(t), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && len(d.Name()) > 2 && d.Name()[0] == '.':
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range definition.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests
}
