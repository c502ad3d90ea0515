package repository_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// A driver prepares statements, and PostgreSQL keeps the plan of a prepared one until the table is
// analyzed. A relay that began on an empty table must not read all of it once it has grown, however
// late autovacuum is.
func TestPlansOfTableThatGrew(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		for _, analyzed := range []bool{false, true} {
			t.Run(fmt.Sprintf("analyzed while empty: %t", analyzed), func(t *testing.T) {
				db := db.Another(t)
				pool := db.Open(t)
				pool.SetMaxOpenConns(1) // so that each statement is prepared once
				repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: db.Dialect})
				for _, table := range []string{"outbox_event", "outbox_key"} {
					fixture.MustExec(t, pool, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
					if analyzed {
						fixture.MustExec(t, pool, "ANALYZE "+table)
					}
				}
				calls := relayCalls(repo)
				for range 8 { // after five executions PostgreSQL may keep a plan
					for _, c := range calls {
						fixture.NoError(t, c.run(t.Context()))
					}
				}
				grow(t, pool)
				for _, c := range calls {
					before := tableReads(t, pool)
					fixture.NoError(t, c.run(t.Context()))
					now := tableReads(t, pool)
					if n := now.whole - before.whole; n > 0 {
						t.Errorf("%s read %d rows without an index", c.name, n)
					}
					// A cleanup reads the whole table, page by page.
					if n := now.index - before.index; n > mostRead && c.name != "Cleanup" {
						t.Errorf("%s read %d entries of indexes", c.name, n)
					}
				}
			})
		}
	})
}

type relayCall struct {
	name string
	run  func(ctx context.Context) error
}

// relayCalls returns the calls that a relay makes all the time.
func relayCalls(repo *sqloutbox.Repository) []relayCall {
	req := core.ClaimRequest{
		Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: 15 * time.Minute, Limit: 100, MaxBytes: 1 << 20, Run: 10,
		Keys: 1000,
	}
	ids := make([]core.RowID, 20)
	for i := range ids {
		_, _ = rand.Read(ids[i][:])
	}
	refs, done := make([]core.ClaimRef, len(ids)), make([]core.Done, len(ids))
	failures, receipts := make([]core.Failure, len(ids)), make([]core.Done, len(ids))
	for i, id := range ids {
		refs[i], done[i] = core.ClaimRef{ID: id, ClaimNo: 1}, core.Done{ID: id}
		receipts[i] = core.Done{ID: id, Receipt: "r"}
		failures[i] = core.Failure{ClaimRef: refs[i], Kind: core.FailRetry}
	}
	return []relayCall{
		{"ClaimUnordered", func(ctx context.Context) error {
			_, err := repo.ClaimUnordered(ctx, req)
			return err
		}},
		{"ClaimHeads", func(ctx context.Context) error {
			_, _, err := repo.ClaimHeads(ctx, req, core.KeyID{})
			return err
		}},
		{"ClaimKey", func(ctx context.Context) error {
			_, err := repo.ClaimKey(ctx, req, core.NewKeyID("", "a", "k7"))
			return err
		}},
		{"NextDue", func(ctx context.Context) error {
			_, _, err := repo.NextDue(ctx, req)
			return err
		}},
		{"MarkDone", func(ctx context.Context) error {
			_, err := repo.MarkDone(ctx, done, false)
			return err
		}},
		{"MarkDone of one", func(ctx context.Context) error {
			_, err := repo.MarkDone(ctx, done[:1], false)
			return err
		}},
		{"MarkDone with receipts", func(ctx context.Context) error {
			_, err := repo.MarkDone(ctx, receipts, false)
			return err
		}},
		{"MarkDone that deletes", func(ctx context.Context) error {
			_, err := repo.MarkDone(ctx, done, true)
			return err
		}},
		{"MarkFailed", func(ctx context.Context) error {
			_, err := repo.MarkFailed(ctx, "n", failures)
			return err
		}},
		{"BeginSuspect", func(ctx context.Context) error {
			_, err := repo.BeginSuspect(ctx, "n", 0, refs)
			return err
		}},
		{"Renew", func(ctx context.Context) error {
			_, err := repo.Renew(ctx, "n", time.Minute, refs)
			return err
		}},
		{"Release", func(ctx context.Context) error {
			_, err := repo.Release(ctx, "n", refs)
			return err
		}},
		{"Backlog", func(ctx context.Context) error {
			_, err := repo.Backlog(ctx, 1000)
			return err
		}},
		{"ListDead", func(ctx context.Context) error {
			_, err := repo.ListDead(ctx, core.DeadQuery{})
			return err
		}},
		{"Cleanup", func(ctx context.Context) error {
			_, _, err := repo.Cleanup(ctx, cleanupOf(time.Hour, 1000))
			return err
		}},
		{"CollectKeys", func(ctx context.Context) error {
			_, _, err := repo.CollectKeys(ctx, 0, core.KeyID{}, 100)
			return err
		}},
	}
}

// grow fills the tables with 30,000 open rows without a key, 30,000 open rows of 3,000 keys, and
// 30,000 finished rows.
func grow(t *testing.T, pool *sql.DB) {
	t.Helper()
	fixture.MustExec(t, pool, `INSERT INTO outbox_event (id, event_id, event_type, topic, payload, status,
			available_at, occurred_at, created_at, lane, key_seq)
		SELECT gen_random_uuid(), 'x', 't', 'a', 'p', CASE WHEN n % 3 = 0 THEN 1 ELSE 0 END, now(), now(), now(),
			CASE WHEN n % 3 = 1 THEN decode(md5((n / 30)::text), 'hex') END, CASE WHEN n % 3 = 1 THEN n END
		FROM generate_series(1, 90000) n`)
	fixture.MustExec(t, pool, `INSERT INTO outbox_key (lane, last_seq, first_seq, used_at)
		SELECT decode(md5(n::text), 'hex'), 1, 1, now() FROM generate_series(0, 30000) n`)
}

// reads counts what the database has read of the tables so far.
type reads struct{ whole, index int64 }

func tableReads(t *testing.T, pool *sql.DB) (r reads) {
	t.Helper()
	conn, err := pool.Conn(t.Context())
	fixture.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "SELECT pg_stat_force_next_flush()")
	fixture.NoError(t, err)
	fixture.NoError(t, conn.QueryRowContext(t.Context(), "SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables), "+
		"(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes)").Scan(&r.whole, &r.index))
	return r
}
