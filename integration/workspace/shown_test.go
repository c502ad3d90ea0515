package workspace_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// notShown are packages whose functions need no Example of their own, and why.
var notShown = map[string]string{}

// Every exported function of a released package has an Example, or one of the package calls it, so that
// godoc shows how it is used.
func TestEveryEntryHasAnExample(t *testing.T) {
	t.Parallel()
	root, modules := workspace(t)
	looked := 0
	for _, module := range modules {
		if slices.Contains(unreleased, module) {
			continue
		}
		for _, p := range list(t, filepath.Join(root, module), "./...") {
			name := strings.TrimPrefix(p.ImportPath, rootModule+"/")
			if strings.Contains("/"+name+"/", "/internal/") {
				continue
			}
			entries, shown := entriesOf(t, filepath.Join(root, name))
			for _, e := range slices.Sorted(maps.Keys(entries)) {
				looked++
				if _, fine := notShown[name+"."+e]; fine == shown[e] && notShown[name] == "" {
					if fine {
						t.Errorf("%s.%s has an Example: take it out of notShown", name, e)
					} else {
						t.Errorf("%s.%s has no Example, and none of the package calls it", name, e)
					}
				}
			}
		}
	}
	if looked < 100 {
		t.Errorf("%d functions were looked at", looked)
	}
}

// entriesOf returns the exported functions of a package, and what its Examples are of or call.
func entriesOf(t *testing.T, dir string) (entries, shown map[string]bool) {
	t.Helper()
	entries, shown = map[string]bool{}, map[string]bool{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, f.Name()), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		test := strings.HasSuffix(f.Name(), "_test.go")
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || fn.Recv != nil:
			case !test && fn.Name.IsExported():
				entries[fn.Name.Name] = true
			case test && !strings.HasPrefix(fn.Name.Name, "Test") && !strings.HasPrefix(fn.Name.Name, "Benchmark"):
				of, _, _ := strings.Cut(strings.TrimPrefix(fn.Name.Name, "Example"), "_")
				shown[of] = true
				ast.Inspect(fn, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						shown[s.Sel.Name] = true
					}
					return true
				})
			}
		}
	}
	return entries, shown
}
