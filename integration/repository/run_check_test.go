package repository_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// watchedLog calls found when it contains the text.
type watchedLog struct {
	bytes.Buffer
	text  string
	found func()
}

func (w *watchedLog) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	if w.text != "" && bytes.Contains(w.Bytes(), []byte(w.text)) {
		w.found()
	}
	return n, err
}

// runUntil runs a relay until it has logged the text, ctx ends, or it returns by itself, and
// returns what it logged.
func runUntil(ctx context.Context, t *testing.T, repo core.Repository, text string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := watchedLog{text: text, found: cancel}
	ob, err := core.New(core.Config{
		Repository: repo, Publisher: &outboxtest.Publisher{}, Relay: relay.Config{},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	fixture.NoError(t, err)
	err = ob.Run(ctx)
	return log.String(), err
}

// A relay on a database without its tables returns an error that says so.
func TestRunWithoutTables(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log, err := runUntil(ctx, t, repo, "")
		if !errors.Is(err, core.ErrNoTables) ||
			!strings.Contains(err.Error(), "table outbox_event is missing") {
			t.Errorf("Run: %v", err)
		}
		fixture.Check(t, strings.Contains(log, "level=ERROR") && strings.Contains(log, "table outbox_event is missing"),
			"logged %s", log)

		if err := repo.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		fixture.MustExec(t, pool, "ALTER TABLE outbox_event DROP COLUMN replay_of")
		if log, err = runUntil(ctx, t, repo, ""); !errors.Is(err, core.ErrNoTables) ||
			!strings.Contains(log, "column outbox_event.replay_of is missing") {
			t.Errorf("without a column: %v, logged %s", err, log)
		}
		fixture.MustExec(t, pool, "DROP TABLE outbox_group")
		if _, err := runUntil(ctx, t, repo, ""); !errors.Is(err, core.ErrNoTables) ||
			!strings.Contains(err.Error(), "table outbox_group is missing") {
			t.Errorf("without a table that only operators use: %v", err)
		}
	})
}

// The log names a missing index, and the relay works.
func TestRunWithoutAnIndex(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		drop := "DROP INDEX outbox_audit_row"
		if db.Dialect == core.MySQL {
			drop += " ON outbox_audit"
		}
		if _, err := pool.ExecContext(t.Context(), drop); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		log, err := runUntil(ctx, t, repo, "outbox_audit_row")
		if err != nil || !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "outbox_audit_row") {
			t.Errorf("Run: %v, logged %s", err, log)
		}
	})
}

// A relay that starts before its database waits for it.
func TestRunBeforeTheDatabase(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	gone := db
	gone.DSN = "postgres://nobody@127.0.0.1:1/none?sslmode=disable&connect_timeout=1"
	pool := sql.OpenDB(gone.Connector(t))
	t.Cleanup(func() { _ = pool.Close() })
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.Postgres})
	fixture.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	log, err := runUntil(ctx, t, repo, "the relay waits for the database")
	if err != nil || !strings.Contains(log, "level=WARN") ||
		!strings.Contains(log, "the relay waits for the database") {
		t.Errorf("Run: %v, logged %s", err, log)
	}
}

// A process is ready only if its tables exist.
func TestHealth(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		ob, err := core.New(core.Config{Repository: repo})
		fixture.NoError(t, err)
		h := ob.Health(t.Context())
		if problems := strings.Join(h.Problems, "\n"); !h.Live || h.Ready ||
			!strings.Contains(problems, "outbox_event") ||
			!strings.Contains(problems, "upgrade the tables with \"outbox migrate up\"") {
			t.Errorf("without tables: %+v", h)
		}
		fixture.NoError(t, repo.Migrate(t.Context()))
		fixture.Await(t, "the process is ready once its last answer is too old", func() bool {
			h := ob.Health(t.Context())
			return h.Live && h.Ready && !h.Degraded() && len(h.Problems) == 0
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if other, err := core.New(core.Config{Repository: repo}); err != nil || other.Health(ctx).Ready {
			t.Errorf("ready although the database was not asked: %v", err)
		}
		fixture.NoError(t, pool.Close())
		if other, err := core.New(core.Config{Repository: repo}); err != nil || other.Health(t.Context()).Ready {
			t.Errorf("ready without a database: %v", err)
		}
	})
}
