package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

const rootModule = "github.com/ormoutbox/ormoutbox"

// unreleased modules may import everything. Nobody imports cmd/outbox, which is a program.
var unreleased = []string{"integration", "integration/bench", "examples", "cmd/outbox"}

// byOthers are heavy modules that a released module brings because a module that it requires does.
var byOthers = map[string]string{
	"watermillbridge/kafkabridge": "go.opentelemetry.io", // watermill-kafka
}

// heavy are modules that a user should get only on request: drivers, ORMs, broker clients, test and
// container libraries.
var heavy = []string{
	"github.com/jackc/pgx", "github.com/lib/pq", "github.com/go-sql-driver/mysql", "github.com/mattn/go-sqlite3",
	"modernc.org/sqlite", "github.com/glebarez", "gorm.io", "entgo.io", "github.com/uptrace/bun",
	"github.com/ThreeDotsLabs", "github.com/IBM/sarama", "github.com/twmb/franz-go", "github.com/confluentinc",
	"github.com/segmentio/kafka-go", "github.com/rabbitmq", "github.com/streadway/amqp",
	"github.com/nats-io", "github.com/redis", "github.com/alicebob/miniredis", "github.com/stretchr/testify",
	"go.uber.org/goleak", "github.com/testcontainers", "github.com/docker", "github.com/ory/dockertest",
	"github.com/prometheus", "go.opentelemetry.io", "github.com/cloudevents",
}

// A program that imports a released module gets that module and its dependencies: no other ORM, no
// driver, no broker client, no test library. .golangci.yml says which package may import which; this
// test looks at what those imports bring.
func TestDependencies(t *testing.T) {
	t.Parallel()
	packages := packagesOfWorkspace(t)
	looked := 0
	for _, module := range modulesOfWorkspace(t) {
		if slices.Contains(unreleased, module) {
			continue
		}
		t.Run("module="+module, func(t *testing.T) {
			compiled := compiledInto(module, packages)
			if !compiled[rootModule] {
				t.Errorf("the module is built without %s: %v", rootModule, slices.Sorted(maps.Keys(compiled)))
			}
			mod := goMod(t, module)
			for dep := range compiled {
				switch {
				case module == "." && dep != rootModule:
					t.Errorf("%s is compiled into the root module, which has the standard library alone", dep)
				case !ours(dep) && isHeavy(dep):
					looked++
					if !mod.asksFor(dep) && !within(dep, byOthers[module]) {
						t.Errorf("%s is compiled into the module, whose users did not ask for it", dep)
					}
				}
			}
			checkGoMod(t, module, mod)
		})
	}
	if looked < 20 {
		t.Errorf("%d heavy modules were found: the test sees no imports", looked)
	}
}

// checkGoMod checks the modules that a released go.mod names, those of its tests too.
func checkGoMod(t *testing.T, module string, mod moduleFile) {
	t.Helper()
	replaced := map[string]bool{}
	for _, r := range mod.Replace {
		replaced[r.Old.Path] = true
		if !ours(r.Old.Path) || !strings.HasPrefix(r.New.Path, "../") {
			t.Errorf("go.mod replaces %s by %s: only modules of this repository, by relative path",
				r.Old.Path, r.New.Path)
		} else if _, err := os.Stat(filepath.Join(fixture.Root(t), module, r.New.Path, "go.mod")); err != nil {
			t.Errorf("go.mod: %v", err)
		}
	}
	for _, q := range mod.Require {
		switch {
		case ours(q.Path):
			if !replaced[q.Path] {
				t.Errorf("go.mod requires %s without a replace by relative path", q.Path)
			}
		case module == ".":
			t.Errorf("the root module requires %s: it has the standard library alone", q.Path)
		case q.Indirect && isHeavy(q.Path) && !mod.asksFor(q.Path) && !within(q.Path, byOthers[module]):
			t.Errorf("go.mod names %s, which its users did not ask for", q.Path)
		}
	}
}

// asksFor reports whether the module itself requires a module of the same owner: a client of
// Prometheus brings other modules of Prometheus.
func (m moduleFile) asksFor(path string) bool {
	owner := ownerOf(path)
	for _, q := range m.Require {
		if !q.Indirect && ownerOf(q.Path) == owner {
			return true
		}
	}
	return false
}

// ownerOf returns the host of a path, and on GitHub the owner of the repository too.
func ownerOf(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if parts[0] == "github.com" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

func ours(path string) bool { return within(path, rootModule) }

func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

func isHeavy(path string) bool {
	return slices.ContainsFunc(heavy, func(h string) bool { return within(path, h) })
}

// compiledInto returns the modules whose packages are compiled into a program that imports every
// package of a module.
func compiledInto(module string, packages map[string]listedPackage) map[string]bool {
	path := rootModule
	if module != "." {
		path += "/" + module
	}
	modules, seen := map[string]bool{}, map[string]bool{}
	var visit func(p listedPackage)
	visit = func(p listedPackage) {
		if seen[p.ImportPath] || p.Standard || p.Module == nil {
			return
		}
		seen[p.ImportPath], modules[p.Module.Path] = true, true
		for _, imported := range p.Imports {
			visit(packages[imported])
		}
	}
	for _, p := range packages {
		if p.Module != nil && p.Module.Path == path {
			visit(p)
		}
	}
	return modules
}

type listedPackage struct {
	ImportPath string
	Standard   bool
	Imports    []string
	Module     *struct{ Path string }
}

// packagesOfWorkspace returns every package that some module of the workspace is built of.
func packagesOfWorkspace(t *testing.T) map[string]listedPackage {
	t.Helper()
	packages := map[string]listedPackage{}
	out := goTool(t, fixture.Root(t), "list", "-deps", "-json=ImportPath,Standard,Imports,Module", "work")
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.ImportPath] = p
	}
}

// modulesOfWorkspace returns the folders of the modules of go.work, relative to it.
func modulesOfWorkspace(t *testing.T) (modules []string) {
	t.Helper()
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(goTool(t, fixture.Root(t), "work", "edit", "-json"), &work); err != nil {
		t.Fatal(err)
	}
	for _, u := range work.Use {
		modules = append(modules, filepath.ToSlash(filepath.Clean(u.DiskPath)))
	}
	return modules
}

type moduleFile struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Replace []struct{ Old, New struct{ Path string } }
}

func goMod(t *testing.T, module string) (mod moduleFile) {
	t.Helper()
	out := goTool(t, filepath.Join(fixture.Root(t), module), "mod", "edit", "-json")
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	return mod
}

// goTool runs the go command with the flags of the tests' own build, so that the two compile
// nothing twice.
func goTool(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, stderr.Bytes())
	}
	return out
}
