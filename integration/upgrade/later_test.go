package upgrade_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// tryMigrate brings the tables of the outbox and of the inbox to a version of the code, in a process
// of its own. way is "pool" or "transactor".
func tryMigrate(t *testing.T, v version, db testdb.DB, way string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), v.process, "migrate", string(db.Dialect), db.DSN, way)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func migrate(t *testing.T, v version, db testdb.DB) {
	t.Helper()
	fixture.NoError(t, tryMigrate(t, v, db, "pool"))
}

// outbox runs the command line of the later version.
func outbox(t *testing.T, v version, db testdb.DB, args ...string) (out string, code int) {
	t.Helper()
	address := db.DSN
	if db.Dialect == core.SQLite {
		address = "sqlite:" + strings.TrimPrefix(db.DSN, "file:")
	}
	cmd := exec.CommandContext(t.Context(), v.cli, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+address)
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(text), exit.ExitCode()
	}
	fixture.NoError(t, err)
	return string(text), 0
}

// The command line of a version with later migrations looks at tables of the version before, says
// what is missing, upgrades them, and goes back.
func TestLaterMigrations(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	before, later := versions(t)
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		run := func(code int, args string, want ...string) (out string) {
			t.Helper()
			out, got := outbox(t, later, db, strings.Fields(args)...)
			if got != code {
				t.Errorf("outbox %s: exit code %d, want %d\n%s", args, got, code, out)
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					t.Errorf("outbox %s printed no %q:\n%s", args, w, out)
				}
			}
			return out
		}
		const differ, usage = 3, 2
		old := []string{
			"column outbox_event.note is missing", "table outbox_note is missing",
			"index outbox_event_note on outbox_event is missing", "`outbox migrate up` creates or upgrades the tables",
		}
		migrate(t, before, db)
		run(0, "version", "tables of version 3")
		run(differ, "migrate validate", old...)
		run(0, "migrate status", old[0])
		out := run(0, "migrate up --dry-run", "-- outbox 0002_note\n", "-- outbox 0003_index\n")
		if strings.Contains(out, "0001") {
			t.Errorf("what is applied would be applied again:\n%s", out)
		}
		run(differ, "migrate validate") // nothing has changed
		out = run(0, "migrate get --format goose --first 7 --above 1", "-- file: 00007_outbox_0002_note.sql",
			"-- file: 00008_outbox_0003_index.sql")
		if strings.Contains(out, "init") {
			t.Errorf("what is there is a file too:\n%s", out)
		}
		run(0, "migrate up", "applied outbox 0002_note\napplied outbox 0003_index\n")
		run(0, "migrate up", "the tables are up to date")
		run(0, "migrate validate")
		// The version before names what it lacks in the later tables.
		repo, err := sqloutbox.New(db.Open(t), sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		err = repo.Check(t.Context())
		if !errors.Is(err, core.ErrTablesDiffer) ||
			!strings.Contains(err.Error(), "index outbox_audit_row on outbox_audit is missing") {
			t.Errorf("Check of the version before: %v", err)
		}
		run(usage, "migrate down --to 4 --yes", "this program knows the versions 0 to 3")
		for _, args := range []string{"migrate down --to 1 --dry-run", "migrate get --down"} {
			out := run(0, args, "0003_index", "0002_note")
			if strings.Index(out, "0003_index") > strings.Index(out, "0002_note") {
				t.Errorf("outbox %s: the newest is not undone first:\n%s", args, out)
			}
		}
		run(0, "migrate down --to 1 --yes", "undone outbox 0003_index\nundone outbox 0002_note\n")
		fixture.NoError(t, repo.Check(t.Context()))
		run(differ, "migrate validate", old...)
		run(0, "migrate up --tables all", "applied outbox 0002_note\n", "applied inbox 0002_consumers\n")
		run(0, "migrate validate --tables all")
	})
}

// A process may die after any statement of an upgrade. Several others then migrate at once, with a
// pool or through a Transactor.
func TestLaterMigrationsInterrupted(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	before, later := versions(t)
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		migrate(t, before, db)
		fixture.MustExec(t, pool, "INSERT INTO inbox_handler (handler_id, consumer, handler) VALUES (7, 'a', 'b')")
		steps := map[string][]string{}
		for _, tables := range []string{"outbox", "inbox"} {
			steps[tables] = statements(t, later, db, tables)
		}
		for stop := range max(len(steps["outbox"]), len(steps["inbox"])) + 1 {
			for _, all := range steps {
				dieAfter(t, db, all[:min(stop, len(all))])
			}
			var wg sync.WaitGroup
			for _, way := range []string{"pool", "pool", "transactor"} {
				wg.Go(func() {
					if err := tryMigrate(t, later, db, way); err != nil {
						t.Errorf("after %d statements: %v", stop, err)
					}
				})
			}
			wg.Wait()
			if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM inbox_consumer WHERE consumer = 'a'"); n != 1 {
				t.Errorf("after %d statements: %d rows have been moved, want 1", stop, n)
			}
			for _, tables := range []string{"outbox", "inbox"} {
				out, code := outbox(t, later, db, "migrate", "down", "--to", "1", "--yes", "--tables", tables)
				if code != 0 {
					t.Fatalf("after %d statements: exit code %d\n%s", stop, code, out)
				}
			}
			migrate(t, before, db) // its Check finds its tables
		}
	})
}

// statements returns the statements of the migrations after the first.
func statements(t *testing.T, v version, db testdb.DB, tables string) (all []string) {
	t.Helper()
	out, code := outbox(t, v, db, "migrate", "get", "--above", "1", "--tables", tables, "--json")
	var list struct{ Files []struct{ Content string } }
	if err := json.Unmarshal([]byte(out), &list); err != nil || code != 0 || len(list.Files) == 0 {
		t.Fatalf("exit code %d, %v\n%s", code, err, out)
	}
	for _, f := range list.Files {
		all = append(all, slices.Collect(strings.SplitSeq(strings.TrimSuffix(f.Content, ";\n"), ";\n"))...)
	}
	return all
}

// dieAfter executes statements on a new connection that is closed afterwards, as after an
// interruption. SQLite and PostgreSQL migrate in a transaction, but other tools may not.
func dieAfter(t *testing.T, db testdb.DB, statements []string) {
	t.Helper()
	pool := sql.OpenDB(db.Connector(t))
	defer pool.Close()
	conn, err := pool.Conn(t.Context())
	fixture.NoError(t, err)
	defer conn.Close()
	for _, s := range statements {
		_, err := conn.ExecContext(t.Context(), s)
		fixture.NoError(t, err)
	}
}

// An upgrade does not stop the producers for long. It waits only briefly for a transaction that
// uses the table, and then tries again.
func TestUpgradeBehindALongTransaction(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	before, later := versions(t)
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		migrate(t, before, db)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		ob, err := core.New(core.Config{Repository: repo})
		fixture.NoError(t, err)
		long, err := pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		defer func() { _ = long.Rollback() }()
		_, err = long.ExecContext(t.Context(), "SELECT count(*) FROM outbox_event")
		fixture.NoError(t, err)

		ended := make(chan error, 1)
		go func() { ended <- tryMigrate(t, later, db, "pool") }()
		waiting := "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'outbox_event'::regclass"
		fixture.Await(t, "the upgrade waits", func() bool { return fixture.Count(t, pool, waiting) > 0 })
		// before the long transaction has ended
		fixture.NoError(t, sqltx.NewTransactor(pool, db.Dialect).RunInTx(t.Context(),
			func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "paid", Topic: "orders"})
				return err
			}))
		fixture.NoError(t, long.Commit())
		fixture.NoError(t, <-ended)
	})
}
