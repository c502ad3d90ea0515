// Package release_test rehearses a release: what a user gets from it works before there is a tag.
package release_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
)

const (
	version = "v0.1.0"
	ours    = "github.com/ormoutbox/ormoutbox"
)

// A released version is got with `go get` and `go install`, from a module proxy that is a folder.
func TestRehearsal(t *testing.T) {
	longtest.Mark(t)
	root := fixture.Root(t)
	served := t.TempDir()
	sh(t, root, nil, filepath.Join(root, "scripts", "served"), version, served)
	environment := consumerEnvironment(t, "file://"+served+"/proxy")
	program, prints := firstPage(t, root)

	t.Run("README's program from the proxy", func(t *testing.T) {
		shop := filepath.Join(t.TempDir(), "shop")
		writeProgram(t, shop, program)
		get := []string{"get", ours + "/gormoutbox@" + version, ours + "/watermillbridge@" + version}
		sh(t, shop, environment, "go", append(get, thirdParties(t, root, program)...)...)
		runProgram(t, shop, environment, prints)
		if mod := read(t, shop, "go.mod"); strings.Contains(mod, "=>") || !strings.Contains(mod, ours+" "+version) {
			t.Errorf("go.mod of the program:\n%s", mod)
		}
	})
	t.Run("README's program from the clone", func(t *testing.T) {
		shop := filepath.Join(t.TempDir(), "shop")
		writeProgram(t, shop, program)
		sh(t, root, nil, filepath.Join(root, "scripts", "use"), shop)
		sh(t, shop, environment, "go", append([]string{"get"}, thirdParties(t, root, program)...)...)
		runProgram(t, shop, environment, prints)
	})
	t.Run("the program outbox", func(t *testing.T) {
		bin := t.TempDir()
		sh(t, bin, append(environment, "GOBIN="+bin), "go", "install", ours+"/cmd/outbox@"+version)
		out := sh(t, bin, nil, filepath.Join(bin, "outbox"), "version")
		if !strings.HasPrefix(out, "outbox "+version+", tables of version ") {
			t.Errorf("outbox version prints %q", out)
		}
	})
	t.Run("replace directives of the program", func(t *testing.T) {
		tree := filepath.Join(served, "tree")
		for commit, want := range map[string]int{"HEAD~2": 10, "HEAD~1": 0, "HEAD": 10} {
			mod := sh(t, tree, nil, "git", "show", commit+":cmd/outbox/go.mod")
			if got := strings.Count(mod, "replace "+ours); got != want {
				t.Errorf("%s has %d replace directives for modules of ours, want %d:\n%s", commit, got, want, mod)
			}
		}
	})
	t.Run("refused", func(t *testing.T) {
		tree := filepath.Join(served, "tree")
		refuse := func(version, want string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), "scripts/release", version)
			cmd.Dir = tree
			if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
				t.Errorf("release %q: %v, want %q:\n%s", version, err, want, out)
			}
		}
		for _, bad := range []string{"", "0.2.0", "v0.2", "v2.0.0", "v0.02.0", "v0.2.0+x"} {
			refuse(bad, "is no version")
		}
		refuse(version, "has tags already: bunoutbox/v0.1.0 cmd/outbox/v0.1.0")
		fixture.NoError(t, os.WriteFile(filepath.Join(tree, "new"), nil, 0o600))
		refuse("v0.2.0", "changes that are not committed")
	})
}

// A module is pointed to the clone with the modules that it imports and those that these require. A
// module without code gets all of them. The script may be run again.
func TestUse(t *testing.T) {
	t.Parallel()
	root, all := fixture.Root(t), 0
	use := filepath.Join(root, "scripts", "use")
	for range strings.Lines(sh(t, root, nil, filepath.Join(root, "scripts", "modules"), "--released")) {
		all++
	}
	for name, c := range map[string]struct {
		program string
		want    []string
	}{
		"nothing": {"package main\n", nil},
		"a package of the root module": {
			"package main\n\nimport _ \"" + ours + "/core/sqloutbox\"\n", []string{""},
		},
		"a module below a module": {
			"package main\n\nimport _ \"" + ours + "/watermillbridge/natsbridge\"\n",
			[]string{"", "/watermillbridge", "/watermillbridge/natsbridge"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shop := filepath.Join(t.TempDir(), "shop")
			writeProgram(t, shop, c.program)
			sh(t, root, nil, use, shop)
			mod := read(t, shop, "go.mod")
			sh(t, root, nil, use, shop)
			if again := read(t, shop, "go.mod"); again != mod {
				t.Errorf("go.mod after the first and the second call:\n%s\n%s", mod, again)
			}
			relative, err := filepath.Rel(shop, root)
			fixture.NoError(t, err)
			for _, module := range c.want {
				if line := ours + module + " => " + relative + module + "\n"; !strings.Contains(mod, line) {
					t.Errorf("go.mod has no %q:\n%s", line, mod)
				}
			}
			want := len(c.want)
			if c.want == nil {
				want = all
			}
			if got := strings.Count(mod, " => "); got != want {
				t.Errorf("go.mod has %d replacements, want %d:\n%s", got, want, mod)
			}
			sh(t, root, nil, use, "--drop", shop)
			if mod := read(t, shop, "go.mod"); strings.Contains(mod, "=>") {
				t.Errorf("go.mod after --drop:\n%s", mod)
			}
		})
	}
}

// consumerEnvironment is that of a user who has only what the proxies serve. The module cache is
// empty, because a real one would keep the rehearsed version. Modules of others come from the
// module cache of this machine, as from a proxy, and from the configured proxy if they are not
// there. With -trimpath the build cache of an earlier run serves, although the folders differ.
func consumerEnvironment(t *testing.T, proxy string) []string {
	t.Helper()
	configured := strings.Fields(sh(t, t.TempDir(), nil, "go", "env", "GOMODCACHE", "GOPROXY"))
	return append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -trimpath -modcacherw", "CGO_ENABLED=0",
		"GOMODCACHE="+t.TempDir(), "GOSUMDB=off",
		"GOPROXY="+proxy+",file://"+configured[0]+"/cache/download,"+configured[1])
}

// firstPage returns the program of the first page, and what README says that it prints.
func firstPage(t *testing.T, root string) (program, prints string) {
	t.Helper()
	program = read(t, filepath.Join(root, "examples", "quickstart"), "main.go")
	_, after, found := strings.Cut(read(t, root, "README.md"), "$ go run ./examples/quickstart\n")
	prints, _, ended := strings.Cut(after, "```")
	if !found || !ended {
		t.Fatal("README.md does not say what examples/quickstart prints")
	}
	return program, prints
}

func writeProgram(t *testing.T, dir, program string) {
	t.Helper()
	fixture.NoError(t, os.Mkdir(dir, 0o700))
	fixture.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
	sh(t, dir, append(os.Environ(), "GOWORK=off"), "go", "mod", "init", "example.com/shop")
}

func runProgram(t *testing.T, dir string, environment []string, want string) {
	t.Helper()
	sh(t, dir, environment, "go", "build", "-o", "shop", ".")
	if got := fixture.WithoutSlowSQL(sh(t, dir, nil, filepath.Join(dir, "shop"))); got != want {
		t.Errorf("the program prints\n%s\nand README says\n%s", got, want)
	}
}

// thirdParties returns the modules of others that a program imports, at the versions of examples.
func thirdParties(t *testing.T, root, program string) (modules []string) {
	t.Helper()
	var mod struct {
		Require []struct{ Path, Version string }
	}
	out := sh(t, filepath.Join(root, "examples"), nil, "go", "mod", "edit", "-json")
	fixture.NoError(t, json.Unmarshal([]byte(out), &mod))
	for _, r := range mod.Require {
		imported := regexp.MustCompile(`"` + regexp.QuoteMeta(r.Path) + `["/]`)
		if !strings.HasPrefix(r.Path+"/", ours+"/") && imported.MatchString(program) {
			modules = append(modules, r.Path+"@"+r.Version)
		}
	}
	if !slices.ContainsFunc(modules, func(m string) bool { return strings.HasPrefix(m, "gorm.io/gorm@") }) {
		t.Fatalf("the program imports %v", modules)
	}
	return modules
}

func read(t *testing.T, folder, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	fixture.NoError(t, err)
	return string(text)
}

// sh runs a command and returns what it prints on stdout. A nil environment is that of the test.
func sh(t *testing.T, dir string, environment []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, environment
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}
