package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// filePatch has the changes of a patch in one file.
type filePatch struct {
	path  string // from the root of the repository, with slashes
	hunks []hunk
}

// hunk replaces lines.
type hunk struct {
	line     int // line of the patch at which it begins
	old, new []string
}

var hunkHead = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// parsePatch reads a unified diff, as git writes it, and returns the lines before it apart.
func parsePatch(text string) (head []string, files []filePatch, err error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		line := lines[i]
		switch {
		case strings.HasPrefix(line, "--- "):
			if i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "+++ ") {
				return nil, nil, fmt.Errorf("line %d: no line with +++ follows", i+1)
			}
			from, to := strings.TrimPrefix(line[4:], "a/"), strings.TrimPrefix(lines[i+1][4:], "b/")
			if from != to || !within(to) {
				return nil, nil, fmt.Errorf("line %d: it turns %q into %q: a mutant changes lines of files that stay",
					i+1, from, to)
			}
			files = append(files, filePatch{path: to})
			i += 2
		case strings.HasPrefix(line, "@@ "):
			if len(files) == 0 {
				return nil, nil, fmt.Errorf("line %d: no file is named before it", i+1)
			}
			h, n, err := parseHunk(lines[i:])
			if err != nil {
				return nil, nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			h.line = i + 1
			last := &files[len(files)-1]
			last.hunks = append(last.hunks, h)
			i += n
		case len(files) == 0 && !strings.HasPrefix(line, "diff ") && !strings.HasPrefix(line, "index "):
			head = append(head, line)
			i++
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "), line == "":
			i++
		default:
			return nil, nil, fmt.Errorf("line %d: %q belongs to no hunk", i+1, line)
		}
	}
	if len(files) == 0 {
		return nil, nil, errors.New("it has no diff")
	}
	for _, f := range files {
		if len(f.hunks) == 0 {
			return nil, nil, fmt.Errorf("it changes nothing in %s", f.path)
		}
	}
	return head, files, nil
}

// within reports whether a name stays inside the repository.
func within(name string) bool {
	return fs.ValidPath(name) && name != "."
}

// parseHunk reads the hunk that lines begin with, and returns how many lines it has.
func parseHunk(lines []string) (h hunk, n int, err error) {
	m := hunkHead.FindStringSubmatch(lines[0])
	if m == nil {
		return h, 0, fmt.Errorf("%q is no head of a hunk", lines[0])
	}
	olds, news := length(m[1]), length(m[2])
	for n = 1; len(h.old) < olds || len(h.new) < news; n++ {
		if n == len(lines) {
			return h, 0, fmt.Errorf("the patch ends inside a hunk of %d old and %d new lines", olds, news)
		}
		line := lines[n]
		switch {
		case line == "", line[0] == ' ': // editors take the blank off an empty line
			kept := strings.TrimPrefix(line, " ")
			h.old, h.new = append(h.old, kept), append(h.new, kept)
		case line[0] == '-':
			h.old = append(h.old, line[1:])
		case line[0] == '+':
			h.new = append(h.new, line[1:])
		default:
			return h, 0, fmt.Errorf("%q is no line of a hunk", line)
		}
	}
	if len(h.old) != olds || len(h.new) != news {
		return h, 0, fmt.Errorf("the hunk has %d old and %d new lines, its head says %d and %d",
			len(h.old), len(h.new), olds, news)
	}
	if slices.Equal(h.old, h.new) {
		return h, 0, errors.New("the hunk changes nothing")
	}
	return h, n, nil
}

func length(digits string) int {
	if digits == "" {
		return 1
	}
	n, _ := strconv.Atoi(digits)
	return n
}

// apply returns the text with the hunks applied. It ignores line numbers, because they change with
// every change above them. The old lines of a hunk have to be in the file exactly once.
func (f filePatch) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	for _, h := range f.hunks {
		at := places(lines, h.old)
		switch len(at) {
		case 1:
			lines = slices.Replace(lines, at[0], at[0]+len(h.old), h.new...)
		case 0:
			return "", fmt.Errorf("the hunk at line %d does not apply to %s: %s", h.line, f.path, missing(lines, h.old))
		default:
			return "", fmt.Errorf("the hunk at line %d fits %d places of %s: it needs more lines around the change",
				h.line, len(at), f.path)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// places returns the indexes at which lines have want.
func places(lines, want []string) (at []int) {
	for i := 0; i+len(want) <= len(lines); i++ {
		if slices.Equal(lines[i:i+len(want)], want) {
			at = append(at, i)
		}
	}
	return at
}

// missing returns an error that says why want is not in lines.
func missing(lines, want []string) string {
	for _, w := range want {
		if !slices.Contains(lines, w) {
			return fmt.Sprintf("no line there reads %q", w)
		}
	}
	return "its lines no longer follow each other there"
}
