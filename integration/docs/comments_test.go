package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// otherComment is a line of a comment in a file that is not Go: a statement, a script, settings.
var otherComment = regexp.MustCompile(`^\s*(?:#|--|//) (.*)$`)

// Comments in other languages are as wide as those in Go, and use the same words. Migrations are
// among them, which users copy.
func TestCommentsOfOtherFiles(t *testing.T) {
	t.Parallel()
	looked := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && !slices.Contains([]string{"..", ".ci", ".github"}, d.Name())
		if d.IsDir() && path != root && (hidden || d.Name() == "testdata" || d.Name() == "patches") {
			return fs.SkipDir
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() || !commented(rel) {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		looked++
		n := 0
		for line := range strings.Lines(string(src)) {
			n++
			line = strings.TrimSuffix(line, "\n")
			m := otherComment.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			words := len(strings.Fields(m[1]))
			if w := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); w > maxComment && words > 2 {
				t.Errorf("%s:%d: the comment is %d columns wide, more than %d", rel, n, w, maxComment)
			}
			checkWords(t, rel, n, m[1], false)
			if s := subject.FindString(m[1]); s != "" {
				t.Errorf("%s:%d: name the subject of %q", rel, n, s)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if looked < 40 {
		t.Errorf("%d files were looked at", looked)
	}
}

// commented reports whether people write comments into the file: not into data and pages.
func commented(path string) bool {
	name := filepath.Base(path)
	switch filepath.Ext(name) {
	case ".sql", ".lua", ".yml", ".yaml", ".service", ".properties", ".java", ".py", ".pml":
		return true
	case "":
		return name == "Makefile" || name == "Dockerfile" || strings.HasPrefix(path, "scripts/") ||
			path == "docs/debezium/build"
	}
	return slices.Contains([]string{".dockerignore", ".gitignore"}, name) || path == ".ci/run"
}
