package workspace_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

const rootModule = "github.com/ormoutbox/ormoutbox"

// room lists the imports that a package may have besides the standard library and the packages
// below it: packages of this project, exactly, and other modules, with all packages below these.
type room struct {
	ours   []string
	others []string
	brings []string // heavy modules that others depend on
	tests  []string // modules that only its tests and Examples import
}

// rooms holds every released package, named relative to the root module. A package belongs to the
// longest name that it equals or lies below.
var rooms = map[string]room{
	"core":             {ours: []string{"core/internal/..."}},
	"core/cloudevents": {ours: []string{"core"}},
	"core/contract":    {ours: []string{"core", "core/cloudevents", "core/internal/textcheck"}},
	"core/internal":    {ours: []string{"core"}},
	"core/sqltx":       {ours: []string{"core", "core/internal/..."}},
	"core/ops": {ours: []string{
		"core", "core/internal/errtext", "core/internal/failgroup", "core/internal/textcheck", "core/internal/who",
	}},
	"core/sqloutbox": {ours: []string{"core", "core/ops", "core/sqltx", "core/internal/..."}},
	"core/adapter":   {ours: []string{"core", "core/sqloutbox", "core/internal/..."}},
	"core/once": {ours: []string{
		"core", "core/internal/archive", "core/internal/errtext", "core/internal/textcheck",
	}},
	"core/once/sqlonce": {ours: []string{"core", "core/once", "core/internal/..."}},
	"core/once/httpkey": {ours: []string{"core", "core/once"}},
	"core/once/command": {ours: []string{
		"core", "core/once", "core/internal/archive", "core/internal/errtext", "core/internal/textcheck",
	}},
	"core/once/command/sqlcommand": {ours: []string{
		"core", "core/once", "core/once/command", "core/internal/...",
	}},
	"core/inbox": {ours: []string{
		"core", "core/cloudevents", "core/once", "core/internal/archive", "core/internal/errtext",
		"core/internal/textcheck",
	}},
	"core/inbox/inboxtest": {ours: []string{"core", "core/inbox"}},
	"core/inbox/sqlinbox":  {ours: []string{"core", "core/inbox", "core/internal/..."}},
	"core/metrics": {ours: []string{
		"core", "core/inbox", "core/once", "core/once/command", "core/once/httpkey",
	}},
	"core/outboxtest": {ours: []string{
		"core", "core/once", "core/ops", "core/sqltx", "core/outboxtest/internal/...",
	}},
	"core/outboxtest/suite": {ours: []string{
		"core", "core/inbox", "core/once", "core/ops", "core/sqltx", "core/outboxtest", "core/outboxtest/internal/...",
	}},
	"gormoutbox": {ours: []string{"core", "core/adapter", "core/sqltx"}, others: []string{"gorm.io/gorm"}},
	"entoutbox/entschema": {
		ours: []string{"core", "core/sqloutbox"}, others: []string{"entgo.io/ent", "ariga.io/atlas"},
	},
	"entoutbox": {ours: []string{"core", "core/adapter", "core/sqltx"}, others: []string{
		"entgo.io/ent",
		"ariga.io/atlas", // the language of hooks on migrations of Ent, which brings it
	}},
	"bunoutbox": {
		ours:   []string{"core", "core/adapter", "core/sqltx"},
		others: []string{"github.com/uptrace/bun"},
	},
	"inbox": {
		ours:   []string{"core", "core/inbox", "core/inbox/sqlinbox", "core/once", "core/sqltx"},
		others: []string{watermillModule},
	},
	"inbox/redisonce": {
		ours:   []string{"core", "core/inbox", "core/once", "inbox"},
		others: []string{"github.com/redis/go-redis/v9", watermillModule},
		tests:  []string{"github.com/alicebob/miniredis/v2"}, // Examples without a server
	},
	"contractoutbox": {
		ours:   []string{"core", "core/contract"},
		others: []string{"github.com/google/jsonschema-go"},
	},
	"pgxoutbox": {
		ours:   []string{"core", "core/sqloutbox", "core/sqltx"},
		others: []string{"github.com/jackc/pgx/v5"},
	},
	"pgxoutbox/walrelay": {
		ours:   []string{"core", "core/sqloutbox", "pgxoutbox"},
		others: []string{"github.com/jackc/pgx/v5", "github.com/jackc/pglogrepl"},
	},
	"promoutbox": {
		ours: []string{
			"core", "core/inbox", "core/metrics", "core/once", "core/once/command", "core/once/httpkey",
		},
		others: []string{"github.com/prometheus/client_golang"},
		brings: []string{"github.com/prometheus"},
	},
	"oteloutbox": {
		ours: []string{
			"core", "core/inbox", "core/metrics", "core/once", "core/once/command", "core/once/httpkey",
		},
		others: []string{
			"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace", "go.opentelemetry.io/otel/metric",
		},
		brings: []string{"go.opentelemetry.io"},
		tests:  []string{"go.opentelemetry.io/otel/sdk"},
	},
	"watermillbridge": {ours: []string{"core", "core/cloudevents"}, others: []string{watermillModule}},
	"watermillbridge/kafkabridge": {ours: []string{"core", "core/cloudevents", "watermillbridge"}, others: []string{
		watermillModule, "github.com/ThreeDotsLabs/watermill-kafka/v3", "github.com/IBM/sarama",
		"github.com/eapache/go-resiliency", // the breaker inside sarama, whose error kafkabridge has to recognise
	}, brings: []string{"go.opentelemetry.io"}},
	"watermillbridge/amqpbridge": {ours: []string{"core", "core/cloudevents", "watermillbridge"}, others: []string{
		watermillModule, "github.com/ThreeDotsLabs/watermill-amqp/v3", "github.com/rabbitmq/amqp091-go",
		"github.com/cenkalti/backoff/v3", // in watermill-amqp's configuration
	}},
	"watermillbridge/franzbridge": {
		ours: []string{"core", "core/cloudevents"}, others: []string{"github.com/twmb/franz-go"},
		brings: []string{"github.com/twmb"}, tests: []string{"github.com/twmb/franz-go/pkg/kmsg"},
	},
	"watermillbridge/natsbridge": {
		ours:   []string{"core", "core/cloudevents", "watermillbridge"},
		others: []string{watermillModule, "github.com/nats-io/nats.go"},
		brings: []string{"github.com/nats-io"},
	},
	"watermillbridge/redisbridge": {
		ours:   []string{"core", "core/cloudevents", "watermillbridge"},
		others: []string{watermillModule, "github.com/redis/go-redis/v9"},
	},
	"watermillbridge/httpbridge": {ours: []string{"core", "core/cloudevents"}},
}

const watermillModule = "github.com/ThreeDotsLabs/watermill"

// unreleased modules may import everything. Nobody imports cmd/outbox, which is a program.
var unreleased = []string{"integration", "integration/bench", "examples", "cmd/outbox"}

// heavy are modules that a user should get only on request: drivers, ORMs, broker clients, test and
// container libraries. A released go.mod may name one only if its own room does.
var heavy = []string{
	"github.com/jackc/pgx", "github.com/lib/pq", "github.com/go-sql-driver/mysql", "github.com/mattn/go-sqlite3",
	"modernc.org/sqlite", "github.com/glebarez", "gorm.io", "entgo.io", "github.com/uptrace/bun",
	"github.com/ThreeDotsLabs", "github.com/IBM/sarama", "github.com/twmb/franz-go", "github.com/confluentinc",
	"github.com/segmentio/kafka-go", "github.com/rabbitmq", "github.com/streadway/amqp",
	"github.com/nats-io", "github.com/redis", "github.com/alicebob/miniredis", "github.com/stretchr/testify",
	"go.uber.org/goleak", "github.com/testcontainers", "github.com/docker", "github.com/ory/dockertest",
	"github.com/prometheus", "go.opentelemetry.io", "github.com/cloudevents",
}

type listedPackage struct {
	ImportPath                         string
	Standard                           bool
	Imports, TestImports, XTestImports []string
	Module                             *struct{ Path string }
}

// Dependencies point in one direction, and no user gets a driver, an ORM or a broker client that
// they did not ask for.
func TestDependencies(t *testing.T) {
	t.Parallel()
	root, modules := workspace(t)
	checked := map[string]bool{}
	for _, module := range modules {
		if slices.Contains(unreleased, module) {
			continue
		}
		t.Run("module="+module, func(t *testing.T) {
			dir := filepath.Join(root, module)
			for _, p := range list(t, dir, "-deps", "./...") {
				if p.Standard || p.Module == nil {
					continue
				}
				if p.Module.Path == modulePath(module) {
					checkRoom(t, p)
					checked[p.ImportPath] = true
				} else if !ours(p.Module.Path) && !allowed(module, p.Module.Path) && isHeavy(p.Module.Path) {
					t.Errorf("%s is compiled into %s", p.Module.Path, modulePath(module))
				}
			}
			checkGoMod(t, dir, module)
		})
	}
	for _, must := range []string{
		"core", "core/adapter", "core/sqltx", "core/sqloutbox", "core/outboxtest", "core/outboxtest/suite",
		"gormoutbox", "watermillbridge", "watermillbridge/kafkabridge", "watermillbridge/amqpbridge",
	} {
		if !checked[rootModule+"/"+must] {
			t.Errorf("package %s was not looked at", must)
		}
	}
}

// docs/design/dependencies.md gives the reason for each dependency that a user gets, and for each
// dependency of the program.
func TestDependenciesAreExplained(t *testing.T) {
	t.Parallel()
	root, modules := workspace(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "dependencies.md"))
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
	for _, module := range modules {
		if slices.Contains([]string{"integration", "integration/bench", "examples"}, module) {
			continue
		}
		var mod struct {
			Require []struct {
				Path     string
				Indirect bool
			}
		}
		dir := filepath.Join(root, module)
		if err := json.Unmarshal(goTool(t, dir, "mod", "edit", "-json"), &mod); err != nil {
			t.Fatal(err)
		}
		for _, q := range mod.Require {
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

// Internal packages belong to one module, so that the root module may be upgraded without the
// others.
func TestNoInternalPackageOfAnotherModule(t *testing.T) {
	t.Parallel()
	root, modules := workspace(t)
	owner := map[string]string{} // package -> module
	var packages []listedPackage
	for _, module := range modules {
		for _, p := range list(t, filepath.Join(root, module), "./...") {
			owner[p.ImportPath] = module
			packages = append(packages, p)
		}
	}
	internals := 0
	for _, p := range packages {
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if !ours(imported) || !strings.Contains(imported+"/", "/internal/") {
				continue
			}
			internals++
			if owner[imported] != owner[p.ImportPath] {
				t.Errorf("%s of module %q imports %s of module %q", p.ImportPath, owner[p.ImportPath], imported,
					owner[imported])
			}
		}
	}
	if internals == 0 {
		t.Error("no import of an internal package was seen: the test looks at nothing")
	}
}

// checkRoom compares the imports of a package with those that its room allows.
func checkRoom(t *testing.T, p listedPackage) {
	t.Helper()
	name := strings.TrimPrefix(p.ImportPath, rootModule+"/")
	where, r, ok := roomOf(name)
	if !ok {
		t.Errorf("%s belongs to no room: say in rooms what it may import", p.ImportPath)
		return
	}
	for _, imported := range p.Imports {
		switch {
		case !strings.Contains(strings.Split(imported, "/")[0], "."): // standard library
		case ours(imported):
			rel := strings.TrimPrefix(imported, rootModule+"/")
			if !within(rel, where) && !slices.ContainsFunc(r.ours, func(a string) bool { return matches(a, rel) }) {
				t.Errorf("%s imports %s, its room allows %v", name, rel, r.ours)
			}
		case !slices.ContainsFunc(r.others, func(m string) bool { return within(imported, m) }):
			t.Errorf("%s imports %s, its room allows %v", name, imported, r.others)
		}
	}
}

// checkGoMod checks the modules that a released go.mod names, tests included.
func checkGoMod(t *testing.T, dir, module string) {
	t.Helper()
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(goTool(t, dir, "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	replaced := map[string]bool{}
	for _, r := range mod.Replace {
		replaced[r.Old.Path] = true
		target := filepath.Join(dir, r.New.Path)
		if !ours(r.Old.Path) || !strings.HasPrefix(r.New.Path, "../") {
			t.Errorf("go.mod of %s replaces %s by %s: only modules of this repository, by relative path", module,
				r.Old.Path, r.New.Path)
		} else if _, err := os.Stat(filepath.Join(target, "go.mod")); err != nil {
			t.Errorf("go.mod of %s: %v", module, err)
		}
	}
	for _, q := range mod.Require {
		switch {
		case ours(q.Path):
			if !replaced[q.Path] {
				t.Errorf("go.mod of %s requires %s without a replace by relative path", module, q.Path)
			}
		case module == ".":
			t.Errorf("the root module requires %s: it has the standard library alone", q.Path)
		case allowed(module, q.Path), slices.Contains(rooms[module].tests, q.Path):
		case !q.Indirect:
			t.Errorf("go.mod of %s requires %s itself", module, q.Path)
		case isHeavy(q.Path):
			t.Errorf("go.mod of %s names %s, which its users did not ask for", module, q.Path)
		}
	}
}

func roomOf(name string) (string, room, bool) {
	for where := name; ; {
		if r, ok := rooms[where]; ok {
			return where, r, true
		}
		i := strings.LastIndexByte(where, '/')
		if i < 0 {
			return "", room{}, false
		}
		where = where[:i]
	}
}

func ours(path string) bool { return within(path, rootModule) }

func within(path, parent string) bool { return path == parent || strings.HasPrefix(path, parent+"/") }

func matches(allow, name string) bool {
	if parent, ok := strings.CutSuffix(allow, "/..."); ok {
		return within(name, parent)
	}
	return allow == name
}

func allowed(module, path string) bool {
	r := rooms[module]
	return slices.Contains(r.others, path) || slices.ContainsFunc(r.brings,
		func(m string) bool { return within(path, m) })
}

func isHeavy(path string) bool {
	return slices.ContainsFunc(heavy, func(h string) bool { return within(path, h) })
}

func modulePath(module string) string {
	if module == "." {
		return rootModule
	}
	return rootModule + "/" + module
}

// workspace returns the folder of go.work and the folders of its modules, relative to it.
func workspace(t *testing.T) (root string, modules []string) {
	t.Helper()
	root = fixture.Root(t)
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(goTool(t, root, "work", "edit", "-json"), &work); err != nil {
		t.Fatal(err)
	}
	for _, u := range work.Use {
		modules = append(modules, filepath.ToSlash(filepath.Clean(u.DiskPath)))
	}
	return root, modules
}

// list runs go list in a module without the workspace, as for its users.
func list(t *testing.T, dir string, args ...string) []listedPackage {
	t.Helper()
	out := goTool(t, dir, append([]string{"list", "-json=ImportPath,Standard,Imports,TestImports,XTestImports,Module"},
		args...)...)
	var packages []listedPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

func goTool(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly")
	if args[0] != "work" {
		cmd.Env = append(cmd.Env, "GOWORK=off")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, stderr.Bytes())
	}
	return out
}
