package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"
)

// banned are words that only the authors understand, or that had several meanings, with the word
// to say instead. They are looked for in identifiers, comments and pages.
var banned = map[string]string{
	"blind":    "name the thing that is not known",
	"blindly":  "name the thing that is not known",
	"fate":     "result, or policy",
	"fates":    "results, or policies",
	"lone":     "suspect, or single",
	"murky":    "unknown",
	"murkily":  "unknown",
	"persons":  "people, or manual",
	"settle":   "mark, end or conclude",
	"settled":  "marked, ended or concluded",
	"settles":  "marks, ends or concludes",
	"settling": "marking, ending or concluding",
	"taint":    "unsure",
	"tainted":  "unsure",
	"taints":   "makes unsure",
	"veto":     "refuse",
	"vetoed":   "refused",
	"vetoes":   "refuses",
	"whoever":  "name who: the process, the caller, the consumer",
}

// phrases leave a reader to guess.
var phrases = map[string]string{
	"for good":     "say which later step does not happen",
	"and the like": "give an example: such as",
	"or the like":  "give an example: such as",
}

// public are words of the code's internals, with the words that users know. They are looked for in
// exported names, their comments, and pages.
var public = map[string]string{
	"lane":  "key",
	"lanes": "keys",
}

// exceptions are words that a file has to contain.
var exceptions = map[string][]string{
	// its table of sentences to rewrite
	"CONTRIBUTING.md":                  {"blindly", "fate", "for good", "What", "Who"},
	"docs/design/requirements.md":      {"lane", "lanes"}, // names test cases
	"integration/docs/english_test.go": {"*"},             // the lists themselves
	"entoutbox/entschema/mixin.go":     {"lane"},          // the name of the column
	"integration/mutants/patches":      {"lane"},          // names of unexported code
}

// subject is a sentence that hides its subject behind a pronoun. A question may begin like that.
var subject = regexp.MustCompile(`^(What|Who|Whoever|Whatever|Whose)\b[^?]*$`)

// maxComment is how wide a line of a comment may be, with a tab as four columns.
const maxComment = 100

func TestWords(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		for _, c := range file.comments() {
			checkWords(t, file.path, c.line, c.text, c.exported)
		}
		for _, id := range file.identifiers() {
			for _, word := range camel(id.name) {
				reportWord(t, file.path, id.line, word, id.exported)
			}
		}
	}
	for _, page := range pages(t) {
		for _, c := range paragraphs(t, page) {
			checkWords(t, page, c.line, c.text, true)
		}
	}
}

func TestSentencesNameTheirSubject(t *testing.T) {
	t.Parallel()
	check := func(path string, p passage) {
		for _, s := range sentences(p.text) {
			if m := subject.FindStringSubmatch(s); m != nil && !excepted(path, m[1]) {
				t.Errorf("%s:%d: name the subject of %q", path, p.line, s)
			}
		}
	}
	for _, file := range goFiles(t) {
		for _, c := range file.comments() {
			check(file.path, c)
		}
	}
	for _, page := range pages(t) {
		for _, p := range paragraphs(t, page) {
			check(page, p)
		}
	}
}

func TestCommentsAreNotTooWide(t *testing.T) {
	t.Parallel()
	for _, file := range goFiles(t) {
		for _, g := range file.ast.Comments {
			if text := g.List[0].Text; strings.HasPrefix(text, "// Output:") ||
				strings.HasPrefix(text, "// Unordered output:") {
				continue
			}
			for _, c := range g.List {
				pos := file.fset.Position(c.Pos())
				line := file.lines[pos.Line-1]
				words := len(strings.Fields(c.Text))
				if strings.HasPrefix(c.Text, "//\t") || strings.HasPrefix(c.Text, "//nolint") ||
					strings.HasPrefix(c.Text, "//go:") || words <= 2 ||
					strings.TrimSpace(line[:pos.Column-1]) != "" {
					continue // code, a directive, one long word, or a comment beside code, which the linter checks
				}
				if w := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); w > maxComment {
					t.Errorf("%s:%d: the comment is %d columns wide, more than %d", file.path, pos.Line, w, maxComment)
				}
			}
		}
	}
}

// A page wraps where a comment does, except for tables, code, and a line with one long link or span
// of code.
func TestPagesAreNotTooWide(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md") {
		src, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		code, n := false, 0
		for line := range strings.Lines(string(src)) {
			n++
			line = strings.TrimSuffix(line, "\n")
			text := strings.TrimSpace(line)
			if strings.HasPrefix(text, "```") {
				code = !code
			}
			words := len(strings.Fields(span.ReplaceAllString(text, "code")))
			if code || strings.HasPrefix(text, "|") || words <= 2 {
				continue
			}
			if w := utf8.RuneCountInString(line); w > maxComment {
				t.Errorf("%s:%d: the line is %d columns wide, more than %d: make fmt", page, n, w, maxComment)
			}
		}
	}
}

type passage struct {
	line     int
	text     string
	exported bool // users see it
}

type goFile struct {
	path  string
	fset  *token.FileSet
	ast   *ast.File
	lines []string
}

// goFiles parses every Go file of the repository that people have written.
func goFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := parsedOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("found %d Go files", len(files))
	}
	return files
}

var parsedOnce = sync.OnceValues(parseGoFiles)

func parseGoFiles() (files []goFile, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if rel, _ := filepath.Rel(root, path); !ast.IsGenerated(parsed) {
			files = append(files, goFile{rel, fset, parsed, strings.Split(string(src), "\n")})
		}
		return nil
	})
	return files, err
}

// test reports whether users cannot import the file.
func (f goFile) test() bool {
	return strings.HasSuffix(f.path, "_test.go") || strings.HasPrefix(f.path, "integration/") ||
		strings.HasPrefix(f.path, "examples/") || strings.Contains(f.path, "/internal/")
}

func (f goFile) comments() (all []passage) {
	docs := map[*ast.CommentGroup]bool{f.ast.Doc: true}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			docs[d.Doc] = d.Name.IsExported()
			return false
		case *ast.GenDecl:
			docs[d.Doc] = slices.ContainsFunc(d.Specs, exportedSpec)
		case *ast.TypeSpec:
			docs[d.Doc] = docs[d.Doc] || d.Name.IsExported()
			return d.Name.IsExported()
		case *ast.ValueSpec:
			docs[d.Doc], docs[d.Comment] = d.Names[0].IsExported(), d.Names[0].IsExported()
			return false
		case *ast.Field:
			exported := len(d.Names) > 0 && d.Names[0].IsExported()
			docs[d.Doc], docs[d.Comment] = exported, exported
		}
		return true
	})
	for _, g := range f.ast.Comments {
		if strings.HasPrefix(g.List[0].Text, "// Output:") ||
			strings.HasPrefix(g.List[0].Text, "// Unordered output:") {
			continue
		}
		line := f.fset.Position(g.Pos()).Line
		for paragraph := range strings.SplitSeq(g.Text(), "\n\n") {
			if strings.HasPrefix(paragraph, "\t") {
				continue // code
			}
			all = append(all, passage{line, strings.Join(strings.Fields(paragraph), " "), docs[g] && !f.test()})
		}
	}
	return all
}

func exportedSpec(s ast.Spec) bool {
	switch s := s.(type) {
	case *ast.TypeSpec:
		return s.Name.IsExported()
	case *ast.ValueSpec:
		return s.Names[0].IsExported()
	}
	return false
}

type identifier struct {
	line     int
	name     string
	exported bool
}

func (f goFile) identifiers() (all []identifier) {
	declared := map[*ast.Ident]bool{}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			declared[d.Name] = true
		case *ast.TypeSpec:
			declared[d.Name] = true
		case *ast.ValueSpec:
			for _, name := range d.Names {
				declared[name] = true
			}
		case *ast.Field:
			for _, name := range d.Names {
				declared[name] = true
			}
		case *ast.AssignStmt:
			for _, lhs := range d.Lhs {
				if id, ok := lhs.(*ast.Ident); ok && d.Tok == token.DEFINE {
					declared[id] = true
				}
			}
		}
		return true
	})
	for id := range declared {
		all = append(all, identifier{f.fset.Position(id.Pos()).Line, id.Name, id.IsExported() && !f.test()})
	}
	slices.SortFunc(all, func(a, b identifier) int { return a.line - b.line })
	return all
}

// camel splits a name into its words, in lower case.
func camel(name string) (words []string) {
	start := 0
	runes := []rune(name)
	for i := 1; i <= len(runes); i++ {
		if i == len(runes) || unicode.IsUpper(runes[i]) && !unicode.IsUpper(runes[i-1]) || runes[i] == '_' {
			words = append(words, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
			start = i
		}
	}
	return words
}

// paragraphs returns the text of a page without its code.
func paragraphs(t *testing.T, page string) (all []passage) {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	code, start := false, 0
	var text []string
	end := func() {
		if len(text) > 0 {
			all = append(all, passage{start, strings.Join(text, " "), true})
		}
		text = nil
	}
	n := 0
	for line := range strings.Lines(string(src)) {
		n++
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "```"):
			end()
			code = !code
		case code:
		case line == "" || strings.HasPrefix(line, "#"):
			end()
		case strings.HasPrefix(line, "|"):
			end()
			for cell := range strings.SplitSeq(line, "|") {
				all = append(all, passage{n, strings.TrimSpace(cell), true})
			}
		default:
			if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") {
				end()
				line = line[2:]
			}
			if text == nil {
				start = n
			}
			text = append(text, line)
		}
	}
	end()
	return all
}

var sentenceEnd = regexp.MustCompile(`[.!?:](\*\*)? +`)

func sentences(text string) (all []string) {
	start := 0
	for _, m := range sentenceEnd.FindAllStringIndex(text, -1) {
		all = append(all, strings.TrimLeft(strings.TrimSpace(text[start:m[1]]), "*\"("))
		start = m[1]
	}
	return append(all, strings.TrimLeft(text[start:], "*\"("))
}

var (
	word = regexp.MustCompile(`[A-Za-z]+`)
	span = regexp.MustCompile("`[^`]*`")
)

func checkWords(t *testing.T, path string, line int, text string, exported bool) {
	t.Helper()
	text = span.ReplaceAllString(text, "")
	for _, w := range word.FindAllString(text, -1) {
		reportWord(t, path, line, strings.ToLower(w), exported)
	}
	for phrase, instead := range phrases {
		if strings.Contains(text, phrase) && !excepted(path, phrase) {
			t.Errorf("%s:%d: %q: %s", path, line, phrase, instead)
		}
	}
}

func reportWord(t *testing.T, path string, line int, w string, exported bool) {
	t.Helper()
	instead, bad := banned[w]
	if !bad && exported {
		instead, bad = public[w]
	}
	if bad && !excepted(path, w) {
		t.Errorf("%s:%d: %q: say instead: %s", path, line, w, instead)
	}
}

func excepted(path, w string) bool {
	words := exceptions[path]
	return slices.Contains(words, w) || slices.Contains(words, "*")
}
