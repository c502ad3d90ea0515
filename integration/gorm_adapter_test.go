package integration

import (
	"cmp"
	"context"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// The adapter suite over GORM, with and without prepared statements, on a plain pool and on one opened with Connector.
func TestAdapterSuiteGORM(t *testing.T) {
	for name, way := range map[string]struct{ prepare, connector bool }{
		"plain": {}, "prepared": {prepare: true}, "prepared and connector": {prepare: true, connector: true},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				h := adapterHarness(db, func(t *testing.T, db testdb.DB, cfg core.Config) outboxtest.Adapter {
					return gormAdapter(t, db, way.prepare, way.connector, cfg)
				})
				h.Programs = cmp.Or(h.Programs, 225)
				outboxtest.TestAdapter(t, h)
			})
		})
	}
}

func gormAdapter(t *testing.T, db testdb.DB, prepare, connector bool, cfg core.Config) outboxtest.Adapter {
	t.Helper()
	var pool gorm.ConnPool
	if connector {
		pool = trackedPool(t, db)
	} else {
		pool = db.Open(t)
	}
	gdb, err := gorm.Open(dialector(db, pool), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	ob := newOutbox(t, db, cfg)
	if err := gdb.Use(gormoutbox.Plugin(gormoutbox.Config{Outbox: ob})); err != nil {
		t.Fatal(err)
	}
	return outboxtest.Adapter{
		Outbox:     ob,
		Transactor: gormoutbox.Transactor(gdb),
		Nested: func(ctx context.Context, fn func(context.Context) error) error {
			tx, err := gormoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			return tx.Transaction(func(*gorm.DB) error { return fn(ctx) })
		},
		Publish: func(ctx context.Context, events ...core.Event) error {
			tx, err := gormoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			return gormoutbox.Publish(tx, events...)
		},
		Exec: func(ctx context.Context, query string) error {
			tx, err := gormoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			return tx.Exec(query).Error
		},
		Stored:       storedEvents(db.Open(t)),
		RefuseCommit: refuseCommit(t, db),
	}
}
