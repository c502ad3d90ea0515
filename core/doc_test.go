package core_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// The documentation of the package tells its reader which names a service needs, and which names
// only authors of tables and adapters need.
func TestDocumentationNamesEveryEntry(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	must(t, err)
	_, lists, found := strings.Cut(string(text), "// # For services")
	if !found {
		t.Fatal("doc.go has no section for services")
	}
	for _, name := range exportedTypesAndFunctions(t) {
		if !strings.Contains(lists, "["+name+"]") {
			t.Errorf("doc.go does not name %s: put [%s] into the section of those who need it", name, name)
		}
	}
}

// exportedTypesAndFunctions lists those of the package. Constants and variables belong to one of
// them.
func exportedTypesAndFunctions(t *testing.T) (names []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	must(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.SkipObjectResolution)
		must(t, err)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.IsExported() {
					names = append(names, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok && typ.Name.IsExported() {
						names = append(names, typ.Name.Name)
					}
				}
			}
		}
	}
	if len(names) < 50 {
		t.Fatalf("found %q only", names)
	}
	return names
}
