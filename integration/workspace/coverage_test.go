package workspace_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
			t.Errorf("%s exists twice", id)
		case !regexp.MustCompile(`^(done|partly: .+|open(: .+)?)$`).MatchString(cells[4]):
			t.Errorf("%s: state %q, want done, partly with what is missing, or open", id, cells[4])
		case strings.HasPrefix(cells[4], "open") != (cells[2] == "–"):
			t.Errorf("%s is %q in %q", id, cells[4], cells[2])
		case cells[4] == "done" && cells[3] == "–" && !strings.Contains(cells[2], "docs/"):
			t.Errorf("%s is done, and no test shows it", id)
		case cells[2] == "–" && cells[3] != "–":
			t.Errorf("%s is shown by %s, and the column of the code is empty", id, cells[3])
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
	folder := regexp.MustCompile("`([a-z][a-z0-9/-]*)`")
	for id, cells := range rows {
		named := []string{"integration"}
		for _, m := range folder.FindAllStringSubmatch(cells[3], -1) {
			named = append(named, m[1])
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w*`).FindAllString(cells[3], -1) {
			if !slices.ContainsFunc(tests[name], func(dir string) bool {
				return slices.Contains(named, dir) || strings.HasPrefix(dir, "integration/")
			}) {
				t.Errorf("%s names %s, which is in %q", id, name, tests[name])
			}
		}
	}
}

// The tests that a page names exist.
func TestPagesNameTests(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(filepath.Join(fixture.Root(t), "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := testsOfRepository(t)
	n := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(Test[A-Z]\\w+)`").FindAllStringSubmatch(string(text), -1) {
			n++
			if tests[m[1]] == nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(page), m[1])
			}
		}
	}
	if n < 20 {
		t.Errorf("the pages name %d tests", n)
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
			if tests[name] == nil {
				t.Errorf("the Makefile names %s, which does not exist", name)
			}
		}
	}
	if n == 0 {
		t.Error("the Makefile names no long tests")
	}
}

// A test that does less with -short, as `make test` runs it, is run whole by `make test-long`.
func TestShortTestsRunWhole(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(fixture.Root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	lists := regexp.MustCompile(`(?m)^(?:LONG|WHOLE|SIMULATION) := (?:\$\(\w+\)\|)?(.*)$`)
	for _, m := range lists.FindAllSubmatch(makefile, -1) {
		names = append(names, string(m[1]))
	}
	whole := regexp.MustCompile("^(" + strings.Join(names, "|") + ")$")
	packages := regexp.MustCompile(`(?m)^LONG_PACKAGES := \$\(addprefix \./integration/,(.*)\)$`).FindSubmatch(makefile)
	if packages == nil {
		t.Fatal("the Makefile names no packages of long tests")
	}
	dirs := append(strings.Fields("integration/"+strings.ReplaceAll(string(packages[1]), " ", " integration/")), "core",
		"pgxoutbox/walrelay")
	shorter := regexp.MustCompile(`testing\.Short\(\)|testdb\.(EachWay|EveryWay)\(`)
	definition := regexp.MustCompile(`(?m)^func `)
	n := 0
	eachTestFile(t, func(dir, source string) {
		for _, function := range definition.Split(source, -1) {
			name, body, _ := strings.Cut(function, "(")
			if !strings.HasPrefix(name, "Test") || !shorter.MatchString(body) {
				continue
			}
			n++
			if !whole.MatchString(name) || !slices.Contains(dirs, dir) {
				t.Errorf("%s of %s does less with -short: add it to WHOLE or LONG of the Makefile, and its folder "+
					"to LONG_PACKAGES",
					name, dir)
			}
		}
	})
	if n == 0 {
		t.Error("no test does less with -short")
	}
}

// testsOfRepository returns the folders of each test.
func testsOfRepository(t *testing.T) map[string][]string {
	t.Helper()
	tests := map[string][]string{}
	definition := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	eachTestFile(t, func(dir, source string) {
		for _, m := range definition.FindAllStringSubmatch(source, -1) {
			tests[m[1]] = append(tests[m[1]], dir)
		}
	})
	return tests
}

// eachTestFile calls fn with the folder and the source of each file of tests.
func eachTestFile(t *testing.T, fn func(dir, source string)) {
	t.Helper()
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
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(fixture.Root(t), filepath.Dir(path))
		if err == nil {
			fn(filepath.ToSlash(dir), string(source))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
