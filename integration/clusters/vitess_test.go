//go:build clusters

package clusters_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Producers and relays on a keyspace of one shard keep every promise while Vitess is killed and comes
// back, twice.
func TestVitessIsKilled(t *testing.T) {
	for name, write := range map[string]way{"sql": withSQL, "gorm": withGORM} {
		t.Run(name, func(t *testing.T) {
			server := fixture.StartPrivateSet(t, "mysql", "vitess")[1]
			p := program{
				Dialect: core.MySQL, Open: openMySQL,
				Write: write, Producers: []string{server.Address, server.Address},
				Relays: []string{server.Address, server.Address}, Hot: name == "gorm", Parts: 2,
			}
			p.createTables(t, server.Address)
			l := start(t, p)
			for range 2 {
				for i := range p.Producers {
					l.AwaitCommits(i, 300)
				}
				server.Kill(t)
				server.Up(t)
			}
			for i := range p.Producers {
				l.AwaitCommits(i, 300)
				l.AwaitPublished(i, 10)
			}
			l.Finish(server.Address).Check(t)
		})
	}
}

// Vitess is killed while messages and requests come more than once.
func TestVitessConsumers(t *testing.T) {
	server := fixture.StartPrivateSet(t, "mysql", "vitess")[1]
	pool := func() *sql.DB { return openPool(t, openMySQL, server.Address) }
	createConsumerTables(t, core.MySQL, pool())
	c := startConsumers(t, core.MySQL, pool(), pool())
	for _, part := range []float64{0.2, 0.6} {
		c.Await(part)
		server.Kill(t)
		c.AwaitRefused(0)
		server.Up(t)
	}
	c.Finish(pool())
}

// Run warns of a shard to which the driver sends prepared statements: no relay can read there. It does
// not warn of texts, nor of a keyspace of one shard.
func TestVitessShardWarnings(t *testing.T) {
	shards := testdb.VitessShards(t)
	for _, c := range []struct {
		db    testdb.DB
		texts bool
		warns bool
	}{
		{db: shards[0], warns: true},
		{db: shards[1], texts: true},
		{db: testdb.Vitess(t)},
	} {
		if !c.texts {
			c.db.DSN = strings.Replace(c.db.DSN, "interpolateParams=true", "interpolateParams=false", 1)
		}
		repo := fixture.NewRepository(t, c.db.Open(t), sqloutbox.Config{})
		got, err := repo.Warnings(t.Context())
		fixture.NoError(t, err)
		warned := len(got) == 1 && strings.Contains(got[0].Found, "a shard of Vitess")
		fixture.Check(t, warned == c.warns && (c.warns || got == nil), "%s: %+v", c.db.DSN, got)
		_, _, err = repo.ClaimHeads(t.Context(), core.ClaimRequest{
			Node: "n", ClaimNo: 1, Lease: time.Minute, MaxLease: time.Hour, Limit: 1, MaxBytes: 1, Run: 1, Keys: 1,
		}, core.KeyID{})
		fixture.Check(t, (err != nil) == c.warns, "%s: ClaimHeads: %v", c.db.DSN, err)
	}
}

// In a transaction that is not tracked, Publish asks vtgate whether there still is one.
func TestVitessUntracked(t *testing.T) {
	for _, db := range append(testdb.VitessShards(t), testdb.Vitess(t)) {
		pool := db.Open(t)
		ob := fixture.NewOutbox(t, db, core.Config{})
		for _, ends := range []bool{false, true} {
			plain, err := pool.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			tx, err := sqltx.TxOf(t.Context(), plain)
			fixture.NoError(t, err)
			fixture.Check(t, !tx.Tracked(), "the transaction is tracked")
			if ends {
				_, err = plain.ExecContext(t.Context(), "ROLLBACK")
				fixture.NoError(t, err)
			}
			_, err = ob.Publish(t.Context(), tx, core.Event{Type: "order.placed"})
			refused := errors.Is(err, core.ErrTxAborted)
			fixture.Check(t, refused == ends && (err != nil) == ends, "%s, %t: %v", db.DSN, ends, err)
			fixture.NoError(t, plain.Commit())
		}
		n := fixture.Count(t, pool, "SELECT COUNT(*) FROM outbox_event")
		fixture.Check(t, n == 1, "%s has %d events", db.DSN, n)
	}
}

// After a statement that failed, vtgate is asked whether it still has the transaction, and has it.
func TestVitessStatementFails(t *testing.T) {
	for _, db := range append(testdb.VitessShards(t), testdb.Vitess(t)) {
		for name, pool := range map[string]*sql.DB{"plain": db.Open(t), "connector": fixture.TrackedPool(t, db)} {
			ob := fixture.NewOutbox(t, db, core.Config{})
			err := sqltx.NewTransactor(pool, "").RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM nothing")
				fixture.Check(t, err != nil, "a table that does not exist is there")
				_, err = ob.Publish(ctx, tx, core.Event{Type: "order.placed"})
				return err
			})
			fixture.Check(t, err == nil, "%s, %s: %v", db.DSN, name, err)
		}
	}
}

// Several processes may migrate a keyspace, or a shard, at once.
func TestVitessMigrationsAtOnce(t *testing.T) {
	for _, db := range append(testdb.VitessShards(t), testdb.Vitess(t)) {
		errs := make(chan error)
		for range 4 {
			pool := db.Open(t)
			repo, err := sqloutbox.New(pool, sqloutbox.Config{})
			fixture.NoError(t, err)
			go func() { errs <- errors.Join(repo.Migrate(t.Context()), repo.Check(t.Context())) }()
		}
		for range 4 {
			fixture.NoError(t, <-errs)
		}
	}
}
