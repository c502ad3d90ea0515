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

// gormWay is how GORM is set up.
type gormWay struct {
	prepare   bool // PrepareStmt
	connector bool // the pool is opened with sqloutbox.Connector
	noPlugin  bool // nothing but gormoutbox.Transactor
}

// The adapter suite over GORM, with and without prepared statements, on a plain pool and on one opened with Connector, and of the Transactor
// alone.
func TestAdapterSuiteGORM(t *testing.T) {
	for name, way := range map[string]gormWay{
		"plain": {}, "prepared": {prepare: true}, "prepared and connector": {prepare: true, connector: true},
		"no plugin": {noPlugin: true}, "no plugin and prepared": {noPlugin: true, prepare: true},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				h := adapterHarness(db, func(t *testing.T, db testdb.DB, cfg core.Config) outboxtest.Adapter {
					return gormAdapter(t, db, way, cfg)
				})
				h.Programs = cmp.Or(h.Programs, 225)
				outboxtest.TestAdapter(t, h)
			})
		})
	}
}

func gormAdapter(t *testing.T, db testdb.DB, way gormWay, cfg core.Config) outboxtest.Adapter {
	t.Helper()
	var pool gorm.ConnPool
	if way.connector {
		pool = trackedPool(t, db)
	} else {
		pool = db.Open(t)
	}
	gdb, err := gorm.Open(dialector(db, pool), &gorm.Config{PrepareStmt: way.prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	ob := newOutbox(t, db, cfg)
	publish := func(ctx context.Context, tx *gorm.DB, events []core.Event) error {
		return gormoutbox.Publish(tx, events...)
	}
	if way.noPlugin {
		publish = func(ctx context.Context, _ *gorm.DB, events []core.Event) error {
			_, err := ob.Publish(ctx, nil, events...) // the transaction is in the context
			return err
		}
	} else if err := gdb.Use(gormoutbox.Plugin(gormoutbox.Config{Outbox: ob})); err != nil {
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
			return publish(ctx, tx, events)
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
