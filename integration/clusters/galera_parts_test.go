//go:build clusters

package clusters_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// Run on a node that has not applied the migration yet waits for it.
func galeraLateMigration(t *testing.T, g galera) {
	behind := g.pool(t, 1)
	lock, err := behind.Conn(t.Context())
	fixture.NoError(t, err)
	defer lock.Close()
	_, err = lock.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK") // the node applies nothing
	fixture.NoError(t, err)

	pool := g.pool(t, 0)
	repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: core.MySQL})
	outbox, err := core.New(core.Config{Repository: repo})
	fixture.NoError(t, err)
	err = sqltx.NewTransactor(pool, core.MySQL).RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := outbox.Publish(ctx, tx, core.Event{Type: "a"})
		return err
	})
	fixture.NoError(t, err)

	late, err := sqloutbox.New(behind, sqloutbox.Config{Dialect: core.MySQL})
	fixture.NoError(t, err)
	publisher := &outboxtest.Publisher{}
	relays, err := core.New(core.Config{Repository: late, Publisher: publisher, Relay: relay.Config{}})
	fixture.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- relays.Run(ctx) }()
	fixture.Await(t, "Run waits for the node", func() bool {
		return len(ended) > 0 || fixture.Count(t, behind, "SELECT COUNT(*) FROM information_schema.processlist "+
			"WHERE info LIKE '/*M! SET STATEMENT wsrep_sync_wait%'") == 1
	})
	_, err = lock.ExecContext(t.Context(), "UNLOCK TABLES")
	fixture.NoError(t, err)
	fixture.Await(t, "the event is published", func() bool { return len(ended) > 0 || len(publisher.Accepted()) == 1 })
	cancel()
	fixture.NoError(t, <-ended)
	fixture.Check(t, len(publisher.Accepted()) == 1, "published %v", publisher.Accepted())
}

// A node that the cluster has cut off refuses COMMIT and ROLLBACK. The next transaction of the pool
// must not commit what was open.
func galeraRefusedEnd(t *testing.T, g galera) {
	pool := g.pool(t, 0)
	fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: core.MySQL})
	fixture.MustExec(t, pool, "CREATE TABLE done (what VARCHAR(80) NOT NULL PRIMARY KEY)")
	g.catchUp(t)
	type end struct {
		name     string
		producer producer
		result   error
	}
	var all []*end
	for _, w := range []struct {
		name  string
		write way
	}{{"sql", withSQL}, {"gorm", withGORM}} {
		for _, tracked := range []bool{false, true} {
			for _, how := range []string{"commit", "rollback"} {
				own, err := openMySQL(g.address(1))
				if tracked {
					own, err = sqltx.Open("mysql", g.address(1), core.MySQL)
				}
				fixture.NoError(t, err)
				t.Cleanup(func() { _ = own.Close() })
				own.SetMaxOpenConns(1)
				p, err := w.write(core.MySQL, own, adapter.Config{})
				fixture.NoError(t, err)
				name := fmt.Sprintf("%s of %s, tracked pool: %t", how, w.name, tracked)
				all = append(all, &end{name: name, producer: p})
			}
		}
	}
	errRollback := errors.New("roll back")
	var open, ended sync.WaitGroup
	cut := make(chan struct{})
	for _, e := range all {
		open.Add(1)
		ended.Go(func() {
			e.result = e.producer.InTx(t.Context(), func(tx transaction) error {
				err := errors.Join(tx.Exec("INSERT INTO done (what) VALUES (?)", e.name),
					tx.Publish(core.Event{Type: "a"}))
				open.Done()
				if <-cut; err == nil && strings.HasPrefix(e.name, "rollback") {
					err = errRollback
				}
				return err
			})
		})
	}
	open.Wait()
	g.isolate(t, 1)
	close(cut)
	ended.Wait()
	g.reunite(t, 1)
	for _, e := range all {
		t.Logf("%s: %v", e.name, e.result)
		fixture.Check(t, e.result != nil && errors.Is(e.result, errRollback) == strings.HasPrefix(e.name, "rollback"),
			"%s: %v", e.name, e.result)
		fixture.NoError(t, e.producer.InTx(t.Context(), func(tx transaction) error {
			return tx.Exec("INSERT INTO done (what) VALUES (?)", "after "+e.name)
		}))
	}
	now := g.pool(t, 0, current)
	text := func(rows *sql.Rows) (s string, err error) { return s, rows.Scan(&s) }
	for _, what := range fixture.Query(t, now, "SELECT what FROM done", text) {
		fixture.Check(t, strings.HasPrefix(what, "after "), "committed by the next transaction: %s", what)
	}
	fixture.Check(t, fixture.Count(t, now, "SELECT COUNT(*) FROM done") == int64(len(all)), "rows are missing")
	fixture.Check(t, fixture.Count(t, now, "SELECT COUNT(*) FROM outbox_event") == 0, "events are there")
}

// A node is killed, and another one is cut off, while messages and requests come twice to two nodes.
func galeraConsumers(t *testing.T, g galera) {
	createConsumerTables(t, core.MySQL, g.pool(t, 0))
	g.catchUp(t)
	c := startConsumers(t, core.MySQL, g.pool(t, 0), g.pool(t, 1))
	c.Await(0.2)
	g.nodes[1].Kill(t)
	c.AwaitRefused(1)
	g.nodes[1].Up(t)
	c.Await(0.5)
	g.isolate(t, 0)
	c.AwaitRefused(0)
	g.reunite(t, 0)
	c.Finish(g.pool(t, 2, current))
}

// Run warns in each way to write, if the driver sends prepared statements.
func galeraWarnings(t *testing.T, g galera) {
	pool := g.pool(t, 0)
	fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: core.MySQL})
	g.catchUp(t)
	writer, err := withSQL(core.MySQL, pool, adapter.Config{})
	fixture.NoError(t, err)
	ways := map[string]func(*sql.DB, adapter.Config) (func(context.Context) error, error){
		"sql": func(pool *sql.DB, cfg adapter.Config) (func(context.Context) error, error) {
			repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.MySQL})
			if err != nil {
				return nil, err
			}
			o, err := core.New(core.Config{
				Repository: repo, Publisher: cfg.Publisher, Relay: cfg.Relay, Logger: cfg.Logger,
			})
			return o.Run, err
		},
		"gorm": func(pool *sql.DB, cfg adapter.Config) (func(context.Context) error, error) {
			db, err := gorm.Open(gormmysql.New(gormmysql.Config{Conn: pool}), &gorm.Config{Logger: logger.Discard})
			if err != nil {
				return nil, err
			}
			plugin, err := gormoutbox.New(db, cfg)
			return plugin.Run, err
		},
		"bun": func(pool *sql.DB, cfg adapter.Config) (func(context.Context) error, error) {
			o, err := bunoutbox.New(bun.NewDB(pool, mysqldialect.New()), cfg)
			return o.Run, err
		},
		"ent": func(pool *sql.DB, cfg adapter.Config) (func(context.Context) error, error) {
			o, err := entoutbox.New(entsql.OpenDB(dialect.MySQL, pool), cfg)
			return o.Run, err
		},
	}
	prepares := func(cfg *mysql.Config) { cfg.InterpolateParams = false }
	for name, open := range ways {
		for _, change := range [][]func(*mysql.Config){nil, {prepares}} {
			var mu sync.Mutex
			var log bytes.Buffer
			logs := func() string {
				mu.Lock()
				defer mu.Unlock()
				return log.String()
			}
			handler := slog.NewTextHandler(lockedWriter{&mu, &log}, nil)
			publisher := &outboxtest.Publisher{}
			pool := g.pool(t, 1, change...)
			run, err := open(pool, adapter.Config{
				Publisher: publisher, Relay: relay.Config{}, Logger: slog.New(handler),
			})
			fixture.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { fixture.NoError(t, run(ctx)) })
			fixture.NoError(t, writer.InTx(t.Context(), func(tx transaction) error {
				return tx.Publish(core.Event{Type: "a"})
			}))
			fixture.Await(t, "the relay works", func() bool { return len(publisher.Accepted()) == 1 })
			cancel()
			running.Wait()
			if warned := strings.Contains(logs(), "interpolateParams=true"); warned != (len(change) > 0) {
				t.Errorf("%s, prepared statements: %t, logged %s", name, len(change) > 0, logs())
			}
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
