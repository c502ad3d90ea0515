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

// notShown has the functions without an Example, by the reason.
var notShown = map[string][]string{
	"authors of tables and adapters call it: those of this repository show how": {
		"core/sqltx.Follow", "core/sqltx.OfferInsert", "core/sqltx.OfferedInsert", "core/sqltx.RetryBegin",
		"core/sqltx.Visit", "core/sqltx.WrapTx",
	},
	"a test of a suite: the Examples of the suite's package show how one is called": {
		"core/outboxtest/suite.CaptureEvent", "core/outboxtest/suite.CaptureEventInContext",
		"core/outboxtest/suite.ContextWithPause", "core/outboxtest/suite.Pause",
		"core/outboxtest/suite.TestCapture", "core/outboxtest/suite.TestOnceStore",
		"core/outboxtest/suite.TestOnceTxStore",
	},
	"as the one for inserts, which has an Example": {
		"bunoutbox.AfterDelete", "bunoutbox.AfterUpdate", "bunoutbox.BeforeDelete", "bunoutbox.BeforeUpdate",
	},
	"needs a client that Ent has generated, and a database: integration/ent has it": {
		"entoutbox/entschema.MigrateOptions",
	},
}

// Every exported function of a released package has an Example, or an Example of its package calls
// it, so that godoc shows how to use it.
func TestEveryEntryHasAnExample(t *testing.T) {
	t.Parallel()
	root, modules := workspace(t)
	looked, known := 0, map[string]bool{}
	for _, names := range notShown {
		for _, name := range names {
			known[name] = true
		}
	}
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
				switch full := name + "." + e; {
				case shown[e] && known[full]:
					t.Errorf("%s has an Example: take it out of notShown", full)
				case !shown[e] && !known[full]:
					t.Errorf("%s has no Example, and none of the package calls it", full)
				}
				delete(known, name+"."+e)
			}
		}
	}
	for name := range known {
		t.Errorf("notShown names %s, which does not exist", name)
	}
	if looked < 100 {
		t.Errorf("%d functions were looked at", looked)
	}
}

// entriesOf returns the exported functions of a package, and the functions that its Examples
// explain or call. All of a file of Examples is a part of them.
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
		calls := func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				shown[s.Sel.Name] = true
			}
			return true
		}
		if test && strings.Contains(f.Name(), "example") {
			ast.Inspect(file, calls)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			switch {
			case !ok || fn.Recv != nil:
			case !test && fn.Name.IsExported():
				entries[fn.Name.Name] = true
			case test && strings.HasPrefix(fn.Name.Name, "Example"):
				of, _, _ := strings.Cut(strings.TrimPrefix(fn.Name.Name, "Example"), "_")
				shown[of] = true
				ast.Inspect(fn, calls)
			}
		}
	}
	return entries, shown
}
