package docs

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// packages has the packages that a block may use without an import, by the name in the block.
var packages = func() map[string]string {
	byName := map[string]string{
		"pgdialect": "github.com/uptrace/bun/dialect/pgdialect", "redis": "github.com/redis/go-redis/v9",
		"pgx":         "github.com/jackc/pgx/v5",
		"amqp":        "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp",
		"amqp091":     "github.com/rabbitmq/amqp091-go",
		"kafka":       "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka",
		"wmnats":      "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats",
		"franzscram":  "github.com/twmb/franz-go/pkg/sasl/scram",
		"nats":        "github.com/nats-io/nats.go",
		"wmsql":       "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql",
		"redisstream": "github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream",
		"echo":        "github.com/labstack/echo/v4",
		"googlecloud": "github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud",
		"pubsub":      "cloud.google.com/go/pubsub/v2",
		"awssqs":      "github.com/aws/aws-sdk-go-v2/service/sqs",
		"awshttp":     "github.com/aws/aws-sdk-go-v2/aws/transport/http",
		"smithy":      "github.com/aws/smithy-go",
		"types":       "github.com/aws/aws-sdk-go-v2/service/sqs/types",
		"ent":         "github.com/ormoutbox/ormoutbox/integration/internal/entclient",
		"trm":         "github.com/avito-tech/go-transaction-manager/trm/v2",
	}
	for _, path := range []string{
		"cmp", "context", "database/sql", "database/sql/driver", "encoding/json", "errors", "fmt", "io", "log",
		"log/slog", "net/http", "net/netip", "os", "os/signal", "strings", "syscall", "testing", "time",
		"entgo.io/ent/dialect", "entgo.io/ent/dialect/sql/schema",
		"crypto/tls", "github.com/twmb/franz-go/pkg/kgo",
		"github.com/IBM/sarama", "github.com/uptrace/bun", "github.com/uptrace/bun/driver/pgdriver", "gorm.io/gorm",
		"gorm.io/gorm/clause", "github.com/prometheus/client_golang/prometheus",
		"github.com/prometheus/client_golang/prometheus/promhttp", "go.opentelemetry.io/otel",
		"go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/trace",
		"github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill/message",
		"github.com/ThreeDotsLabs/watermill/components/cqrs", "github.com/gin-gonic/gin",
		"github.com/ThreeDotsLabs/watermill/message/router/middleware",
		"github.com/ThreeDotsLabs/watermill/pubsub/gochannel",
		"crypto/sha256", "encoding/hex", "regexp", "google.golang.org/api/option", "google.golang.org/grpc/codes",
		"google.golang.org/grpc/status", "github.com/ThreeDotsLabs/watermill-aws/sns",
		"github.com/ThreeDotsLabs/watermill-aws/sqs", "github.com/aws/aws-sdk-go-v2/aws",
		"entgo.io/contrib/entgql", "github.com/jackc/pgx/v5/pgxpool", "github.com/jackc/pgx/v5/stdlib",
	} {
		byName[filepath.Base(path)] = path
	}
	for _, path := range []string{
		"core", "core/adapter", "core/cloudevents", "core/contract", "core/health", "core/metrics", "core/once",
		"core/once/command", "core/once/httpkey", "core/once/sqlonce",
		"core/once/command/sqlcommand", "core/inbox/sqlinbox", "core/inbox/inboxtest", "core/outboxtest",
		"core/outboxtest/suite", "core/ops", "core/ops/sqlops", "core/relay", "core/sqloutbox", "core/sqltx",
		"gormoutbox", "entoutbox", "entoutbox/entschema", "bunoutbox", "contractoutbox", "inbox", "inbox/redisonce",
		"oteloutbox", "outboxui", "pgxoutbox", "pgxoutbox/walrelay", "promoutbox",
		"watermillbridge", "watermillbridge/amqpbridge", "watermillbridge/bridgetest",
		"watermillbridge/franzbridge", "watermillbridge/httpbridge", "watermillbridge/kafkabridge",
		"watermillbridge/natsbridge", "watermillbridge/redisbridge",
	} {
		byName[filepath.Base(path)] = "github.com/ormoutbox/ormoutbox/" + path
	}
	byName["coreinbox"] = "github.com/ormoutbox/ormoutbox/core/inbox" // blocks import it
	return byName
}()

// Every Go block compiles: whole programs as they are, declarations at the top of a package,
// statements in a function. Names that a page uses and does not declare ("db", "Order") are
// declared in testdata, in a file with the page's name.
func TestGoBlocksCompile(t *testing.T) {
	t.Parallel()
	fset, exports := token.NewFileSet(), exportData(t)
	// All pages share one importer, which reads each package once.
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		file, ok := exports[path]
		if !ok {
			return nil, fmt.Errorf("%s is not known here: add it to packages", path)
		}
		return os.Open(file)
	})
	blocks := 0
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			found := goBlocks(t, page)
			blocks += len(found)
			check(t, page, found, fset, imports)
		})
	}
	if blocks == 0 {
		t.Fatal("no block was found")
	}
	t.Logf("%d Go blocks", blocks)
}

func pages(t *testing.T) (pages []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" ||
			d.Name() == "site") {
			return fs.SkipDir
		}
		if page, _ := filepath.Rel(root, path); strings.HasSuffix(page, ".md") &&
			(filepath.Base(page) == "README.md" || strings.HasPrefix(page, "docs/")) {
			pages = append(pages, page)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

type block struct {
	line int // number of its first line of code
	code string
}

func goBlocks(t *testing.T, page string) (blocks []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	open, start, code := false, 0, ""
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		switch fence := strings.TrimSpace(line); {
		case !open && fence == "```go":
			open, start, code = true, n+1, ""
		case open && fence == "```":
			open = false
			blocks = append(blocks, block{start, code})
		case open:
			code += line
		}
	}
	return blocks
}

// check type-checks the blocks of a page. A name that is declared and not used is no mistake here.
func check(t *testing.T, page string, blocks []block, fset *token.FileSet, imports types.Importer) {
	t.Helper()
	report := func(err error) {
		if text := err.Error(); !strings.Contains(text, "declared and not used") &&
			!strings.Contains(text, "imported and not used") &&
			!strings.Contains(text, "missing return") {
			t.Error(text)
		}
	}
	world := []*ast.File{}
	declared := map[string]bool{}
	add := func(file *ast.File) {
		world = append(world, file)
		for name := range file.Scope.Objects { // the parser resolves within one file, which is enough
			declared[name] = true
		}
	}
	name := strings.NewReplacer("/", "_", ".md", "").Replace(page)
	if given := filepath.Join("testdata", name+".go"); exists(given) {
		file, err := parser.ParseFile(fset, given, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		add(file)
	}
	type source struct{ head, code, tail string }
	var statements []source
	for _, b := range blocks {
		line := fmt.Sprintf("//line %s:%d\n", page, b.line)
		if strings.HasPrefix(strings.TrimSpace(b.code), "package ") {
			file, err := parser.ParseFile(fset, "", line+b.code, 0)
			if err != nil {
				t.Error(err)
				continue
			}
			conf := types.Config{Importer: imports, Error: report}
			conf.Check(page, fset, []*ast.File{file}, nil) // conf reports the errors
			continue
		}
		if file, err := parser.ParseFile(fset, "", "package page\n"+line+b.code, 0); err == nil {
			file = withImports(t, fset, file, "package page", line+b.code, declared)
			add(file)
			continue
		}
		statements = append(statements, source{
			"package page", "func _() error {\n{\n" + line + b.code,
			"\n}\nreturn nil\n}\n",
		})
	}
	for _, s := range statements {
		file, err := parser.ParseFile(fset, "", s.head+"\n"+s.code+s.tail, 0)
		if err != nil {
			t.Error(err)
			continue
		}
		world = append(world, withImports(t, fset, file, s.head, s.code+s.tail, declared))
	}
	conf := types.Config{Importer: imports, Error: report}
	conf.Check("page", fset, world, nil) // conf reports the errors
}

// withImports parses code again below the imports of the packages that it names.
func withImports(t *testing.T, fset *token.FileSet, file *ast.File, head, code string,
	declared map[string]bool,
) *ast.File {
	t.Helper()
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && packages[x.Name] != "" && !declared[x.Name] {
				used[x.Name] = true
			}
		}
		return true
	})
	for _, name := range slices.Sorted(maps.Keys(used)) {
		head += fmt.Sprintf("\nimport %s %q", name, packages[name])
	}
	again, err := parser.ParseFile(fset, "", head+"\n"+code, 0)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// exportData builds the packages that blocks may import, and returns the compiler's export file of
// each.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	args := append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"},
		slices.Sorted(maps.Values(packages))...)
	args = append(args, "gorm.io/driver/sqlite", "modernc.org/sqlite", "github.com/jackc/pgx/v5/stdlib",
		"github.com/nats-io/nats.go/jetstream")
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[path] = file
	}
	return exports
}
