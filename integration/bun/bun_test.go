package bun_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// bunEnv is a database opened with Bun and the hook.
type bunEnv struct {
	*bun.DB
	*fixture.FastPath
	bare *bun.DB // without the hook
	db   testdb.DB
	way  adapters.BunWay
	ob   *bunoutbox.Outbox
}

// eachBunEnv runs fn on each database, in each way to open it for which only returns true.
func eachBunEnv(t *testing.T, only func(adapters.BunWay) bool, fn func(t *testing.T, b *bunEnv),
	options ...func(*bunoutbox.Config),
) {
	t.Helper()
	eachBun(t, only, func(t *testing.T, db testdb.DB, way adapters.BunWay) {
		fn(t, newBunEnv(t, db, way, options...))
	})
}

// withConnector reports whether the pool is opened with the connector.
func withConnector(way adapters.BunWay) bool { return way.Connector }

// withoutConnector reports whether the pool is opened without the connector.
func withoutConnector(way adapters.BunWay) bool { return !way.Connector }

func newBunEnv(t *testing.T, db testdb.DB, way adapters.BunWay, options ...func(*bunoutbox.Config)) *bunEnv {
	t.Helper()
	b := &bunEnv{db: db, way: way, FastPath: fixture.NewFastPath(t, db), bare: adapters.OpenBun(t, db, way)}
	for _, model := range []any{(*bOrder)(nil), (*bProduct)(nil), (*bCoupon)(nil), (*bPair)(nil), (*bStrict)(nil)} {
		if _, err := b.bare.NewCreateTable().Model(model).Exec(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// On SQLite a relay keeps a connection for wake-ups.
	config := bunoutbox.Config{Wake: core.WakePolicy{Disable: true}}
	b.Watch(&config)
	for _, set := range options {
		set(&config)
	}
	var err error
	b.ob, err = bunoutbox.New(b.bare, config)
	fixture.NoError(t, err)
	b.Outbox = b.ob.Outbox()
	b.DB = b.bare.WithQueryHook(b.ob.Hook())
	return b
}

// wantRows compares the events in the table, each as its type and, if it has one, its aggregate id.
func (b *bunEnv) wantRows(t *testing.T, want ...string) {
	t.Helper()
	fixture.SameSet(t, "events in the table", b.Events(t), want)
}

// bunQuery has the method that all queries of Bun have.
type bunQuery interface {
	Exec(ctx context.Context, dest ...any) (sql.Result, error)
}

// exec runs a query of Bun and requires that it succeeds.
func (b *bunEnv) exec(t *testing.T, ctx context.Context, q bunQuery) {
	t.Helper()
	if _, err := q.Exec(ctx); err != nil {
		t.Fatal(err)
	}
}

// inTx runs fn in a transaction that must commit.
func (b *bunEnv) inTx(t *testing.T, fn func(ctx context.Context, tx bun.Tx)) {
	t.Helper()
	fixture.NoError(t,
		b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error { fn(ctx, tx); return nil }))
}

func (b *bunEnv) publish(ctx context.Context, tx bun.IDB, types ...string) error {
	for _, typ := range types {
		if err := b.ob.Publish(ctx, tx, core.Event{Type: typ}); err != nil {
			return err
		}
	}
	return nil
}

var errReason = errors.New("reason")

// bOrder records its events.
type bOrder struct {
	bun.BaseModel `bun:"table:b_orders,alias:o"`
	ID            int64 `bun:",pk,autoincrement"`
	Status        string
	Version       int

	core.Recorder `bun:"-" json:"-"`
}

// newBOrder returns an order with one recorded event for each name.
func newBOrder(names ...string) *bOrder {
	o := &bOrder{Status: "placed"}
	for _, n := range names {
		o.Record(fixture.Happened{Name: n, Of: o})
	}
	return o
}

// bProduct is mapped by On functions.
type bProduct struct {
	bun.BaseModel `bun:"table:b_products"`
	ID            int64 `bun:",pk,autoincrement"`
	Name          string
	Stock         int
	DeletedAt     time.Time `bun:",soft_delete,nullzero"`
}

// bCoupon has a key that the program sets, and records its events.
type bCoupon struct {
	bun.BaseModel `bun:"table:b_coupons"`
	Code          string `bun:"type:varchar(64),pk"`
	Percent       int

	*core.Recorder `bun:"-" json:"-"`
}

func (*bCoupon) AggregateType() string { return "coupon" }

// bPair has a key of two columns.
type bPair struct {
	bun.BaseModel `bun:"table:b_pairs"`
	A             int    `bun:",pk"`
	B             string `bun:"type:varchar(64),pk"`
	N             int
}

// bPairPointer is bPair with pointers.
type bPairPointer struct {
	bun.BaseModel `bun:"table:b_pairs"`
	A             *adapters.CaptureKey `bun:",pk"`
	B             *string              `bun:",pk"`
	N             int
}

// bStrict has hooks that make a statement fail without the outbox.
type bStrict struct {
	bun.BaseModel `bun:"table:b_stricts"`
	ID            int64 `bun:",pk,autoincrement"`
	Name          string
}

func (*bStrict) BeforeInsert(ctx context.Context, q *bun.InsertQuery) error {
	return bunoutbox.BeforeInsert(ctx, q)
}

func (*bStrict) BeforeUpdate(ctx context.Context, q *bun.UpdateQuery) error {
	return bunoutbox.BeforeUpdate(ctx, q)
}

func (*bStrict) BeforeDelete(ctx context.Context, q *bun.DeleteQuery) error {
	return bunoutbox.BeforeDelete(ctx, q)
}

// mapBun registers functions that name what was done to which row.
func mapBun(b *bunEnv) {
	bunoutbox.On(b.ob, func(op core.Op, p *bProduct) []core.Event {
		return []core.Event{{Type: fmt.Sprintf("product.%s.%s", p.Name, op), Data: p}}
	})
	bunoutbox.On(b.ob,
		func(op core.Op, p *bPair) []core.Event { return []core.Event{{Type: "pair." + op.String(), Data: p}} })
	bunoutbox.On(b.ob, func(op core.Op, p *bPairPointer) []core.Event {
		return []core.Event{{Type: "pointers." + op.String(), Data: p}}
	})
	bunoutbox.OnContext(b.ob, func(_ context.Context, op core.Op, s *bStrict) ([]core.Event, error) {
		if s.Name == "bad" {
			return nil, errReason
		}
		return []core.Event{{Type: "strict." + op.String(), Data: s}}, nil
	})
}
