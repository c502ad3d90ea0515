package gorm_test

import (
	"context"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func sqliteGORM(t *testing.T) (*gorm.DB, testdb.DB) {
	t.Helper()
	db := testdb.SQLite(t)
	g, err := gorm.Open(adapters.GORMDialector(db, nil), &gorm.Config{Logger: logger.Discard})
	fixture.NoError(t, err)
	raw, err := g.DB()
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = raw.Close() })
	return g, db
}

func TestGORMUseReportsMistakes(t *testing.T) {
	t.Parallel()
	shared := fixture.NewOutbox(t, testdb.SQLite(t), core.Config{})
	other := fixture.NewOutbox(t, testdb.Postgres(t), core.Config{})
	for name, tc := range map[string]struct {
		cfg  gormoutbox.Config
		want []string
	}{
		"outbox and its settings": {gormoutbox.Config{
			Outbox: shared, AutoCreate: true, Prefix: "x_",
			Publisher: core.NewRouter(),
		}, []string{"AutoCreate", "Prefix", "Publisher"}},
		"outbox elsewhere": {gormoutbox.Config{Outbox: other}, []string{"postgres", "sqlite"}},
		"hostile prefix":   {gormoutbox.Config{Prefix: "x; DROP TABLE y; --"}, []string{"refix"}},
		"configure": {
			gormoutbox.Config{Relay: relay.Config{Workers: -1}},
			[]string{"Workers is negative"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := sqliteGORM(t)
			err := g.Use(gormoutbox.Plugin(tc.cfg))
			fixture.Must(t, err != nil, "accepted")
			for _, want := range tc.want {
				fixture.Check(t, strings.Contains(err.Error(), want), "%q is not in %v", want, err)
			}
		})
	}
}

func TestGORMUnsupportedDialect(t *testing.T) {
	t.Parallel()
	g, err := gorm.Open(tests.DummyDialector{}, &gorm.Config{Logger: logger.Discard})
	fixture.NoError(t, err)
	if err := g.Use(gormoutbox.Plugin(gormoutbox.Config{})); err == nil ||
		!strings.Contains(err.Error(), `"dummy" is not supported`) {
		t.Fatalf("Use: %v", err)
	}
}

func TestGORMBeforeUse(t *testing.T) {
	t.Parallel()
	ob := gormoutbox.Plugin(gormoutbox.Config{})
	ctx := t.Context()
	_, err1 := ob.Backlog(ctx)
	_, err2 := ob.ListDead(ctx, core.DeadQuery{})
	_, err3 := ob.Redrive(ctx, core.AdminRequest{})
	_, err4 := ob.Discard(ctx, core.AdminRequest{})
	g, _ := sqliteGORM(t)
	for _, err := range []error{
		ob.Run(ctx), ob.Drain(ctx), err1, err2, err3, err4, ob.Publish(t.Context(), g),
		gormoutbox.Publish(t.Context(), g, fixture.Event("x")),
		new(gormoutbox.Outbox).Run(ctx),
	} {
		fixture.WantError(t, err, core.ErrNotInstalled)
	}
	fixture.Check(t, ob.Outbox() == nil, "Outbox is not nil")
}

func TestGORMUseTwice(t *testing.T) {
	t.Parallel()
	g, _ := sqliteGORM(t)
	ob := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	fixture.NoError(t, g.Use(ob))
	fixture.WantError(t, g.Use(ob), gorm.ErrRegistered)
	fixture.WantError(t, g.Use(gormoutbox.Plugin(gormoutbox.Config{})), gorm.ErrRegistered)
	another, _ := sqliteGORM(t)
	if err := another.Use(ob); err == nil || !strings.Contains(err.Error(), "another *gorm.DB") {
		t.Fatalf("one plugin on two databases: %v", err)
	}
}

func TestGORMTwoOutboxes(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]bool{"plain": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			g := openGORM(t, testdb.SQLite(t), gormOptions{prepare: prepare})
			audit := gormoutbox.NamedPlugin("audit", gormoutbox.Config{Prefix: "audit_", AutoCreate: true})
			fixture.NoError(t, g.Use(audit))
			gormoutbox.On(audit,
				func(op core.Op, o *gOrder) []core.Event { return []core.Event{{Type: "audited." + op.String()}} })
			g.RunRelay(t)
			fixture.NoError(t, g.Transaction(func(tx *gorm.DB) error {
				fixture.NoError(t, tx.Create(newOrder("placed")).Error)
				if err := gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event("which")); err == nil {
					t.Error("Publish chose one of two outboxes")
				}
				fixture.NoError(t, tx.Exec("SAVEPOINT q").Error) // seen once, though two plugins watch
				fixture.NoError(t, g.ob.Publish(tx.Statement.Context, tx, fixture.Event("ghost")))
				fixture.NoError(t, tx.Exec("ROLLBACK TO SAVEPOINT q").Error)
				fixture.NoError(t, tx.Exec("RELEASE SAVEPOINT q").Error)
				return g.ob.Publish(tx.Statement.Context, tx, fixture.Event("main"))
			}))
			g.wantRows(t, "main")
			g.WantHot(t, "main")
			var types []string // recorded events go to the last registered
			fixture.NoError(t, g.Table("audit_event").Pluck("event_type", &types).Error)
			fixture.SameSet(t, "events of the other outbox", types, []string{"audited.create", "placed"})
		})
	}
}

func TestGORMSharedOutbox(t *testing.T) {
	t.Parallel()
	g, db := sqliteGORM(t)
	ob := fixture.NewOutbox(t, db, core.Config{})
	plugin := gormoutbox.Plugin(gormoutbox.Config{Outbox: ob})
	fixture.NoError(t, g.Use(plugin))
	fixture.Must(t, plugin.Outbox() == ob, "another outbox")
	fixture.NoError(t,
		g.Transaction(func(tx *gorm.DB) error {
			return gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event("x"))
		}))
	backlog, err := plugin.Backlog(t.Context())
	fixture.NoError(t, err)
	fixture.Must(t, backlog.Pending == 1, "%d pending", backlog.Pending)
	fixture.WantError(t, plugin.Drain(t.Context()), core.ErrNoPublisher)
}

func TestGORMOnReportsMistakes(t *testing.T) {
	t.Parallel()
	ob := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	gormoutbox.On[gProduct](ob, nil)
	gormoutbox.On(ob, func(core.Op, **gProduct) []core.Event { return nil })
	g, _ := sqliteGORM(t)
	err := g.Use(ob)
	if err == nil || !strings.Contains(err.Error(), "nil function") ||
		!strings.Contains(err.Error(), "must be the model's struct") {
		t.Fatalf("Use: %v", err)
	}
	late := gormoutbox.Plugin(gormoutbox.Config{AutoCreate: true})
	fixture.NoError(t, g.Use(late))
	gormoutbox.OnContext[gProduct](late, nil)
	if err := g.Transaction(func(tx *gorm.DB) error {
		return gormoutbox.Publish(tx.Statement.Context, tx, fixture.Event("x"))
	}); err == nil || !strings.Contains(err.Error(), "nil function") {
		t.Fatalf("Publish: %v", err)
	}
	if err := late.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nil function") {
		t.Fatalf("Run: %v", err)
	}
}

func TestGORMTransactor(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		g.RunRelay(t)
		r := gormoutbox.Transactor(g.DB)
		fixture.NoError(t, r.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			db, err := gormoutbox.FromContext(ctx)
			fixture.NoError(t, err)
			fixture.NoError(t, db.Create(newOrder("outer")).Error)
			again := gormoutbox.Transactor(g.DB) // the same database is the same transaction
			fixture.WantError(t, again.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
				db, err := gormoutbox.FromContext(ctx)
				fixture.NoError(t, err)
				fixture.NoError(t, db.Create(newOrder("ghost")).Error)
				return fixture.ErrNoStock
			}), fixture.ErrNoStock)
			_, err = g.ob.Outbox().Publish(ctx, tx, fixture.Event("core"))
			return err
		}))
		g.wantRows(t, "outer", "core")
		g.WantHot(t, "outer", "core")
		g.WantCount(t, "g_orders", 1)

		_, err := gormoutbox.FromContext(t.Context())
		fixture.WantError(t, err, core.ErrNoTransaction)
		if err := gormoutbox.Transactor(nil).RunInTx(t.Context(), nil); err == nil {
			t.Error("a nil *gorm.DB was accepted")
		}
		if err := r.RunInTx(t.Context(), nil); err == nil {
			t.Error("a nil function was accepted")
		}
	}, func(o *gormOptions) { o.gorm.DisableNestedTransaction = true })
}

// RunInTx does not commit a transaction that the database may have rolled back unnoticed by the
// function.
func TestGORMTransactorAborted(t *testing.T) {
	t.Parallel()
	eachGORM(t, func(t *testing.T, g *gormEnv) {
		err := gormoutbox.Transactor(g.DB).RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
			db, err := gormoutbox.FromContext(ctx)
			fixture.NoError(t, err)
			fixture.NoError(t, db.Create(newOrder("placed")).Error)
			_ = db.Exec("SELECT * FROM there_is_no_such_table").Error
			return nil
		})
		if g.db.Dialect != core.Postgres { // the statement alone failed
			fixture.NoError(t, err)
			g.WantCount(t, "g_orders", 1)
			return
		}
		fixture.WantError(t, err, core.ErrTxAborted)
		g.wantRows(t)
		g.WantCount(t, "g_orders", 0)
	})
}

// Without the plugin a Transactor works too, but its commits are not tracked.
func TestGORMTransactorWithoutPlugin(t *testing.T) {
	t.Parallel()
	g, db := sqliteGORM(t)
	ob := fixture.NewOutbox(t, db, core.Config{})
	fixture.NoError(t, gormoutbox.Transactor(g).RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
		if !tx.Tracked() || tx.Dialect() != core.SQLite {
			t.Errorf("tracked %v, dialect %q", tx.Tracked(), tx.Dialect())
		}
		_, err := ob.Publish(ctx, tx, fixture.Event("x"))
		return err
	}))
	_, err := gormoutbox.TxOf(t.Context(), g)
	fixture.WantError(t, err, core.ErrNoTransaction)
	_, err = gormoutbox.TxOf(t.Context(), nil)
	fixture.WantError(t, err, core.ErrNoTransaction)
}
