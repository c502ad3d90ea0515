package repository_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlpause"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// PostgreSQL behind a pooler is used without prepared statements, and lib/pq sends everything as
// text: no statement may need a driver's knowledge of types.
func TestRepositorySuitePostgresModes(t *testing.T) {
	t.Parallel()
	modes := []string{"simple_protocol", "exec", "describe_exec"}
	if testing.Short() {
		modes = modes[:1] // the one that differs most from the usual one
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			db := testdb.Postgres(t)
			db.DSN += "&default_query_exec_mode=" + mode
			db.Wrap = sqlpause.Connector
			pool := db.Open(t)
			var cases atomic.Int64
			suite.TestRepository(t, suite.RepositoryHarness{
				New: func(t *testing.T) suite.Backend {
					return sqlBackend(t, pool, sqloutbox.Config{
						Dialect: core.Postgres,
						Prefix:  fmt.Sprintf("c%d_", cases.Add(1)),
					})
				},
				AbortsOnError: true,
			})
		})
	}
}

// A pool of one connection is enough for each call alone. Insert needs no second connection beside
// that of the transaction.
func TestRepositoryOneConnection(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		pool.SetMaxOpenConns(1)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := repo.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		if err := repo.Check(ctx); err != nil {
			t.Fatal(err)
		}
		tx, err := sqltx.Begin(ctx, pool, nil, db.Dialect)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Insert(ctx, tx, core.InsertRequest{Rows: []core.NewRow{
			sqlRow(t, "a", ""),
			sqlRow(t, "a", "k"),
		}}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		req := core.ClaimRequest{
			Node: "n", Lease: time.Minute, MaxLease: time.Hour, Limit: 10, MaxBytes: 1 << 20,
			Run: 10, Keys: 10,
		}
		rows, err := repo.ClaimUnordered(ctx, req)
		if err == nil {
			var more []core.Claimed
			more, _, err = repo.ClaimHeads(ctx, req, core.KeyID{})
			rows = append(rows, more...)
		}
		if err != nil || len(rows) != 2 {
			t.Fatalf("claimed %d rows, %v", len(rows), err)
		}
		if _, err := repo.Backlog(ctx, 10); err != nil {
			t.Fatal(err)
		}
	})
}

// A cold claim is fair: a topic with a large backlog leaves room for the others, and takes what
// they do not need.
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
		tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Insert(t.Context(), tx, core.InsertRequest{Rows: rows}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		got, err := repo.ClaimUnordered(t.Context(),
			core.ClaimRequest{Node: "n", Lease: time.Minute, MaxLease: time.Hour, Limit: 90, MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		share := map[string]int{}
		for _, c := range got {
			share[c.Event.Topic]++
		}
		if len(got) != 90 || share["small"] != 5 || share["middle"] < 30 || share["big"] < 40 {
			t.Errorf("%d rows: %v", len(got), share)
		}
	})
}

// The rows that a topic with a backlog takes beyond its part stay within the bytes.
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
		tx, err := sqltx.Begin(t.Context(), pool, nil, db.Dialect)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := repo.Insert(t.Context(), tx, core.InsertRequest{Rows: rows}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		req := core.ClaimRequest{Node: "n", Lease: time.Minute, MaxLease: time.Hour, Limit: 6, MaxBytes: 500}
		total, claims := 0, 0
		for ; total < len(rows) && claims < 50; claims++ {
			got, err := repo.ClaimUnordered(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, c := range got {
				size += len(c.Event.Payload)
			}
			if len(got) > 1 && size > 500 {
				t.Errorf("%d rows with %d bytes", len(got), size)
			}
			total += len(got)
		}
		if total != len(rows) {
			t.Errorf("%d of %d rows after %d claims", total, len(rows), claims)
		}
	})
}
