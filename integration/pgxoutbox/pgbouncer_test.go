package pgxoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// poolerModes are the query modes of pgx whose statements need nothing that an earlier one left on
// the connection.
var poolerModes = slices.DeleteFunc(slices.Clone(modes), func(p protocol) bool {
	return p.mode == pgx.QueryExecModeCacheStatement || p.mode == pgx.QueryExecModeDescribeExec
})

// The adapter suite through PgBouncer in transaction mode: with events that wait for COMMIT, and
// without -short over native pgx.
func TestAdapterSuitePgBouncer(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	db := testdb.PgBouncer(t)
	for name, h := range map[string]suite.AdapterHarness{
		"deferred": adapters.PgxHarness(db, pgxoutbox.Config{}, adapters.PgxORMs["sql"]),
		"native": adapters.Harness(db, func(t *testing.T, db testdb.DB, cfg core.Config) suite.Adapter {
			return adapters.PGX(t, db, pgx.QueryExecModeExec, cfg)
		}),
	} {
		h.Defers = true
		if testing.Short() {
			if name == "native" {
				continue
			}
			h.Programs = 10
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite.TestAdapter(t, h)
		})
	}
}

// A connection to PgBouncer is cut at many places of the flight and of its answer. Each run of the
// test cuts at other places. The reported outcome must be true. TestPgxFlightIsCutAtEachByte cuts
// the same bytes on their way to PostgreSQL.
func TestPgBouncerFlightIsCut(t *testing.T) {
	t.Parallel()
	for _, p := range poolerModes {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlightsOn(t, testdb.PgBouncer(t), p)
			wrote, got := f.one(true, -1, -1)
			fixture.Must(t, wrote != 0 && got != 0, "the flight has %d bytes, and its answer %d", wrote, got)
			step := 3
			if testing.Short() {
				step = 23
			}
			for n := rand.IntN(step); n < wrote; n += step {
				f.one(true, n, -1)
			}
			for n := rand.IntN(step); n < got; n += step {
				f.one(true, -1, n)
			}
		})
	}
}

// The context ends while the flight waits for a lock. PgBouncer passes the cancel request on, and
// the answer says that nothing is committed.
func TestPgBouncerFlightIsCancelled(t *testing.T) {
	t.Parallel()
	for _, p := range poolerModes {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlightsOn(t, testdb.PgBouncer(t), p)
			pool, _ := f.open(pgxoutbox.Config{CancelGrace: time.Minute})
			defer pool.Close()
			release := f.locked("k")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				f.awaitLock()
				cancel()
			}()
			id, heard, err := f.commit(ctx, pool, "k", true, func() {})
			release()
			pgErr, known := errors.AsType[*pgconn.PgError](err)
			if !errors.Is(err, context.Canceled) || !known || pgErr.Code != "57014" || heard != core.RolledBack {
				t.Errorf("Commit: %v, heard %s, want the answer of the server", err, heard)
			}
			fixture.Check(t, !f.stored(id), "the event of a cancelled commit is there")
			for n := range 3 { // the connections behind PgBouncer go on
				id, _, err := f.commit(t.Context(), pool, fmt.Sprint("k", n), true, func() {})
				fixture.Check(t, err == nil && f.stored(id), "the next transaction: %v", err)
			}
		})
	}
}
