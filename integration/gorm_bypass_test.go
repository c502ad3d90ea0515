package integration

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"
	"gorm.io/plugin/dbresolver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Events of transactions that cannot be followed are as safe, but wait for the poller.
func TestGORMConnectionIsUntracked(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.run(t)
		noError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error {
				noError(t, tx.Create(newOrder("explicit")).Error)
				return publishAll(tx, "said")
			})
		}))
		noError(t, g.Connection(func(db *gorm.DB) error {
			return db.Create(newOrder("implicit")).Error // followed: it is wrapped just before GORM begins
		}))
		g.wantRows(t, "implicit", "explicit", "said")
		g.wantHot(t, "implicit")
		if g.untracked != 2 {
			t.Errorf("%d untracked rows, want 2", g.untracked)
		}
	})
}

func TestGORMForeignTxIsUntracked(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.run(t)
		pool, err := g.DB.DB()
		noError(t, err)
		for _, commit := range []bool{true, false} {
			foreign, err := pool.BeginTx(t.Context(), nil)
			noError(t, err)
			s := g.Session(&gorm.Session{NewDB: true, Context: t.Context()})
			s.Statement.ConnPool = foreign
			noError(t, s.Create(newOrder("foreign")).Error)
			if commit {
				noError(t, foreign.Commit())
			} else {
				noError(t, foreign.Rollback())
			}
			wantError(t, gormoutbox.Publish(s, ev("late")), gormoutbox.ErrNoTransaction)
		}
		g.wantRows(t, "foreign")
		g.wantHot(t)
	})
}

// A session with a context that was made before db.Use still has the pool of that time. With a statement cache it shares that,
// and with it the plugin's pool.
func TestGORMSessionFromBeforeUse(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.run(t)
		noError(t, g.early.Create(newOrder("implicit")).Error)
		noError(t, g.early.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "explicit") }))
		g.wantRows(t, "implicit", "explicit")
		if g.PrepareStmt {
			g.wantHot(t, "implicit", "explicit")
			return
		}
		g.wantHot(t, "implicit")
		if g.untracked != 1 {
			t.Errorf("%d untracked rows, want 1", g.untracked)
		}
	}, func(o *gormOptions) {
		o.before = func(_ *testing.T, g *gormEnv) { g.early = g.WithContext(context.Background()) }
	})
}

func TestGORMPlainSessionFromBeforeUse(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.run(t)
		noError(t, g.early.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "shared") }))
		g.wantHot(t, "shared")
	}, func(o *gormOptions) {
		o.before = func(_ *testing.T, g *gormEnv) { g.early = g.Session(&gorm.Session{}) }
	})
}

func TestGORMRejectUntracked(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		noError(t, g.Create(newOrder("tracked")).Error)
		wantError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("untracked")).Error })
		}), gormoutbox.ErrUntracked)
		g.wantRows(t, "tracked")
		g.wantCount(t, "g_orders", 1)
	}, func(o *gormOptions) { o.outbox.RejectUntracked = true })
}

func TestGORMUntrackedIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	g := openGORM(t, testdb.SQLite(t), gormOptions{outbox: gormoutbox.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	for range 3 {
		noError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "untracked") })
		}))
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Fatalf("%d warnings:\n%s", n, &log)
	}
}

func resolver(db testdb.DB) *dbresolver.DBResolver {
	return dbresolver.Register(dbresolver.Config{
		Sources:  []gorm.Dialector{dialector(db, nil)},
		Replicas: []gorm.Dialector{dialector(db, nil)},
	})
}

// The databases that dbresolver opens after db.Use are followed like the first one.
func TestGORMBeforeDBResolver(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		r := resolver(g.db)
		noError(t, g.Use(r))
		r.SetMaxOpenConns(4).SetMaxIdleConns(4).SetConnMaxLifetime(time.Hour).SetConnMaxIdleTime(time.Hour)
		defer closeResolved(t, r)
		g.run(t)
		noError(t, g.Create(newOrder("implicit")).Error)
		noError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("explicit")).Error }))
		noError(t, g.Clauses(dbresolver.Write).Transaction(func(tx *gorm.DB) error {
			noError(t, tx.Create(newOrder("write")).Error)
			_ = tx.Transaction(func(tx *gorm.DB) error {
				noError(t, publishAll(tx, "ghost"))
				return errNoStock
			})
			return publishAll(tx, "said")
		}))
		g.wantRows(t, "implicit", "explicit", "write", "said")
		g.wantHot(t, "implicit", "explicit", "write", "said")
		if g.untracked != 0 {
			t.Errorf("%d untracked rows", g.untracked)
		}
	})
}

// When dbresolver came first, transactions on a source it is told to use are not followed. Nothing is lost.
func TestGORMAfterDBResolver(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		defer closeResolved(t, g.resolver)
		g.run(t)
		noError(t, g.Create(newOrder("implicit")).Error)
		noError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("explicit")).Error }))
		noError(t, g.Clauses(dbresolver.Write).Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("write")).Error }))
		g.wantRows(t, "implicit", "explicit", "write")
		g.wantHot(t, "implicit", "explicit")
		if g.untracked != 1 {
			t.Errorf("%d untracked rows, want 1", g.untracked)
		}
	}, func(o *gormOptions) {
		o.before = func(t *testing.T, g *gormEnv) {
			g.resolver = resolver(g.db)
			noError(t, g.Use(g.resolver))
		}
	})
}

func closeResolved(t *testing.T, r *dbresolver.DBResolver) {
	t.Helper()
	noError(t, r.Call(func(pool gorm.ConnPool) error {
		if c, ok := pool.(gorm.GetDBConnector); ok {
			raw, err := c.GetDBConn()
			if err != nil {
				return err
			}
			return raw.Close()
		}
		return pool.(interface{ Close() error }).Close()
	}))
}

// What people reach for through the pool still works behind the plugin.
func TestGORMPoolStaysUsable(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		pool, err := g.DB.DB()
		noError(t, err)
		noError(t, pool.PingContext(t.Context()))
		noError(t, g.Transaction(func(tx *gorm.DB) error {
			same, err := tx.DB()
			noError(t, err)
			if same != pool {
				t.Error("tx.DB is another pool")
			}
			return nil
		}))
		noError(t, g.Raw("SELECT 1").Row().Err())
		rows, err := g.Raw("SELECT 1").Rows()
		noError(t, err)
		defer rows.Close()
		if !rows.Next() {
			t.Errorf("no row: %v", rows.Err())
		}
	})
}

// Rows that are read by hand can be how a transaction learns that it is the victim of a deadlock.
func TestGORMDeadlockVictimWhileReading(t *testing.T) {
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect != core.MySQL {
			t.Log("other databases refuse COMMIT then, or know no deadlocks")
			return
		}
		noError(t, g.Create([]*gCoupon{{Code: "A"}, {Code: "B"}, {Code: "C"}}).Error)
		victim, other := g.Begin(), g.Begin()
		defer victim.Rollback()
		defer other.Rollback()
		heavy := make([]*gCoupon, 100)
		for i := range heavy {
			heavy[i] = &gCoupon{Code: "heavy" + strings.Repeat("x", i)[:i%50] + string(rune('0'+i/50))}
		}
		touch := func(tx *gorm.DB, code string) error {
			return tx.Model(&gCoupon{Code: code}).Update("percent", gorm.Expr("percent + 1")).Error
		}
		o := newOrder("ghost")
		noError(t, victim.Create(o).Error)
		noError(t, touch(victim, "A"))
		noError(t, other.Create(heavy).Error)
		noError(t, touch(other, "C"))
		done := make(chan error, 1)
		go func() {
			rows, err := victim.Raw("SELECT code FROM g_coupons WHERE code IN ('B', 'C') ORDER BY code FOR UPDATE").Rows()
			if err != nil {
				done <- err
				return
			}
			defer rows.Close()
			for rows.Next() {
			}
			done <- rows.Err()
		}()
		noError(t, touch(other, "A"))
		if err := <-done; err == nil {
			t.Fatal("no deadlock")
		}
		victim.Error = nil
		wantError(t, gormoutbox.Publish(victim, ev("ghost.after")), gormoutbox.ErrTxAborted)
		_ = victim.Commit()
		noError(t, other.Commit().Error)
		g.wantRows(t)
		if len(o.Recorded()) != 1 {
			t.Fatal("the recorder lost the event of the victim")
		}
	})
}
