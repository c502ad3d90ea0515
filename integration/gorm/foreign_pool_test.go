package gorm_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// sharding does what gorm.io/sharding does to pools: each statement gets one around its own, whose
// COMMIT goes to the pool below unless that is a *sql.Tx.
type sharding struct{}

type shardingPool struct{ gorm.ConnPool }

func (sharding) Name() string { return "sharding" }

func (sharding) Initialize(db *gorm.DB) error {
	around := func(db *gorm.DB) { db.Statement.ConnPool = &shardingPool{db.Statement.ConnPool} }
	return errors.Join(
		db.Callback().Create().Before("*").Register("sharding", around),
		db.Callback().Update().Before("*").Register("sharding", around),
		db.Callback().Delete().Before("*").Register("sharding", around),
		db.Callback().Query().Before("*").Register("sharding", around),
		db.Callback().Row().Before("*").Register("sharding", around),
		db.Callback().Raw().Before("*").Register("sharding", around),
	)
}

func (p *shardingPool) BeginTx(ctx context.Context, opts *sql.TxOptions) (gorm.ConnPool, error) {
	switch b := p.ConnPool.(type) {
	case gorm.TxBeginner:
		return b.BeginTx(ctx, opts)
	case gorm.ConnPoolBeginner:
		return b.BeginTx(ctx, opts)
	}
	return p, nil
}

func (p *shardingPool) Commit() error {
	if _, ok := p.ConnPool.(*sql.Tx); ok {
		return nil
	}
	if tx, ok := p.ConnPool.(gorm.TxCommitter); ok {
		return tx.Commit()
	}
	return nil
}

func (p *shardingPool) Rollback() error {
	if tx, ok := p.ConnPool.(gorm.TxCommitter); ok {
		return tx.Rollback()
	}
	return nil
}

// The plugin's transaction must not commit at its first statement because another plugin takes its
// pool for one of its own.
func TestGORMPoolOfAnotherPluginAround(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for order, before := range map[string]func(t *testing.T, g *gormEnv){
		"before": func(t *testing.T, g *gormEnv) { fixture.NoError(t, g.Use(sharding{})) },
		"after":  nil,
	} {
		t.Run("registered "+order, func(t *testing.T) {
			t.Parallel()
			eachGORM(t, func(t *testing.T, g *gormEnv) {
				if before == nil {
					fixture.NoError(t, g.Use(sharding{}))
				}
				fixture.NoError(t, g.AutoMigrate(&gStat{}))
				mapProducts(g)
				writes := map[string]func(tx *gorm.DB) error{
					"create": func(tx *gorm.DB) error { return tx.Create(&gStat{Name: "a"}).Error },
					"update": func(tx *gorm.DB) error {
						return tx.Model(&gStat{}).Where("id > 0").Update("name", "b").Error
					},
					"delete":      func(tx *gorm.DB) error { return tx.Where("id > 0").Delete(&gStat{}).Error },
					"with events": func(tx *gorm.DB) error { return tx.Create(&gProduct{Name: "a"}).Error },
				}
				for name, write := range writes {
					err := g.Transaction(func(tx *gorm.DB) error {
						if err := write(tx); !errors.Is(err, core.ErrUntracked) {
							t.Errorf("%s: %v, want ErrUntracked", name, err)
						}
						return boom
					})
					fixture.WantError(t, err, boom)
					if err := write(g.DB); !errors.Is(err, core.ErrUntracked) {
						t.Errorf("%s alone: %v, want ErrUntracked", name, err)
					}
				}
				ran := false
				err := gormoutbox.Transactor(g.DB).RunInTx(t.Context(), func(context.Context, core.Tx) error {
					ran = true
					return nil
				})
				fixture.WantError(t, err, core.ErrUntracked)
				if ran {
					t.Error("RunInTx ran its function")
				}
				g.WantCount(t, "g_stats", 0)
				g.WantCount(t, "g_products", 0)
				g.wantRows(t)
			}, func(o *gormOptions) { o.before = before })
		})
	}
}

// A Transactor alone meets such a plugin too.
func TestGORMTransactorAndPoolOfAnotherPlugin(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.early.Use(sharding{}))
		err := gormoutbox.Transactor(g.early).RunInTx(t.Context(), func(context.Context, core.Tx) error {
			t.Error("RunInTx ran its function")
			return nil
		})
		fixture.WantError(t, err, core.ErrUntracked)
	}, func(o *gormOptions) {
		o.before = func(t *testing.T, g *gormEnv) {
			var err error
			g.early, err = gorm.Open(g.Dialector, &gorm.Config{})
			fixture.NoError(t, err)
		}
	})
}

// SQLTx gives a library the transaction that it wants.
func TestGORMSQLTx(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		fixture.NoError(t, g.AutoMigrate(&gStat{}))
		mapProducts(g)
		fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
			own, err := gormoutbox.SQLTx(tx)
			if err != nil {
				return err
			}
			if _, err := own.ExecContext(t.Context(), "INSERT INTO g_stats (name) VALUES ('by hand')"); err != nil {
				return err
			}
			return tx.Create(&gProduct{Name: "kept"}).Error
		}))
		g.WantCount(t, "g_stats", 1)
		g.wantRows(t, "product.kept.create")

		boom := errors.New("boom")
		fixture.WantError(t, g.Transaction(func(tx *gorm.DB) error {
			own, err := gormoutbox.SQLTx(tx)
			fixture.NoError(t, err)
			_, err = own.ExecContext(t.Context(), "INSERT INTO g_stats (name) VALUES ('gone')")
			fixture.NoError(t, err)
			return boom
		}), boom)
		g.WantCount(t, "g_stats", 1)

		_, err := gormoutbox.SQLTx(g.DB)
		fixture.WantError(t, err, core.ErrNoTransaction)
		_, err = gormoutbox.SQLTx(nil)
		fixture.WantError(t, err, core.ErrNoTransaction)
	})
}

// A server may end a transaction and tell nobody: a Galera node does while it executes a prepared
// statement. The following statements commit one by one, and COMMIT succeeds. The driver knows.
func TestGORMTransactionEndedInSilence(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		if g.db.Dialect != core.MySQL {
			t.Log("the database says so")
			return
		}
		mapProducts(g)
		err := g.Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&gProduct{Name: "undone"}).Error; err != nil {
				return err
			}
			conn := tx.Statement.ConnPool
			if cached, ok := conn.(*gorm.PreparedStmtTX); ok {
				conn = cached.Tx
			}
			behind := conn.(interface{ Conn() sqltx.TxConn })
			_, err := behind.Conn().ExecContext(t.Context(), "ROLLBACK")
			return err
		})
		fixture.WantError(t, err, core.ErrCommitUnknown)
		g.WantCount(t, "g_products", 0)
		g.wantRows(t)
	})
}
