package bun_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A statement that causes events and is in no transaction gets one of its own, wherever it runs. A
// pool of one connection is enough.
func TestBunWithoutATransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		b.RunRelay(t)
		b.SetMaxOpenConns(1)
		conn, err := b.Conn(t.Context())
		fixture.NoError(t, err)
		b.exec(t, t.Context(), conn.NewInsert().Model(&bProduct{Name: "pinned"}))
		fixture.NoError(t, conn.Close())
		p := &bProduct{Name: "x"}
		b.exec(t, t.Context(), b.NewInsert().Model(p))
		fixture.Check(t, p.ID == 2, "the key is %d", p.ID)
		b.exec(t, t.Context(), b.NewUpdate().Model(p).Set("stock = 2").WherePK())
		o := newBOrder("a")
		b.exec(t, t.Context(), b.NewInsert().Model(o))
		fixture.Check(t, len(o.Recorded()) == 0, "the event is still recorded")
		b.exec(t, t.Context(), b.NewInsert().Model(&bStrict{Name: "x"}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = b.NewInsert().Model(&bProduct{Name: "ended"}).Exec(ended)
		fixture.WantError(t, err, context.Canceled)
		resolved := bun.NewDB(b.DB.DB, b.Dialect(), bun.WithConnResolver(resolver{b.DB.DB})).WithQueryHook(b.ob.Hook())
		b.exec(t, t.Context(), resolved.NewInsert().Model(&bProduct{Name: "resolved"}))
		b.WantCount(t, "b_products", 3)
		b.wantRows(t, "product.pinned.create 1", "product.x.create 2", "product.x.update 2", "a 1", "strict.create 1",
			"product.resolved.create 3")
		b.WantHot(t, "product.pinned.create", "product.x.create", "product.x.update", "a", "strict.create",
			"product.resolved.create")
		b.wantNothingOut(t)
	})
}

// resolver is that of Bun for read replicas.
type resolver struct{ db *sql.DB }

func (r resolver) ResolveConn(context.Context, bun.Query) bun.IConn { return r.db }
func (r resolver) Close() error                                     { return nil }

// Without a transaction, what fails in the function takes the row with it.
func TestBunWithoutATransactionFails(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		b.SetMaxOpenConns(1)
		b.RunRelay(t)
		fail := func() error { panic(errReason) }
		bunoutbox.OnContext(b.ob, func(context.Context, core.Op, *bProduct) ([]core.Event, error) {
			return []core.Event{{Type: "t"}}, fail()
		})
		insert := func() (err error) {
			defer func() {
				if r := recover(); r != nil {
					err = r.(error)
				}
			}()
			p := &bProduct{Name: "x"}
			_, err = b.NewInsert().Model(p).Exec(t.Context())
			fixture.Check(t, p.ID == 0, "the model has the key of a row that is not there: %d", p.ID)
			return err
		}
		fixture.WantError(t, insert(), errReason)
		fail = func() error { return errReason }
		fixture.WantError(t, insert(), errReason)
		o := newBOrder()
		o.Record(struct{}{}) // has no type
		_, err := b.NewInsert().Model(o).Exec(t.Context())
		fixture.WantError(t, err, core.ErrInvalidEvent)
		fixture.Check(t, o.ID == 0 && len(o.Recorded()) == 1, "the order %d has %d events", o.ID, len(o.Recorded()))
		b.wantNothingOut(t)
		b.WantCount(t, "b_products", 0)
		b.WantCount(t, "b_orders", 0)
		b.wantRows(t)
		fail = func() error { return nil }
		_, err = b.NewInsert().Model(&bProduct{Name: "x"}).Exec(t.Context())
		fixture.NoError(t, err)
		b.WantHot(t, "t")
	})
}

// The error of the COMMIT is that of the statement.
func TestBunWithoutATransactionAndCommitFails(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		if b.db.Dialect == core.MySQL {
			t.Log("there are no deferred constraints")
			return
		}
		if b.db.Dialect == core.SQLite {
			b.SetMaxOpenConns(1)
			fixture.MustExec(t, b.DB.DB, "PRAGMA foreign_keys = ON")
		}
		fixture.MustExec(t, b.Plain, "CREATE TABLE b_children (id BIGINT PRIMARY KEY, parent BIGINT REFERENCES "+
			"b_stricts (id) DEFERRABLE INITIALLY DEFERRED)")
		type bChild struct {
			bun.BaseModel `bun:"table:b_children"`
			ID            int64 `bun:",pk"`
			Parent        int64
			core.Recorder `bun:"-"`
		}
		child := &bChild{ID: 1, Parent: 7}
		child.Record(core.Event{Type: "t"})
		_, err := b.NewInsert().Model(child).Exec(t.Context())
		fixture.Check(t, err != nil, "committed")
		fixture.Check(t, len(child.Recorded()) == 1, "%d events are recorded", len(child.Recorded()))
		b.WantCount(t, "b_children", 0)
		b.wantRows(t)
		b.wantNothingOut(t)
	})
}

// The function of a statement without a transaction finds that of the statement, and no other that
// its context has.
func TestBunOnWithoutATransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		var after int
		bunoutbox.OnContext(b.ob, func(ctx context.Context, op core.Op, p *bProduct) ([]core.Event, error) {
			if _, err := bunoutbox.FromContext(ctx); !errors.Is(err, core.ErrNoTransaction) {
				return nil, fmt.Errorf("FromContext has found another transaction: %w", err)
			}
			tx, ok := core.TxFromContext(ctx)
			if !ok {
				return nil, errors.New("no transaction in the context")
			}
			if err := sqltx.AfterCommit(tx, func() { after++ }); err != nil {
				return nil, err
			}
			n, err := tx.Exec(ctx, "UPDATE b_products SET stock = 5 WHERE name = 'x'")
			if err != nil || n != 1 {
				return nil, fmt.Errorf("changed %d rows: %w", n, err)
			}
			return nil, b.ob.Publish(ctx, nil, core.Event{Type: "published." + p.Name})
		})
		if b.db.Dialect == core.SQLite { // one transaction writes at a time
			b.exec(t, t.Context(), b.NewInsert().Model(&bProduct{Name: "x"}))
		} else {
			fixture.WantError(t, b.ob.RunInTx(t.Context(), func(ctx context.Context, _ bun.Tx) error {
				b.exec(t, ctx, b.NewInsert().Model(&bProduct{Name: "x"})) // by mistake not the tx
				return errReason
			}), errReason)
		}
		b.WantCount(t, "b_products WHERE stock = 5", 1)
		b.wantRows(t, "published.x")
		fixture.Await(t, "the function of AfterCommit", func() bool { return after == 1 })
	})
}

// A function in a transaction whose context has another one finds its own.
func TestBunOnInAnotherTransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		if b.db.Dialect == core.SQLite {
			t.Log("one transaction writes at a time")
			return
		}
		bunoutbox.OnContext(b.ob, func(ctx context.Context, _ core.Op, p *bProduct) ([]core.Event, error) {
			if _, err := bunoutbox.FromContext(ctx); !errors.Is(err, core.ErrNoTransaction) {
				return nil, fmt.Errorf("FromContext has found another transaction: %w", err)
			}
			return nil, b.ob.Publish(ctx, nil, core.Event{Type: "published." + p.Name})
		})
		fixture.WantError(t, b.ob.RunInTx(t.Context(), func(ctx context.Context, _ bun.Tx) error {
			other, err := b.BeginTx(t.Context(), nil)
			fixture.NoError(t, err)
			b.exec(t, ctx, other.NewInsert().Model(&bProduct{Name: "x"}))
			fixture.NoError(t, other.Commit())
			return errReason
		}), errReason)
		b.WantCount(t, "b_products", 1)
		b.wantRows(t, "published.x")
	})
}

// hooks are query hooks that a program adds after that of the outbox.
type hooks struct{ before, after func(event *bun.QueryEvent) }

func (h hooks) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if h.before != nil && event.Operation() == "INSERT" {
		h.before(event)
	}
	return ctx
}

func (h hooks) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if h.after != nil && event.Operation() == "INSERT" {
		h.after(event)
	}
}

// A hook that was added later panics after the statement, and the program recovers within the
// transaction: the row and its event commit together. The query can be used again.
func TestBunLaterHookPanics(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		panics := true
		db := b.WithQueryHook(hooks{after: func(*bun.QueryEvent) {
			if panics {
				panic("reason")
			}
		}})
		try := func(ctx context.Context, q *bun.InsertQuery) {
			defer func() {
				if r := recover(); r != "reason" {
					t.Errorf("recovered %v", r)
				}
			}()
			_, _ = q.Exec(ctx)
		}
		o := newBOrder("recorded")
		fixture.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			try(ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
			try(ctx, tx.NewInsert().Model(o))
			return nil
		}))
		b.WantCount(t, "b_products", 1)
		b.WantCount(t, "b_orders", 1)
		b.wantRows(t, "product.x.create 1", "recorded 1")
		fixture.Check(t, len(o.Recorded()) == 0, "the event is still recorded")
		q := db.NewInsert().Model(&bPair{A: 1, B: "x"}).Ignore()
		try(t.Context(), q)
		panics = false
		b.exec(t, t.Context(), q) // the row is there
		b.wantRows(t, "product.x.create 1", "recorded 1", "pair.create 1,x")
		b.wantNothingOut(t)
	})
}

// Two outboxes on one *bun.DB get the same rows. Recorded events go to the one that was added last.
func TestBunTwoOutboxes(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		second, err := bunoutbox.New(b.bare, bunoutbox.Config{
			Prefix: "second_", AutoCreate: true, Wake: core.WakePolicy{Disable: true},
		})
		fixture.NoError(t, err)
		var fails error
		bunoutbox.OnContext(second, func(_ context.Context, op core.Op, p *bProduct) ([]core.Event, error) {
			return []core.Event{{Type: "second." + p.Name}}, fails
		})
		db := b.WithQueryHook(second.Hook())
		fixture.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
			b.exec(t, ctx, tx.NewInsert().Model(newBOrder("recorded")))
			return nil
		}))
		b.exec(t, t.Context(), db.NewInsert().Model(&bProduct{Name: "y"}))
		fails = errReason
		_, err = db.NewInsert().Model(&bProduct{Name: "z"}).Exec(t.Context())
		fixture.WantError(t, err, errReason)
		b.wantRows(t, "product.x.create 1", "product.y.create 2")
		b.WantCount(t, "second_event WHERE event_type LIKE 'second%'", 2)
		b.WantCount(t, "second_event WHERE event_type = 'recorded'", 1)
		b.WantCount(t, "b_products", 2)
	})
}

// A query that reads without a RETURNING gets no rows, as without the outbox.
func TestBunQueryWithoutReturning(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1"}, func(t *testing.T, b *bunEnv) {
		var titles []string
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			_, err := tx.NewUpdate().Model(doc("d1")).Set("stars = 8").WherePK().Exec(ctx, &titles)
			fixture.NoError(t, err)
		})
		fixture.Check(t, len(titles) == 0, "returned %v", titles)
		err := b.NewUpdate().Model(doc("d1")).Set("stars = 9").WherePK().Scan(t.Context(), new(string))
		fixture.WantError(t, err, sql.ErrNoRows)
		b.wantRows(t, "update title of d1/8 d1", "update title of d1/9 d1")
	})
}

// One query object in two goroutines is a mistake that is found.
func TestBunQueryIsSentTwice(t *testing.T) {
	t.Parallel()
	eachDocs(t, []string{"d1"}, func(t *testing.T, b *bunEnv) {
		var again error
		db := b.WithQueryHook(hooks{before: func(event *bun.QueryEvent) {
			q := *event.IQuery.(*bun.InsertQuery)
			_, again = q.NewRaw("?", bun.Safe(event.Query)).Exec(t.Context())
		}})
		_, err := db.NewInsert().Model(doc("d2")).Returning("").Exec(t.Context())
		if again == nil {
			again = err
		}
		fixture.Check(t, again != nil, "the statement was sent twice")
	})
}

// Events whose data is the model have its generated key. If they cannot be written, the model has
// no key.
func TestBunGeneratedKeys(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		orders := []*bOrder{{}, {}, {}}
		for _, o := range orders[:2] {
			o.Record(core.Event{Type: "placed", Data: o})
		}
		b.inTx(t, func(ctx context.Context, tx bun.Tx) { b.exec(t, ctx, tx.NewInsert().Model(&orders)) })
		rows, err := b.Plain.QueryContext(t.Context(), "SELECT payload FROM outbox_event")
		fixture.NoError(t, err)
		defer rows.Close()
		var ids []string
		for rows.Next() {
			var payload []byte
			fixture.NoError(t, rows.Scan(&payload))
			var stored bOrder
			fixture.NoError(t, json.Unmarshal(payload, &stored))
			ids = append(ids, fmt.Sprint(stored.ID))
		}
		fixture.NoError(t, rows.Err())
		fixture.SameSet(t, "keys in payloads", ids, []string{"1", "2"})
		failed := newBOrder()
		failed.Record(core.Event{Type: "placed", Data: failed}, struct{}{})
		err = b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(failed).Exec(ctx)
			return err
		})
		fixture.WantError(t, err, core.ErrInvalidEvent)
		fixture.Check(t, failed.ID == 0, "the key is %d", failed.ID)
	})
}

// The statements of many rows, and REPLACE.
func TestBunManyRows(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		told := 0
		bunoutbox.OnContext(b.ob, func(_ context.Context, op core.Op, p *bPair) ([]core.Event, error) {
			if p.B != "x" || op == core.OpCreate && p.N != p.A {
				return nil, fmt.Errorf("told %+v", p)
			}
			told++
			return nil, nil
		})
		var pairs []*bPair
		for i := range 2500 {
			pairs = append(pairs, &bPair{A: i, B: "x", N: i})
		}
		for _, q := range []bunQuery{
			b.NewInsert().Model(&pairs), b.NewUpdate().Model(&pairs).Set("n = n + 1").WherePK(),
			b.NewUpdate().Model((*bPair)(nil)).Set("n = 0").Where("1 = 1"),
			b.NewDelete().Model((*bPair)(nil)).Where("n = 0"),
		} {
			told = 0
			b.exec(t, t.Context(), q)
			fixture.Check(t, told == len(pairs), "%d rows were told, want %d", told, len(pairs))
		}
		if !b.HasFeature(feature.InsertOnDuplicateKey) {
			return
		}
		for range 2 {
			told = 0
			b.exec(t, t.Context(), b.NewInsert().Model(&[]*bPair{{A: 1, B: "x"}, {A: 2, B: "x"}}).Replace())
			fixture.Check(t, told == 2, "%d rows were replaced", told)
		}
	})
}

// The end of a context that comes in the middle of a statement's own transaction leaves neither a
// part of it nor a connection that is out.
func TestBunContextEndsWithoutATransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		bunoutbox.On(b.ob, func(core.Op, *bProduct) []core.Event {
			cancel()
			return []core.Event{{Type: "t"}}
		})
		_, err := b.NewInsert().Model(&bProduct{Name: "x"}).Exec(ctx)
		var n int64
		if err == nil {
			n = 1
		}
		b.WantCount(t, "b_products", n)
		b.WantCount(t, "outbox_event", n)
		b.wantNothingOut(t)
	})
}
