package gorm_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
)

func TestGORMImplicitTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Create(newOrder("placed")).Error)
		g.wantRows(t, "placed")
		g.WantHot(t, "placed")
	})
}

func TestGORMTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(newOrder("placed")).Error; err != nil {
				return err
			}
			return publishAll(tx, "said")
		}))
		fixture.WantError(t, g.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(newOrder("undone")).Error; err != nil {
				return err
			}
			return errors.Join(publishAll(tx, "undone.too"), fixture.ErrNoStock)
		}), fixture.ErrNoStock)
		g.wantRows(t, "placed", "said")
		g.WantHot(t, "placed", "said")
		g.WantCount(t, "g_orders", 1)
	})
}

func TestGORMBeginCommitRollback(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		tx := g.Begin()
		fixture.NoError(t, tx.Create(newOrder("placed")).Error)
		fixture.NoError(t, tx.Commit().Error)
		fixture.WantError(t, gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event("late")), core.ErrNoTransaction)

		tx = g.Begin()
		fixture.NoError(t, tx.Create(newOrder("undone")).Error)
		fixture.NoError(t, tx.Rollback().Error)
		g.wantRows(t, "placed")
		g.WantHot(t, "placed")
	})
}

func TestGORMPanic(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		o := newOrder("placed")
		func() {
			defer func() {
				if v := recover(); v != "boom" {
					t.Errorf("recovered %v", v)
				}
			}()
			_ = g.Transaction(func(tx *gorm.DB) error {
				fixture.NoError(t, tx.Create(o).Error)
				panic("boom")
			})
		}()
		g.wantRows(t)
		g.WantHot(t)
		if len(o.Recorded()) != 1 {
			t.Fatalf("recorded %v after a rollback", o.Recorded())
		}
	})
}

func TestGORMContextEnds(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		ctx, cancel := context.WithCancel(t.Context())
		o := newOrder("placed")
		tx := g.WithContext(ctx).Begin()
		fixture.NoError(t, tx.Create(o).Error)
		cancel()
		if err := tx.Commit().Error; err == nil {
			t.Fatal("Commit after the end of the context returned nil")
		}
		g.wantRows(t)
		g.WantHot(t)
		fixture.Await(t, "the recorder to have its event again", func() bool { return len(g.handOver(o)) == 1 })
	})
}

// handOver takes the events that a model's recorder gives to the next transaction, and gives them
// back.
func (g *gormEnv) handOver(o *gOrder) []core.Event {
	events, ended, _ := o.HandOver()
	ended(core.RolledBack)
	return events
}

func TestGORMNestedTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(newOrder("outer")).Error)
			fixture.WantError(t, tx.Transaction(func(tx *gorm.DB) error {
				fixture.NoError(t, tx.Create(newOrder("ghost")).Error)
				fixture.NoError(t, publishAll(tx, "ghost.too"))
				return fixture.ErrNoStock
			}), fixture.ErrNoStock)
			fixture.NoError(t, tx.Transaction(func(tx *gorm.DB) error { return tx.Create(newOrder("inner")).Error }))
			return nil
		}))
		g.wantRows(t, "outer", "inner")
		g.WantHot(t, "outer", "inner")
	})
}

func TestGORMSavePointAPI(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(newOrder("kept")).Error)
			fixture.NoError(t, tx.SavePoint("sp").Error)
			fixture.NoError(t, tx.Create(newOrder("ghost")).Error)
			fixture.NoError(t, tx.RollbackTo("sp").Error)
			return tx.Create(newOrder("after")).Error
		}))
		g.wantRows(t, "kept", "after")
		g.WantHot(t, "kept", "after")
	})
}

// wantSavepointRefused checks a savepoint by text on MySQL. MySQL refuses it as a prepared
// statement, and the transaction goes on.
func (g *gormEnv) wantSavepointRefused(t *testing.T, savepoint func(tx *gorm.DB) error) {
	t.Helper()
	fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
		fixture.NoError(t, publishAll(tx, "kept"))
		if err := savepoint(tx); err == nil || !strings.Contains(err.Error(), "1295") {
			t.Errorf("SAVEPOINT as a prepared statement returned %v", err)
		}
		return publishAll(tx, "after")
	}))
	g.wantRows(t, "kept", "after")
}

// With prepared statements, raw SQL does not go through the tracked transaction. The plugin sees it
// in callbacks only.
func TestGORMRawSavepoints(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		if g.db.Name == "mysql" && g.PrepareStmt {
			g.wantSavepointRefused(t, func(tx *gorm.DB) error { return tx.Exec("SAVEPOINT q").Error })
			return
		}
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, publishAll(tx, "kept"))
			fixture.NoError(t, tx.Exec("SAVEPOINT q").Error)
			fixture.NoError(t, publishAll(tx, "ghost"))
			fixture.NoError(t, tx.Exec("ROLLBACK TO SAVEPOINT q").Error)
			fixture.NoError(t, publishAll(tx, "after"))
			return tx.Exec("RELEASE SAVEPOINT q").Error
		}))
		g.wantRows(t, "kept", "after")
		g.WantHot(t, "kept", "after")
	})
}

func TestGORMPrepareStmtSessionInTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		if g.db.Name == "mysql" {
			g.wantSavepointRefused(t, func(tx *gorm.DB) error {
				return tx.Session(&gorm.Session{PrepareStmt: true}).Exec("SAVEPOINT q").Error
			})
			return
		}
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			tx = tx.Session(&gorm.Session{PrepareStmt: true})
			fixture.NoError(t, tx.Create(newOrder("kept")).Error)
			fixture.NoError(t, tx.Exec("SAVEPOINT q").Error)
			fixture.NoError(t, tx.Create(newOrder("ghost")).Error)
			return tx.Exec("ROLLBACK TO SAVEPOINT q").Error
		}))
		fixture.NoError(t, g.Session(&gorm.Session{PrepareStmt: true}).Create(newOrder("session")).Error)
		g.wantRows(t, "kept", "session")
		g.WantHot(t, "kept", "session")
	})
}

// Statements that a program prepares itself may do anything, so the events of their transaction
// wait for the poller.
func TestGORMStatementsPreparedByHand(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		if g.db.Name == "mysql" {
			g.wantSavepointRefused(t, func(tx *gorm.DB) error {
				stmt, err := tx.Statement.ConnPool.PrepareContext(t.Context(), "SAVEPOINT q")
				if err == nil {
					defer stmt.Close()
				}
				return err
			})
			return
		}
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, publishAll(tx, "kept"))
			byHand := func(query string) {
				stmt, err := tx.Statement.ConnPool.PrepareContext(t.Context(), query)
				fixture.NoError(t, err)
				defer stmt.Close()
				_, err = stmt.ExecContext(t.Context())
				fixture.NoError(t, err)
			}
			byHand("SAVEPOINT q")
			fixture.NoError(t, publishAll(tx, "ghost"))
			byHand("ROLLBACK TO SAVEPOINT q")
			return nil
		}))
		g.wantRows(t, "kept")
		g.WantHot(t)
	})
}

// The same holds for statements on GORM's own pool. With a statement cache they are prepared too,
// and do not go through its callbacks.
func TestGORMStatementsOnThePoolByHand(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		if g.db.Name == "mysql" && g.PrepareStmt {
			g.wantSavepointRefused(t, func(tx *gorm.DB) error {
				_, err := tx.Statement.ConnPool.ExecContext(t.Context(), "SAVEPOINT q")
				return err
			})
			return
		}
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, publishAll(tx, "kept"))
			_, err := tx.Statement.ConnPool.ExecContext(t.Context(), "SAVEPOINT q")
			fixture.NoError(t, err)
			fixture.NoError(t, publishAll(tx, "ghost"))
			_, err = tx.Statement.ConnPool.ExecContext(t.Context(), "ROLLBACK TO SAVEPOINT q")
			return err
		}))
		g.wantRows(t, "kept")
		if g.PrepareStmt {
			g.WantHot(t)
		} else {
			g.WantHot(t, "kept")
		}
	})
}

func TestGORMIgnoredDuplicateKey(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Create(&gCoupon{Code: "X"}).Error)
		err := g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(newOrder("placed")).Error)
			if err := tx.Create(&gCoupon{Code: "X"}).Error; err == nil {
				t.Error("a duplicate was accepted")
			}
			return nil
		})
		if g.db.Dialect == core.Postgres { // the transaction is aborted, and COMMIT says so
			fixture.Must(t, err != nil, "COMMIT of an aborted transaction returned nil")
			g.wantRows(t)
			g.WantHot(t)
			return
		}
		fixture.NoError(t, err)
		g.wantRows(t, "placed")
		g.WantHot(t, "placed")
	})
}

// A refused statement in a nested transaction is rolled back with it. The other events keep their
// fast path.
func TestGORMRefusedStatementInNestedTransaction(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		fixture.NoError(t, g.Create(&gCoupon{Code: "X"}).Error)
		o := newOrder("placed")
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, tx.Create(o).Error)
			_ = tx.Transaction(func(tx *gorm.DB) error { return tx.Create(&gCoupon{Code: "X"}).Error })
			return publishAll(tx, "said")
		}))
		g.wantRows(t, "placed", "said")
		g.WantHot(t, "placed", "said")
		if n := len(o.Recorded()); n != 0 {
			t.Fatalf("%d events still recorded after a commit", n)
		}
	})
}

// InnoDB rolls the whole transaction of a deadlock victim back, and COMMIT returns nil.
func TestGORMDeadlockVictimIgnored(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect == core.SQLite {
			t.Log("one writer: no deadlocks")
			return
		}
		g.RunRelay(t)
		// A snapshot would not know the table of the deadlock.
		o := newOrder("ghost")
		victim := g.Begin(&sql.TxOptions{Isolation: sql.LevelReadCommitted})
		defer victim.Rollback()
		fixture.NoError(t, victim.Create(o).Error)
		err := adapters.BecomeVictim(t.Context(), t, g.db,
			func(_ context.Context, query string) error { return victim.Exec(query).Error })
		fixture.Must(t, err != nil, "no deadlock")
		victim.Error = nil // the application ignores it
		if g.db.Dialect == core.MySQL {
			fixture.WantError(t, gormoutbox.Publish(t.Context(), victim, fixture.Event("ghost.after")),
				core.ErrTxAborted)
		}
		t.Logf("Commit of the victim: %v", victim.Commit().Error)
		g.wantRows(t)
		g.WantHot(t)
		fixture.Must(t, len(o.Recorded()) == 1, "the recorder lost the event of the victim")
	})
}

func TestGORMConnectionLostAtCommit(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect == core.SQLite {
			t.Log("no connection to lose")
			return
		}
		g.RunRelay(t)
		tx := g.Begin()
		fixture.NoError(t, tx.Create(newOrder("lost")).Error)
		adapters.Disconnect(gormoutbox.Context(t.Context(), tx), t, g.db)
		fixture.WantError(t, tx.Commit().Error, core.ErrCommitUnknown)
		g.wantRows(t)
		g.WantHot(t)
	})
}

// A pool opened with the connector tracks its transactions below GORM, so the plugin does not.
func TestGORMOnConnectorPool(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		if g.db.Name == "mysql" && g.PrepareStmt {
			g.wantSavepointRefused(t, func(tx *gorm.DB) error { return tx.Exec("SAVEPOINT q").Error })
			return
		}
		fixture.NoError(t, g.Create(newOrder("implicit")).Error)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			fixture.NoError(t, publishAll(tx, "kept"))
			fixture.NoError(t, tx.Exec("SAVEPOINT q").Error)
			fixture.NoError(t, publishAll(tx, "ghost"))
			fixture.NoError(t, tx.Exec("ROLLBACK TO SAVEPOINT q").Error)
			return publishAll(tx, "after")
		}))
		fixture.NoError(t, g.Connection(func(db *gorm.DB) error { // begins on a raw *sql.Conn
			return db.Transaction(func(tx *gorm.DB) error { return publishAll(tx, "conn") })
		}))
		pool, err := g.DB.DB()
		fixture.NoError(t, err)
		foreign, err := pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		session := g.Session(&gorm.Session{NewDB: true, Context: t.Context()})
		session.Statement.ConnPool = foreign
		fixture.NoError(t, session.Create(newOrder("foreign")).Error)
		fixture.NoError(t, foreign.Commit())
		g.wantRows(t, "implicit", "kept", "after", "conn", "foreign")
		g.WantHot(t, "implicit", "kept", "after", "conn", "foreign")
		g.WantUntracked(t, 0)
	}, func(o *gormOptions) { o.connector = true })
}
