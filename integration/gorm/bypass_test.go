package gorm_test

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
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Publish works in transactions that cannot be tracked. Its events are as safe, but wait for the
// poller.
func TestGORMConnectionIsUntracked(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error {
				return publishAll(tx, "explicit", "said")
			})
		}))
		fixture.NoError(t, g.Connection(func(db *gorm.DB) error {
			return db.Create(newOrder("implicit")).Error // tracked: the pool is wrapped just before GORM begins
		}))
		g.wantRows(t, "implicit", "explicit", "said")
		g.WantHot(t, "implicit")
		g.WantUntracked(t, 2)
	})
}

func TestGORMForeignTxIsUntracked(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		pool, err := g.DB.DB()
		fixture.NoError(t, err)
		for _, commit := range []bool{true, false} {
			foreign, err := pool.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			s := g.Session(&gorm.Session{NewDB: true, Context: t.Context()})
			s.Statement.ConnPool = foreign
			fixture.NoError(t, publishAll(s, "foreign"))
			if commit {
				fixture.NoError(t, foreign.Commit())
			} else {
				fixture.NoError(t, foreign.Rollback())
			}
			fixture.WantError(t, gormoutbox.Publish(t.Context(), s, fixture.Event("late")), core.ErrNoTransaction)
		}
		g.wantRows(t, "foreign")
		g.WantHot(t)
	})
}

// A session with a context that was made before db.Use still has the pool of that time. With a
// statement cache the session shares the cache, and so the plugin's pool.
func TestGORMSessionFromBeforeUse(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.early.Create(newOrder("implicit")).Error)
		fixture.NoError(t, g.early.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "explicit") }))
		g.wantRows(t, "implicit", "explicit")
		if g.PrepareStmt {
			g.WantHot(t, "implicit", "explicit")
			return
		}
		g.WantHot(t, "implicit")
		g.WantUntracked(t, 1)
	}, func(o *gormOptions) {
		o.before = func(_ *testing.T, g *gormEnv) { g.early = g.WithContext(context.Background()) }
	})
}

func TestGORMPlainSessionFromBeforeUse(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.early.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "shared") }))
		g.WantHot(t, "shared")
	}, func(o *gormOptions) {
		o.before = func(_ *testing.T, g *gormEnv) { g.early = g.Session(&gorm.Session{}) }
	})
}

func TestGORMRejectUntracked(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.Create(newOrder("tracked")).Error)
		fixture.WantError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "untracked") })
		}), core.ErrUntracked)
		g.wantRows(t, "tracked")
	}, func(o *gormOptions) { o.outbox.RejectUntracked = true })
}

func TestGORMUntrackedIsLoggedOnce(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g := openGORM(t, testdb.SQLite(t),
		gormOptions{outbox: gormoutbox.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	for range 3 {
		fixture.NoError(t, g.Connection(func(db *gorm.DB) error {
			return db.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "untracked") })
		}))
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Fatalf("%d warnings:\n%s", n, &log)
	}
}

func resolver(db testdb.DB) *dbresolver.DBResolver {
	return dbresolver.Register(dbresolver.Config{
		Sources:  []gorm.Dialector{adapters.GORMDialector(db, nil)},
		Replicas: []gorm.Dialector{adapters.GORMDialector(db, nil)},
	})
}

// Transactions of databases that dbresolver opens after db.Use are tracked like those of the first
// one.
func TestGORMBeforeDBResolver(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		r := resolver(g.db)
		fixture.NoError(t, g.Use(r))
		r.SetMaxOpenConns(4).SetMaxIdleConns(4).SetConnMaxLifetime(time.Hour).SetConnMaxIdleTime(time.Hour)
		defer closeResolved(t, r)
		g.RunRelay(t)
		fixture.NoError(t, g.Create(newOrder("implicit")).Error)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("explicit")).Error }))
		fixture.NoError(t, g.Clauses(dbresolver.Write).Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(newOrder("write")).Error)
			_ = tx.Transaction(func(tx *gorm.DB) error {
				fixture.NoError(t, publishAll(tx, "ghost"))
				return fixture.ErrNoStock
			})
			return publishAll(tx, "said")
		}))
		g.wantRows(t, "implicit", "explicit", "write", "said")
		g.WantHot(t, "implicit", "explicit", "write", "said")
		g.WantUntracked(t, 0)
	})
}

// If dbresolver was installed first, transactions on a source that it is told to use are not
// tracked.
func TestGORMAfterDBResolver(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		defer closeResolved(t, g.resolver)
		g.RunRelay(t)
		fixture.NoError(t, g.Create(newOrder("implicit")).Error)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("explicit")).Error }))
		fixture.NoError(t,
			g.Clauses(dbresolver.Write).Transaction(func(tx *gorm.DB) error {
				return publishAll(tx, "write")
			}))
		g.wantRows(t, "implicit", "explicit", "write")
		g.WantHot(t, "implicit", "explicit")
		g.WantUntracked(t, 1)
	}, func(o *gormOptions) {
		o.before = func(t *testing.T, g *gormEnv) {
			g.resolver = resolver(g.db)
			fixture.NoError(t, g.Use(g.resolver))
		}
	})
}

// gStat has a hook and no events. It is stored in a database without an outbox.
type gStat struct {
	ID   int64
	Name string
}

func (gStat) TableName() string { return "g_stats" }

func (s *gStat) BeforeSave(*gorm.DB) error {
	s.Name = strings.ToUpper(s.Name)
	return nil
}

// The plugin does not touch models of a second database that have hooks, but neither a Recorder nor
// On functions. Events of that database are refused.
func TestGORMSecondDatabaseOfDBResolver(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		second := g.db.Another(t)
		stats := second.Open(t)
		fixture.MustExec(t, stats, "CREATE TABLE g_stats (id BIGINT PRIMARY KEY, name VARCHAR(64))")
		fixture.MustExec(t, stats, "CREATE TABLE g_products (id BIGINT PRIMARY KEY, name VARCHAR(64), stock BIGINT, "+
			"deleted_at VARCHAR(64))")
		r := dbresolver.Register(dbresolver.Config{Sources: []gorm.Dialector{adapters.GORMDialector(second, nil)}},
			&gStat{}, &gProduct{})
		fixture.NoError(t, g.Use(r))
		defer closeResolved(t, r)
		fixture.NoError(t, g.Create(&gStat{ID: 1, Name: "a"}).Error)
		fixture.NoError(t, g.Save(&gStat{ID: 1, Name: "b"}).Error)
		fixture.NoError(t, g.Clauses(dbresolver.Write).Model(&gStat{ID: 1}).Update("name", "c").Error)
		if n := fixture.Count(t, stats, "SELECT COUNT(*) FROM g_stats WHERE name = 'c'"); n != 1 {
			t.Errorf("%d rows with the last name, want 1", n)
		}
		fixture.NoError(t, g.Delete(&gStat{ID: 1}).Error)

		mapProducts(g)
		fixture.WantError(t, g.Create(&gProduct{ID: 1, Name: "elsewhere"}).Error, core.ErrOtherDatabase)
		if n := fixture.Count(t, stats, "SELECT COUNT(*) FROM g_products"); n != 0 {
			t.Errorf("%d products, want none", n)
		}
		g.wantRows(t)
	})
}

func closeResolved(t *testing.T, r *dbresolver.DBResolver) {
	t.Helper()
	fixture.NoError(t, r.Call(func(pool gorm.ConnPool) error {
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

// Other features of the pool still work behind the plugin.
func TestGORMPoolStaysUsable(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		pool, err := g.DB.DB()
		fixture.NoError(t, err)
		fixture.NoError(t, pool.PingContext(t.Context()))
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			same, err := tx.DB()
			fixture.NoError(t, err)
			fixture.Check(t, same == pool, "tx.DB is another pool")
			return nil
		}))
		fixture.NoError(t, g.Raw("SELECT 1").Row().Err())
		rows, err := g.Raw("SELECT 1").Rows()
		fixture.NoError(t, err)
		defer rows.Close()
		if !rows.Next() {
			t.Errorf("no row: %v", rows.Err())
		}
	})
}

// A transaction may learn that it is the victim of a deadlock while its rows are read by hand.
func TestGORMDeadlockVictimWhileReading(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect != core.MySQL {
			t.Log("other databases refuse COMMIT then, or know no deadlocks")
			return
		}
		fixture.NoError(t, g.Create([]*gCoupon{{Code: "A"}, {Code: "B"}, {Code: "C"}}).Error)
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
		fixture.NoError(t, victim.Create(o).Error)
		fixture.NoError(t, touch(victim, "A"))
		fixture.NoError(t, other.Create(heavy).Error)
		fixture.NoError(t, touch(other, "C"))
		done := make(chan error, 1)
		go func() {
			rows, err := victim.Raw(
				"SELECT code FROM g_coupons WHERE code IN ('B', 'C') ORDER BY code FOR UPDATE",
			).Rows()
			if err != nil {
				done <- err
				return
			}
			defer rows.Close()
			for rows.Next() {
			}
			done <- rows.Err()
		}()
		fixture.NoError(t, touch(other, "A"))
		if err := <-done; err == nil {
			t.Fatal("no deadlock")
		}
		victim.Error = nil
		fixture.WantError(t, gormoutbox.Publish(t.Context(), victim, fixture.Event("ghost.after")), core.ErrTxAborted)
		_ = victim.Commit()
		fixture.NoError(t, other.Commit().Error)
		g.wantRows(t)
		fixture.Must(t, len(o.Recorded()) == 1, "the recorder lost the event of the victim")
	})
}
