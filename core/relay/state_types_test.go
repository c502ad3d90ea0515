package relay

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"
)

// outside are the types that are part of the state and may be used without its guard.
var outside = map[string]string{
	"outbox":   "does not change",
	"signal":   "a channel",
	"signals":  "channels that do not change",
	"handover": "has atomics and a mutex of its own, because the publisher answers it",
	"mark":     "a value that the writer takes with it",
	"laneWake": "a value that the poller takes with it",
}

// constant are the fields of guarded types that do not change.
var constant = map[string]bool{"topic": true}

// No field and no method of a guarded type is used outside of the guard: by a function that is
// neither a method of a guarded type nor given the state. Calls that a transition notes for later
// (Effects.Call) are outside.
func TestStateIsReachedThroughItsGuard(t *testing.T) {
	if testing.Short() {
		return // takes long: it checks the types of the standard library from its source
	}
	set := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	info := &types.Info{
		Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}
	cfg := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	pkg, err := cfg.Check("github.com/ormoutbox/ormoutbox/core/relay", set, files, info)
	if err != nil {
		t.Fatal(err)
	}
	guarded := map[*types.TypeName]bool{}
	reach(pkg, pkg.Scope().Lookup("state").Type(), guarded)
	for _, name := range []string{"item", "destination", "laneState", "rateLimit", "operators"} {
		if !guarded[pkg.Scope().Lookup(name).(*types.TypeName)] {
			t.Errorf("%s is not guarded", name)
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			c := checker{t: t, set: set, info: info, guarded: guarded, outbox: pkg.Scope().Lookup("outbox").Type()}
			c.walk(fn.Body, c.method(fn) || c.given(fn.Type.Params) || c.makes(fn.Type.Results))
		}
	}
}

// reach adds the types of this package that are reached from t.
func reach(pkg *types.Package, t types.Type, guarded map[*types.TypeName]bool) {
	switch t := types.Unalias(t).(type) {
	case *types.Named:
		for arg := range t.TypeArgs().Types() {
			reach(pkg, arg, guarded)
		}
		name := t.Origin().Obj()
		if _, ok := t.Underlying().(*types.Struct); !ok || name.Pkg() != pkg || outside[name.Name()] != "" ||
			guarded[name] {
			return
		}
		guarded[name] = true
		reach(pkg, t.Underlying(), guarded)
	case *types.Struct:
		for f := range t.Fields() {
			reach(pkg, f.Type(), guarded)
		}
	case *types.Pointer:
		reach(pkg, t.Elem(), guarded)
	case *types.Slice:
		reach(pkg, t.Elem(), guarded)
	case *types.Array:
		reach(pkg, t.Elem(), guarded)
	case *types.Map:
		reach(pkg, t.Key(), guarded)
		reach(pkg, t.Elem(), guarded)
	}
}

type checker struct {
	t       *testing.T
	set     *token.FileSet
	info    *types.Info
	guarded map[*types.TypeName]bool
	outbox  types.Type
}

func (c checker) isGuarded(t types.Type) bool {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	return ok && c.guarded[n.Origin().Obj()]
}

// method reports whether fn is a method of a guarded type.
func (c checker) method(fn *ast.FuncDecl) bool {
	return fn.Recv != nil && c.isGuarded(c.info.Types[fn.Recv.List[0].Type].Type)
}

// makes reports whether a function returns a new guarded value.
func (c checker) makes(results *ast.FieldList) bool {
	return results != nil && len(results.List) == 1 && c.isGuarded(c.info.Types[results.List[0].Type].Type)
}

// changes reports whether a selected field or method belongs to what may change: not to the outbox that
// the state embeds.
func (c checker) changes(s *types.Selection) bool {
	if v, ok := s.Obj().(*types.Var); ok && constant[v.Name()] {
		return false
	}
	embedded, _, _ := types.LookupFieldOrMethod(c.outbox, true, s.Obj().Pkg(), s.Obj().Name())
	return embedded != s.Obj()
}

// given reports whether a function gets a guarded value, so that its caller has the guard.
func (c checker) given(params *ast.FieldList) bool {
	if params == nil {
		return false
	}
	for _, f := range params.List {
		// An item and a destination are handles for those who do not have the state.
		if t := c.info.Types[f.Type].Type; c.isGuarded(t) && !isHandle(t) {
			return true
		}
	}
	return false
}

func isHandle(t types.Type) bool {
	p, ok := types.Unalias(t).(*types.Pointer)
	if !ok {
		return false
	}
	n, ok := types.Unalias(p.Elem()).(*types.Named)
	return ok && (n.Obj().Name() == "item" || n.Obj().Name() == "destination" || n.Obj().Name() == "rateLimit")
}

func (c checker) walk(n ast.Node, inside bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			c.walk(n.Body, inside || c.given(n.Type.Params))
			return false
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Call" && len(n.Args) == 1 {
				if lit, ok := n.Args[0].(*ast.FuncLit); ok {
					c.walk(sel, inside)
					c.walk(lit.Body, false)
					return false
				}
			}
		case *ast.SelectorExpr:
			if s := c.info.Selections[n]; !inside && s != nil && s.Kind() != types.MethodExpr &&
				c.isGuarded(s.Recv()) &&
				c.changes(s) {
				c.t.Errorf("%s: %s of the guarded %s is used outside of the guard", c.set.Position(n.Pos()), n.Sel.Name,
					s.Recv())
			}
		}
		return true
	})
}
