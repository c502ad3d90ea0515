package workspace_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A program that imports a released module gets only that module and its dependencies: no other
// ORM, no driver, no broker client, no test library. Each module is built into a program of its
// own, without the workspace and from the module cache alone.
func TestScratchConsumers(t *testing.T) {
	t.Parallel()
	root, modules := workspace(t)
	built := 0
	for _, module := range modules {
		if slices.Contains(unreleased, module) {
			continue
		}
		built++
		t.Run("module="+module, func(t *testing.T) {
			t.Parallel()
			c := newScratch(t, root, modules, module)
			c.run("build", "-o", "program", ".")
			var foreign []string
			for dep := range strings.FieldsSeq(c.run("list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", ".")) {
				switch {
				case dep == scratchModule:
				case ours(dep):
					if name := moduleName(dep); name != module && !needs(t, module, name) {
						t.Errorf("%s is compiled into a consumer of %s", dep, modulePath(module))
					}
				case isHeavy(dep) && !allowed(module, dep):
					t.Errorf("%s is compiled into a consumer of %s, which did not ask for it", dep, modulePath(module))
				case !slices.Contains(foreign, dep):
					foreign = append(foreign, dep)
				}
			}
			if module == "." && len(foreign) > 0 {
				t.Errorf("a consumer of the root module gets %v: it has the standard library alone", foreign)
			}
			for _, other := range rooms[module].others { // so that the test can fail
				if slices.ContainsFunc(c.imported, func(p string) bool { return within(p, other) }) &&
					!slices.Contains(foreign, other) {
					t.Errorf("%s imports %s, and its consumer does not get it: %v", module, other, foreign)
				}
			}
			t.Logf("compiled in: %v", foreign)
		})
	}
	if built < 5 {
		t.Errorf("%d modules were looked at", built)
	}
}

const scratchModule = "example.com/consumer"

// scratch is a module in a new folder. Its program imports every package of one released module.
type scratch struct {
	*testing.T
	dir      string
	imported []string // packages that the module's packages import
}

func newScratch(t *testing.T, root string, modules []string, module string) *scratch {
	t.Helper()
	c := &scratch{T: t, dir: t.TempDir()}
	var imports []string
	for _, p := range list(t, filepath.Join(root, module), "./...") {
		if !strings.Contains(p.ImportPath+"/", "/internal/") {
			imports = append(imports, fmt.Sprintf("import _ %q", p.ImportPath))
			c.imported = append(c.imported, p.Imports...)
		}
	}
	if len(imports) == 0 {
		t.Fatalf("module %s has no packages", module)
	}
	c.write("main.go", "package main\n\n"+strings.Join(imports, "\n")+"\n\nfunc main() {}\n")
	// Modules without a release are replaced, as the README says. The checksums are those with
	// which the module itself was tested.
	mod := fmt.Sprintf("module %s\n\ngo 1.26.0\n\nrequire %s v0.0.0\n\n", scratchModule, modulePath(module))
	for _, m := range modules {
		mod += fmt.Sprintf("replace %s => %q\n", modulePath(m), filepath.Join(root, m))
	}
	c.write("go.mod", mod)
	sums, err := os.ReadFile(filepath.Join(root, module, "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	c.write("go.sum", string(sums))
	return c
}

func (c *scratch) write(name, content string) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o600); err != nil {
		c.Fatal(err)
	}
}

// run runs the go tool without a workspace and without a network, so that a missing module is an
// error.
func (c *scratch) run(args ...string) string {
	c.Helper()
	cmd := exec.CommandContext(c.Context(), "go", args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

func moduleName(path string) string {
	if path == rootModule {
		return "."
	}
	return strings.TrimPrefix(path, rootModule+"/")
}

// needs reports whether some package of module may import packages of the other module.
func needs(t *testing.T, module, other string) bool {
	t.Helper()
	_, modules := workspace(t)
	r := rooms[module]
	for _, allow := range r.ours {
		owner := "."
		for _, m := range modules {
			if within(strings.TrimSuffix(allow, "/..."), m) && len(m) > len(owner) {
				owner = m
			}
		}
		if owner == other {
			return true
		}
	}
	return false
}
