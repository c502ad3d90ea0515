package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+?) *$`)
	code    = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	blocks  = regexp.MustCompile("(?s)```.*?```")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Links between the pages lead to files and headings that exist.
func TestLinks(t *testing.T) {
	t.Parallel()
	found, headings := 0, map[string]map[string]bool{}
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			found++
			to := page
			if target != "" {
				to = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: %s is not there", page, m[1])
			} else if anchor != "" && strings.HasSuffix(to, ".md") {
				if headings[to] == nil {
					headings[to] = anchors(t, to)
				}
				if !headings[to][anchor] {
					t.Errorf("%s: %s has no heading #%s", page, to, anchor)
				}
			}
		}
	}
	if found == 0 {
		t.Fatal("no link was found")
	}
}

// The menu of the site has every page of docs once, and the first page of docs leads to each.
func TestMenu(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile(filepath.Join(root, "scripts", "docs", "mkdocs.yml"))
	if err != nil {
		t.Fatal(err)
	}
	_, nav, found := strings.Cut(string(config), "\nnav:\n")
	if !found {
		t.Fatal("scripts/docs/mkdocs.yml has no nav")
	}
	times, sections := map[string]int{}, map[string]bool{}
	for line := range strings.Lines(nav) {
		section, list, _ := strings.Cut(line, ":")
		if sections[section] {
			t.Errorf("the menu has two sections%s", strings.TrimPrefix(section, "  -"))
		}
		sections[section] = true
		for page := range strings.SplitSeq(strings.Trim(strings.TrimSpace(list), "[]"), ",") {
			times[strings.TrimSpace(page)]++
		}
	}
	first := text(t, filepath.Join("docs", "index.md"))
	looked := 0
	for _, page := range pages(t) {
		name, inDocs := strings.CutPrefix(page, "docs/")
		if !inDocs {
			continue
		}
		looked++
		if times[name] != 1 {
			t.Errorf("scripts/docs/mkdocs.yml has %s %d times", name, times[name])
		}
		if inside := name == "index.md" || strings.HasPrefix(name, "events/sales/"); !inside &&
			!strings.Contains(first, "]("+name+")") {
			t.Errorf("docs/index.md does not lead to %s", name)
		}
	}
	if looked < 30 {
		t.Errorf("%d pages were looked at", looked)
	}
}

// text returns a page without its code.
func text(t *testing.T, page string) string {
	t.Helper()
	all, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return code.ReplaceAllString(string(all), "")
}

// anchors returns the headings of a page as forges name them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	all, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range heading.FindAllStringSubmatch(blocks.ReplaceAllString(string(all), ""), -1) {
		names[strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return names
}

var (
	namedTest    = regexp.MustCompile("`(Test[A-Z]\\w+)`")
	declaredTest = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

// The tests that a page names exist.
func TestPagesNameTests(t *testing.T) {
	t.Parallel()
	named := map[string]string{}
	for _, page := range pages(t) {
		src, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(src), -1) {
			named[m[1]] = page
		}
	}
	if len(named) < 20 {
		t.Errorf("the pages name %d tests", len(named))
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range declaredTest.FindAllSubmatch(src, -1) {
			delete(named, string(m[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range named {
		t.Errorf("%s names %s, which does not exist", page, name)
	}
}
