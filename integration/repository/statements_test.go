package repository_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// PostgreSQL behind a pooler is used without prepared statements, and lib/pq sends all values as
// text. So no statement may depend on a driver that knows the types.
func TestRepositorySuitePostgresModes(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for _, mode := range []string{"simple_protocol", "exec", "describe_exec"} {
		t.Run(mode, func(t *testing.T) {
			db := testdb.Postgres(t)
			db.DSN += "&default_query_exec_mode=" + mode
			db.Wrap = sqlpause.Connector
			pool := db.Open(t)
			var cases atomic.Int64
			suite.TestRepository(t, suite.RepositoryHarness{
				New: func(t *testing.T) suite.Backend {
					return fixture.SuiteBackend(t, pool, sqloutbox.Config{
						Dialect: core.Postgres,
						Prefix:  fmt.Sprintf("c%d_", cases.Add(1)),
					})
				},
				AbortsOnError: true,
			})
		})
	}
}

// The repository suite on pools of module pgxoutbox, whose claims are one round trip.
func TestRepositorySuiteConnector(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		if testing.Short() && mode != pgx.QueryExecModeCacheStatement {
			continue
		}
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			db.Connect = func(cfg pgx.ConnConfig) driver.Connector {
				cfg.DefaultQueryExecMode = mode
				cfg.Tracer = sqlpause.Tracer{}
				return pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg})
			}
			pool := db.Open(t)
			var cases atomic.Int64
			suite.TestRepository(t, suite.RepositoryHarness{
				New: func(t *testing.T) suite.Backend {
					return fixture.SuiteBackend(t, pool, sqloutbox.Config{
						Dialect: core.Postgres,
						Prefix:  fmt.Sprintf("c%d_", cases.Add(1)),
					})
				},
				AbortsOnError: true,
			})
		})
	}
}

// A pool of one connection is enough for each call. Insert needs no second connection beside that
// of the transaction.
func TestRepositoryOneConnection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		pool.SetMaxOpenConns(1)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{})
		fixture.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		fixture.NoError(t, repo.Migrate(ctx))
		fixture.NoError(t, repo.Check(ctx))
		commitRows(t, pool, repo, core.InsertRequest{Rows: []core.NewRow{
			sqlRow(t, "a", ""),
			sqlRow(t, "a", "k"),
		}})
		req := core.ClaimRequest{
			Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 10, MaxBytes: 1 << 20,
			Run: 10, Keys: 10,
		}
		rows, err := repo.ClaimUnordered(ctx, req)
		if err == nil {
			var more []core.Claimed
			more, _, err = repo.ClaimHeads(ctx, req, core.KeyID{})
			rows = append(rows, more...)
		}
		fixture.Must(t, err == nil && len(rows) == 2, "claimed %d rows, %v", len(rows), err)
		if _, err := repo.Backlog(ctx, 10); err != nil {
			t.Fatal(err)
		}
	})
}

// A claim of many keys with a few rows each takes few statements. On databases where a claim is
// several statements, it once took a statement for every 16 keys.
func TestOrderedClaimTakesFewStatements(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		var sent atomic.Int64
		db.Wrap = func(c driver.Connector) driver.Connector { return countedConnector{c, &sent} }
		pool, repo := openRepository(t, db)
		const keys, each, limit = 200, 10, 500
		var rows []core.NewRow
		for range each {
			for k := range keys {
				rows = append(rows, sqlRow(t, "topic", fmt.Sprint(k)))
			}
		}
		commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		before := sent.Load()
		got, _, err := repo.ClaimHeads(t.Context(), core.ClaimRequest{
			Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: limit, MaxBytes: 1 << 20,
			Run: 50, Keys: 1000,
		}, core.KeyID{})
		fixture.NoError(t, err)
		const most = 9 // pages of keys, their heads, the rows behind these, the lock and the lease
		if n := sent.Load() - before; n > most {
			t.Errorf("the claim took %d statements, want at most %d", n, most)
		}
		run := map[core.KeyID]int{}
		for _, c := range got {
			run[c.KeyID]++
		}
		if len(got) != limit || len(run) < limit/each {
			t.Errorf("claimed %d rows of %d keys, want %d of %d or more", len(got), len(run), limit, limit/each)
		}
	})
}

// If a transaction on SQLite finds another one writing, SQLite lets it sleep, each time for longer.
// Transactions of one repository wait for each other instead, so that none finds the database busy.
func TestSQLiteTransactionsOfARepositoryQueue(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	// Here a transaction that finds the database busy fails at once, and is repeated.
	db.DSN = strings.Replace(db.DSN, "busy_timeout(30000)", "busy_timeout(0)", 1)
	var recorder sqlrecord.Recorder
	db.Wrap = recorder.Connector
	_, repo := openRepository(t, db)
	const writers, each = 8, 20
	recorder.Start()
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if _, err := repo.MarkDone(t.Context(), []core.Done{{ID: core.RowID{1}}}, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	begun := 0
	for _, c := range recorder.Stop() {
		if c.Query == "BEGIN IMMEDIATE" {
			begun++
		}
	}
	fixture.Check(t, begun == writers*each, "%d transactions were begun for %d calls", begun, writers*each)
}

// A claim of the poller is fair. A topic with a large backlog leaves room for the others, and takes
// the room that they do not need.
func TestClaimFairBetweenTopics(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var rows []core.NewRow
		for range 300 {
			rows = append(rows, sqlRow(t, "big", ""))
		}
		for range 5 {
			rows = append(rows, sqlRow(t, "small", ""))
		}
		for range 40 {
			rows = append(rows, sqlRow(t, "middle", ""))
		}
		commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		got, err := repo.ClaimUnordered(t.Context(),
			core.ClaimRequest{
				Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 90, MaxBytes: 1 << 20,
			})
		fixture.NoError(t, err)
		share := map[string]int{}
		for _, c := range got {
			share[c.Event.Topic]++
		}
		fixture.Check(t, len(got) == 90 && share["small"] == 5 && share["middle"] >= 30 && share["big"] >= 40,
			"%d rows: %v", len(got), share)
	})
}

// The rows that a topic with a backlog takes beyond its share stay within MaxBytes.
func TestClaimBytesBetweenTopics(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, repo := openRepository(t, db)
		var rows []core.NewRow
		for i := range 10 {
			row := sqlRow(t, "big", "")
			row.Event.Payload = make([]byte, 10+1000*(i/3))
			rows = append(rows, row)
		}
		rows = append(rows, sqlRow(t, "small", ""))
		commitRows(t, pool, repo, core.InsertRequest{Rows: rows})
		req := core.ClaimRequest{
			Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 6,
			MaxBytes: 500,
		}
		total, claims := 0, 0
		for ; total < len(rows) && claims < 50; claims++ {
			got, err := repo.ClaimUnordered(t.Context(), req)
			fixture.NoError(t, err)
			size := 0
			for _, c := range got {
				size += len(c.Event.Payload)
			}
			fixture.Check(t, len(got) <= 1 || size <= 500, "%d rows with %d bytes", len(got), size)
			total += len(got)
		}
		fixture.Check(t, total == len(rows), "%d of %d rows after %d claims", total, len(rows), claims)
	})
}
