package cli

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

var update = flag.Bool("update", false, "write the expected outputs and docs/cli.md")

// world is an empty database, and a person at a command line.
type world struct {
	*testing.T
	address string // DATABASE_URL
	dialect core.Dialect
	env     map[string]string
	colors  bool
	now     func() time.Time
	shared  *sql.DB // what open returns; nil: a pool of its own each time
}

// result is the answer of a command.
type result struct {
	out, err string
	code     int
}

// each runs fn with a database of its own on each of the databases, at the same time. With -short
// MariaDB is left to `make test-all`.
func each(t *testing.T, fn func(w *world)) {
	t.Helper()
	for name, open := range map[string]func(*testing.T) (string, core.Dialect){
		"postgres": newPostgres, "mariadb": newMariaDB, "sqlite": newSQLite,
	} {
		if name == "mariadb" && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(newWorld(t, open))
		})
	}
}

// servers runs fn with a database of its own, with the tables of an outbox, on each server that has
// roles. With -short there is one of each kind. scripts/test starts the servers whose variables it
// finds in the code.
func servers(t *testing.T, fn func(w *world)) {
	t.Helper()
	t.Parallel()
	for _, variable := range []string{
		"OUTBOX_TEST_POSTGRES", "OUTBOX_TEST_POSTGRES18", "OUTBOX_TEST_MARIADB", "OUTBOX_TEST_MYSQL",
	} {
		if testing.Short() && (variable == "OUTBOX_TEST_POSTGRES18" || variable == "OUTBOX_TEST_MYSQL") {
			continue
		}
		t.Run(strings.TrimPrefix(variable, "OUTBOX_TEST_"), func(t *testing.T) {
			t.Parallel()
			of := newMySQLOf
			if strings.Contains(variable, "POSTGRES") {
				of = newPostgresOf
			}
			w := newWorld(t, func(t *testing.T) (string, core.Dialect) {
				t.Helper()
				return of(t, variable)
			})
			w.ok("migrate", "up")
			fn(w)
		})
	}
}

// migrated runs fn as each does, with the tables of an outbox, beside other tests.
func migrated(t *testing.T, fn func(w *world)) {
	t.Helper()
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		fn(w)
	})
}

// newWorld is a person with a database that open makes.
func newWorld(t *testing.T, open func(*testing.T) (string, core.Dialect)) *world {
	t.Helper()
	address, dialect := open(t)
	return &world{T: t, address: address, dialect: dialect, env: map[string]string{}}
}

// run executes a command without a terminal.
func (w *world) run(args ...string) result { return w.execute(false, strings.NewReader(""), args) }

// answer executes a command at a terminal, where a person types text.
func (w *world) answer(text string, args ...string) result {
	return w.execute(true, strings.NewReader(text), args)
}

// answerAfter is answer of a person who types "y" after something has happened.
func (w *world) answerAfter(happens func(), args ...string) result {
	return w.execute(true, readerFunc(func(b []byte) (int, error) {
		happens()
		return copy(b, "y\n"), io.EOF
	}), args)
}

type readerFunc func(b []byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

func (w *world) execute(terminal bool, in io.Reader, args []string) result {
	w.Helper()
	var out, err strings.Builder
	code := Run(context.Background(), args, Environment{
		In: in, Out: &out, Err: &err, Terminal: terminal, Now: w.now, Colors: w.colors,
		Getenv: func(name string) string {
			if name == "DATABASE_URL" {
				return w.address
			}
			return w.env[name]
		},
	})
	return result{out: out.String(), err: err.String(), code: code}
}

// ok executes a command that must succeed, and returns its output.
func (w *world) ok(args ...string) string {
	w.Helper()
	r := w.run(args...)
	if r.code != ExitOK {
		w.Fatalf("outbox %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// json executes a command with --json, and reads its output into v. It returns the exit code.
func (w *world) json(v any, args ...string) int {
	w.Helper()
	r := w.run(append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.out), v); err != nil {
		w.Fatalf("outbox %s --json: %v\n%s%s", strings.Join(args, " "), err, r.out, r.err)
	}
	return r.code
}

// list executes a command with --json, and reads what it lists into v. It returns the exit code.
func (w *world) list(v any, field string, args ...string) int {
	w.Helper()
	var object map[string]json.RawMessage
	code := w.json(&object, args...)
	if err := json.Unmarshal(object[field], v); err != nil {
		w.Fatalf("outbox %s --json: field %s: %v\n%s", strings.Join(args, " "), field, err, object)
	}
	return code
}

// require checks a result: its exit code, and parts of what it printed.
func (w *world) require(r result, code int, parts ...string) {
	w.Helper()
	if r.code != code {
		w.Errorf("exit code %d, want %d\n%s%s", r.code, code, r.out, r.err)
	}
	for _, p := range parts {
		if !strings.Contains(r.err+r.out, p) {
			w.Errorf("the output does not have %q:\n%s%s", p, r.out, r.err)
		}
	}
}

// open opens the database.
func (w *world) open() *sql.DB {
	w.Helper()
	if w.shared != nil {
		return w.shared
	}
	db, err := connect(w.address)
	must(w, err)
	w.Cleanup(func() { _ = db.Close() })
	return db.DB
}

// publish inserts events as a service without a relay does.
func (w *world) publish(events ...core.Event) {
	w.Helper()
	db := w.open()
	repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: w.dialect})
	must(w, err)
	ob, err := core.New(core.Config{Repository: repo})
	must(w, err)
	err = sqltx.NewTransactor(db, w.dialect).RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, events...)
		return err
	})
	must(w, err)
}

// changing has patterns for parts of outputs that differ each time, and texts of the same widths in
// their place. So the layout of tables stays.
var changing = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`), "2026-01-02 03:04:05Z"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "2026-01-02T03:04:05Z"},
	{
		regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`),
		"01234567-89ab-7cde-8f01-23456789abcd",
	},
}

// golden compares an output with the expected one. It is the same on every database.
func (w *world) golden(name, got string) {
	w.Helper()
	for _, c := range changing {
		got = c.pattern.ReplaceAllString(got, c.text)
	}
	path := filepath.Join("testdata", name)
	if *update && w.dialect == core.SQLite {
		must(w, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must(w, err)
	if got != string(want) {
		w.Errorf("the output is not testdata/%s (go test ./internal/cli -update):\n%s\nwant:\n%s", name, got, want)
	}
}

func server(t *testing.T, variable string) string {
	t.Helper()
	v := os.Getenv(variable)
	if v == "" {
		t.Fatalf("%s is not set: start the servers with `make services-up` and run the tests with `make test`, or "+
			"`eval \"$(scripts/services env)\"` first", variable)
	}
	return v
}

func unique() string {
	var b [6]byte
	_, _ = rand.Read(b[:])
	return "outbox_" + hex.EncodeToString(b[:])
}

func newPostgres(t *testing.T) (string, core.Dialect) {
	t.Helper()
	return newPostgresOf(t, "OUTBOX_TEST_POSTGRES")
}

func newPostgresOf(t *testing.T, variable string) (string, core.Dialect) {
	t.Helper()
	admin, name := server(t, variable), unique()
	once(t, "pgx", admin, "CREATE DATABASE "+name+" STRATEGY file_copy")
	t.Cleanup(func() { once(t, "pgx", admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u, err := url.Parse(admin)
	must(t, err)
	u.Path = "/" + name
	return u.String(), core.Postgres
}

func newMariaDB(t *testing.T) (string, core.Dialect) {
	t.Helper()
	return newMySQLOf(t, "OUTBOX_TEST_MARIADB")
}

func newMySQLOf(t *testing.T, variable string) (string, core.Dialect) {
	t.Helper()
	admin, name := server(t, variable), unique()
	once(t, "mysql", admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { once(t, "mysql", admin, "DROP DATABASE IF EXISTS "+name) })
	cfg, err := mysql.ParseDSN(admin)
	must(t, err)
	u := url.URL{Scheme: "mariadb", Host: cfg.Addr, Path: "/" + name, User: url.UserPassword(cfg.User, cfg.Passwd)}
	return u.String(), core.MySQL
}

func newSQLite(t *testing.T) (string, core.Dialect) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox.db")
	path = strings.NewReplacer("%", "%25", "#", "%23", "?", "%3F").Replace(path)
	return "sqlite:" + path + "?_pragma=journal_mode(WAL)", core.SQLite
}

// once runs a statement on a server.
func once(t *testing.T, driver, address, query string) {
	t.Helper()
	db, err := sql.Open(driver, address)
	must(t, err)
	defer db.Close()
	if _, err := db.ExecContext(context.Background(), query); err != nil {
		t.Fatalf("%s: %v (start the servers with `make services-up`)", query, err)
	}
}

// until waits until cond holds. A test that waits in vain ends when the time of the test run does.
func (w *world) until(pause time.Duration, cond func() bool) {
	for !cond() {
		<-time.After(pause)
	}
}

// exec executes a statement.
func (w *world) exec(query string, args ...any) {
	w.Helper()
	if _, err := w.open().ExecContext(w.Context(), query, args...); err != nil {
		w.Fatalf("%s: %v", query, err)
	}
}

// must ends the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError fails the test if err is not nil, and goes on. Goroutines of a test may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// equal fails the test unless got is want. The rest says of what.
func equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// errOf returns the error of a call whose result does not matter.
func errOf[T any](_ T, err error) error { return err }

// await waits until a condition holds.
func (w *world) await(what string, holds func() bool) {
	w.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within a minute: %s", what)
		}
	}
}
