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
		Repository: repo, Publisher: &outboxtest.Publisher{},
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
		if !errors.Is(err, core.ErrNoTables) || !errors.Is(err, sqloutbox.ErrDrift) ||
			!strings.Contains(err.Error(), "table outbox_event is missing") {
			t.Errorf("Run: %v", err)
		}
		if !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "table outbox_event is missing") {
			t.Errorf("logged %s", log)
		}

		fixture.NoError(t, repo.Migrate(t.Context()))
		column := "ALTER TABLE outbox_event DROP COLUMN replay_of"
		if _, err := pool.ExecContext(t.Context(), column); err != nil {
			t.Fatal(err)
		}
		if log, err = runUntil(ctx, t, repo, ""); !errors.Is(err, core.ErrNoTables) ||
			!strings.Contains(log, "column outbox_event.replay_of is missing") {
			t.Errorf("without a column: %v, logged %s", err, log)
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

// A relay works without the tables that only operators use: those of relays, pauses, plans and
// groups. It logs once which migration to run. After the migration the relay is listed.
func TestRunWithoutTheTableOfRelays(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		all, err := sqloutbox.Migrations(sqloutbox.Config{Dialect: db.Dialect})
		fixture.NoError(t, err)
		// The columns of version 4 stay: relays need them.
		down := []string{"DELETE FROM outbox_migration WHERE version > 2", "DROP TABLE outbox_group"}
		for _, s := range append(down, fixture.Statements(all[2].Down)...) {
			if _, err := pool.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if err := repo.Check(t.Context()); !errors.Is(err, core.ErrTablesDiffer) || errors.Is(err, core.ErrNoTables) {
			t.Errorf("Check: %v", err)
		}
		commitRows(t, pool, repo, core.InsertRequest{
			Rows: []core.NewRow{sqlRow(t, "orders", "k")},
		})

		var log bytes.Buffer
		pub := &outboxtest.Publisher{}
		ob, err := core.New(core.Config{
			Repository: repo, Publisher: pub,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		fixture.NoError(t, err)
		stop := fixture.RunRelay(t, ob)
		pub.Wait(t, 1)
		if _, err := ob.Relays(t.Context()); !errors.Is(err, core.ErrNoTables) {
			t.Errorf("Relays: %v", err)
		}
		if _, err := ob.Pauses(t.Context()); !errors.Is(err, core.ErrNoTables) {
			t.Errorf("Pauses: %v", err)
		}
		if _, err := ob.Rates(t.Context()); !errors.Is(err, core.ErrNoTables) {
			t.Errorf("Rates: %v", err)
		}
		who := core.PauseRequest{All: true, Actor: "ann", Reason: "test"}
		if err := ob.Pause(t.Context(), who); !errors.Is(err, core.ErrNoTables) {
			t.Errorf("Pause: %v", err)
		}
		stop()
		if text := log.String(); strings.Count(text, "outbox_relay") != 1 || strings.Count(text, "level=") != 1 ||
			!strings.Contains(text, "level=ERROR") || !strings.Contains(text, "upgrade the tables with AutoCreate") {
			t.Errorf("logged %s", text)
		}

		fixture.NoError(t, repo.Migrate(t.Context()))
		stop = fixture.RunRelay(t, ob)
		fixture.Await(t, "the relay is in the table", func() bool {
			relays, err := ob.Relays(t.Context())
			fixture.NoError(t, err)
			return len(relays) > 0
		})
		stop()
		if relays, err := ob.Relays(t.Context()); err != nil || len(relays) > 0 {
			t.Errorf("after the end: %+v, %v", relays, err)
		}
	})
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
			!strings.Contains(problems, "upgrade the tables with AutoCreate") {
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
