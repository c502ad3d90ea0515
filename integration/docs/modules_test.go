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

const (
	rootModule      = "github.com/ormoutbox/ormoutbox"
	watermillModule = "github.com/ThreeDotsLabs/watermill"
)

// needs lists the modules that a released module may require.
type needs struct {
	requires []string
	brings   []string // heavy modules that those depend on, with all modules below these
	tests    []string // modules that only its tests and Examples import
}

// released holds every released module. .golangci.yml says which package may import which; the
// tests here look at what a user gets with a module.
var released = map[string]needs{
	".":          {},
	"gormoutbox": {requires: []string{"gorm.io/gorm"}},
	"entoutbox": {requires: []string{
		"entgo.io/ent",
		"ariga.io/atlas", // the language of hooks on migrations of Ent, which brings it
	}},
	"bunoutbox": {requires: []string{"github.com/uptrace/bun"}},
	"inbox":     {requires: []string{watermillModule}},
	"inbox/redisonce": {
		requires: []string{"github.com/redis/go-redis/v9", watermillModule},
		tests:    []string{"github.com/alicebob/miniredis/v2"}, // Examples without a server
	},
	"contractoutbox":     {requires: []string{"github.com/google/jsonschema-go"}},
	"pgxoutbox":          {requires: []string{"github.com/jackc/pgx/v5"}},
	"pgxoutbox/walrelay": {requires: []string{"github.com/jackc/pgx/v5", "github.com/jackc/pglogrepl"}},
	"promoutbox": {
		requires: []string{"github.com/prometheus/client_golang"},
		brings:   []string{"github.com/prometheus"},
	},
	"oteloutbox": {
		requires: []string{
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/metric",
		},
		brings: []string{"go.opentelemetry.io"},
		tests:  []string{"go.opentelemetry.io/otel/sdk"},
	},
	"watermillbridge": {requires: []string{watermillModule}},
	"watermillbridge/kafkabridge": {
		requires: []string{
			watermillModule, "github.com/ThreeDotsLabs/watermill-kafka/v3", "github.com/IBM/sarama",
			"github.com/eapache/go-resiliency", // the breaker inside sarama, whose error kafkabridge has to recognise
		},
		brings: []string{"go.opentelemetry.io"},
	},
	"watermillbridge/amqpbridge": {requires: []string{
		watermillModule, "github.com/ThreeDotsLabs/watermill-amqp/v3", "github.com/rabbitmq/amqp091-go",
		"github.com/cenkalti/backoff/v3", // in watermill-amqp's configuration
	}},
	"watermillbridge/franzbridge": {
		requires: []string{"github.com/twmb/franz-go"}, brings: []string{"github.com/twmb"},
		tests: []string{"github.com/twmb/franz-go/pkg/kmsg"},
	},
	"watermillbridge/natsbridge": {
		requires: []string{watermillModule, "github.com/nats-io/nats.go"}, brings: []string{"github.com/nats-io"},
	},
	"watermillbridge/redisbridge": {requires: []string{watermillModule, "github.com/redis/go-redis/v9"}},
	"watermillbridge/httpbridge":  {},
}

// unreleased modules may import everything. Nobody imports cmd/outbox, which is a program.
var unreleased = []string{"integration", "integration/bench", "examples", "cmd/outbox"}

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
// driver, no broker client, no test library.
func TestDependencies(t *testing.T) {
	t.Parallel()
	packages := packagesOfWorkspace(t)
	for _, module := range modulesOfWorkspace(t) {
		if slices.Contains(unreleased, module) {
			continue
		}
		t.Run("module="+module, func(t *testing.T) {
			n, known := released[module]
			if !known {
				t.Fatal("released does not say what the module may require")
			}
			compiled := compiledInto(module, packages)
			if !compiled[rootModule] {
				t.Errorf("the module is built without %s: %v", rootModule, slices.Sorted(maps.Keys(compiled)))
			}
			for dep := range compiled {
				switch {
				case module == "." && dep != rootModule:
					t.Errorf("%s is compiled into the root module, which has the standard library alone", dep)
				case !ours(dep) && isHeavy(dep) && !n.allow(dep):
					t.Errorf("%s is compiled into the module, whose users did not ask for it", dep)
				}
			}
			for _, dep := range n.requires { // so that the test can fail
				if !compiled[dep] {
					t.Errorf("%s is not compiled into the module: %v", dep, slices.Sorted(maps.Keys(compiled)))
				}
			}
			checkGoMod(t, module, n)
		})
	}
}

// checkGoMod checks the modules that a released go.mod names, those of its tests too.
func checkGoMod(t *testing.T, module string, n needs) {
	t.Helper()
	mod := goMod(t, module)
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
		case n.allow(q.Path), slices.Contains(n.tests, q.Path):
		case !q.Indirect:
			t.Errorf("go.mod requires %s itself", q.Path)
		case isHeavy(q.Path):
			t.Errorf("go.mod names %s, which its users did not ask for", q.Path)
		}
	}
}

// docs/design/dependencies.md gives the reason for each dependency that a user gets, and for each
// dependency of the program.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", "design", "dependencies.md"))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) == 5 {
			told = append(told, strings.Fields(strings.ReplaceAll(cells[1], ",", " "))...)
		}
	}
	looked := 0
	for _, module := range modulesOfWorkspace(t) {
		if slices.Contains([]string{"integration", "integration/bench", "examples"}, module) {
			continue
		}
		for _, q := range goMod(t, module).Require {
			if q.Indirect || ours(q.Path) {
				continue
			}
			looked++
			if !slices.ContainsFunc(told, func(path string) bool { return within(q.Path, path) }) {
				t.Errorf("docs/design/dependencies.md does not say why %s requires %s", module, q.Path)
			}
		}
	}
	if looked < 20 {
		t.Errorf("%d dependencies were looked at", looked)
	}
}

// allow reports whether a user of the module gets the other one on purpose.
func (n needs) allow(path string) bool {
	return slices.Contains(n.requires, path) || slices.ContainsFunc(n.brings, func(m string) bool {
		return within(path, m)
	})
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
