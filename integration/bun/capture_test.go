package bun_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
)

// Each case runs statements in one transaction of RunInTx and names the events that are in the
// table after it.
func TestBunCaptures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx)
		want []string
	}{
		"recorded events of an insert": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(newBOrder("a", "b")))
		}, []string{"a 1", "b 1"}},
		"recorded events of a batch, element by element": {func(
			t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx,
		) {
			orders := []*bOrder{newBOrder("a"), newBOrder(), newBOrder("c")}
			b.exec(t, ctx, tx.NewInsert().Model(&orders))
		}, []string{"a 1", "c 3"}},
		"recorded events of a batch of values": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			orders := []bOrder{*newBOrder("a"), *newBOrder("b")}
			for i := range orders {
				orders[i].Adopt() // the values moved here
			}
			b.exec(t, ctx, tx.NewInsert().Model(&orders))
		}, []string{"a 1", "b 2"}},
		"recorded events of an update and a delete": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			o := newBOrder()
			b.exec(t, ctx, tx.NewInsert().Model(o))
			o.Record(fixture.Happened{Name: "paid"})
			b.exec(t, ctx, tx.NewUpdate().Model(o).Set("status = 'paid'").WherePK())
			o.Record(fixture.Happened{Name: "gone"})
			b.exec(t, ctx, tx.NewDelete().Model(o).WherePK())
		}, []string{"paid 1", "gone 1"}},
		"recorded events with a foreign context": {func(t *testing.T, _ context.Context, b *bunEnv, tx bun.Tx) {
			b.exec(t, context.Background(), tx.NewInsert().Model(newBOrder("a")))
		}, []string{"a 1"}},
		"an update without effect": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			o := newBOrder("never")
			o.ID = 99
			b.exec(t, ctx, tx.NewUpdate().Model(o).WherePK())
			if n := len(o.Recorded()); n != 1 {
				t.Errorf("%d events are recorded, want 1", n)
			}
		}, nil},
		"a key of the application's": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			c := &bCoupon{Code: "SUMMER", Percent: 10, Recorder: &core.Recorder{}}
			c.Record(fixture.Happened{Name: "issued"})
			b.exec(t, ctx, tx.NewInsert().Model(c))
		}, []string{"issued SUMMER"}},
		"On of an insert has the generated key": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
		}, []string{"product.x.create 1"}},
		"On of an insert without RETURNING": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			if b.HasFeature(feature.Returning) { // without RETURNING, Bun and the event do not get the key
				b.exec(t, ctx, tx.NewInsert().Model(&bProduct{ID: 1, Name: "x"}).Returning(""))
				b.exec(t, ctx, tx.NewInsert().Model(&[]*bProduct{{ID: 2, Name: "y"}, {ID: 3, Name: "z"}}).Returning(""))
				return
			}
			p := &bProduct{Name: "x"}
			b.exec(t, ctx, tx.NewInsert().Model(p).Returning(""))
			fixture.Check(t, p.ID == 1, "the key is %d", p.ID)
			b.exec(t, ctx, tx.NewInsert().Model(&[]*bProduct{{Name: "y"}, {Name: "z"}}).Returning(""))
		}, []string{"product.x.create 1", "product.y.create 2", "product.z.create 3"}},
		"On of a batch": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(&[]bProduct{{Name: "x"}, {Name: "y"}}))
		}, []string{"product.x.create 1", "product.y.create 2"}},
		"On of an update by key": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			p := &bProduct{Name: "x"}
			b.exec(t, ctx, tx.NewInsert().Model(p))
			p.Stock = 1
			b.exec(t, ctx, tx.NewUpdate().Model(p).WherePK())
			b.exec(t, ctx, tx.NewUpdate().Model(p).Set("stock = 2").Where("id = ?", p.ID))
		}, []string{"product.x.create 1", "product.x.update 1", "product.x.update 1"}},
		"On of a bulk update": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			ps := []*bProduct{{Name: "x"}, {Name: "y"}}
			b.exec(t, ctx, tx.NewInsert().Model(&ps))
			if !b.HasFeature(feature.WithValues) { // Bun has no bulk update there
				for _, p := range ps {
					p.Stock = 5
					b.exec(t, ctx, tx.NewUpdate().Model(p).Column("stock").WherePK())
				}
				return
			}
			ps[0].Stock, ps[1].Stock = 5, 6
			b.exec(t, ctx, tx.NewUpdate().Model(&ps).Column("stock").Bulk())
		}, []string{"product.x.create 1", "product.y.create 2", "product.x.update 1", "product.y.update 2"}},
		"On of a bulk update with one of them twice": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			p := &bProduct{Name: "x"}
			b.exec(t, ctx, tx.NewInsert().Model(p))
			if !b.HasFeature(feature.WithValues) {
				b.exec(t, ctx, tx.NewUpdate().Model(p).Column("stock").WherePK())
				return
			}
			b.exec(t, ctx, tx.NewUpdate().Model(&[]*bProduct{p, p}).Column("stock").Bulk())
		}, []string{"product.x.create 1", "product.x.update 1"}},
		"On of a soft delete": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			ps := []*bProduct{{Name: "x"}, {Name: "y"}, {Name: "z"}}
			b.exec(t, ctx, tx.NewInsert().Model(&ps))
			b.exec(t, ctx, tx.NewDelete().Model(ps[0]).WherePK())
			rest := ps[1:]
			b.exec(t, ctx, tx.NewDelete().Model(&rest).WherePK())
			b.exec(t, ctx, tx.NewDelete().Model(ps[0]).WherePK().ForceDelete())
		}, []string{
			"product.x.create 1", "product.y.create 2", "product.z.create 3",
			"product.x.delete 1", "product.y.delete 2", "product.z.delete 3", "product.x.delete 1",
		}},
		"On of a composite key": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			pairs := []bPair{{A: 0, B: "x"}, {A: 1, B: "it's"}}
			b.exec(t, ctx, tx.NewInsert().Model(&pairs))
			b.exec(t, ctx, tx.NewUpdate().Model(&pairs[1]).Set("n = 1").WherePK())
			b.exec(t, ctx, tx.NewDelete().Model(&pairs).WherePK())
		}, []string{
			"pair.create 0,x", "pair.create 1,it's", "pair.update 1,it's", "pair.delete 0,x",
			"pair.delete 1,it's",
		}},
		"On of a composite key of pointers": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			pair := &bPairPointer{A: adapters.NewCaptureKey("1"), B: new("x")}
			b.exec(t, ctx, tx.NewInsert().Model(pair))
			b.exec(t, ctx, tx.NewUpdate().Model(pair).Set("n = 1").WherePK())
			b.exec(t, ctx, tx.NewDelete().Model(pair).WherePK())
			for _, unset := range []*bPairPointer{{}, {B: new("x")}} {
				b.exec(t, ctx, tx.NewInsert().Model(pair))
				b.exec(t, ctx, tx.NewDelete().Model(unset).Where("n = 0"))
			}
		}, []string{
			"pointers.create 1,x", "pointers.update 1,x", "pointers.delete 1,x", "pointers.create 1,x",
			"pointers.delete 1,x", "pointers.create 1,x", "pointers.delete 1,x",
		}},
		"an upsert is never a create": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			for range 2 {
				q := tx.NewInsert().Model(&bPair{A: 1, B: "x", N: 1})
				if b.db.Dialect == core.MySQL {
					q = q.On("DUPLICATE KEY UPDATE").Set("n = n + 1")
				} else {
					q = q.On("CONFLICT (a, b) DO UPDATE").Set("n = EXCLUDED.n + 1")
				}
				b.exec(t, ctx, q)
			}
		}, []string{"pair.upsert 1,x", "pair.upsert 1,x"}},
		"a conflict that does nothing": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			for range 2 {
				b.exec(t, ctx, tx.NewInsert().Model(&bPair{A: 1, B: "ON CONFLICT"}).Ignore())
			}
		}, []string{"pair.create 1,ON CONFLICT"}},
		"data that looks like an upsert": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(&bPair{A: 1, B: `\' ON CONFLICT DO NOTHING`}))
		}, []string{`pair.create 1,\\' ON CONFLICT DO NOTHING`}}, // a backslash of a composite key is doubled
		"two events of one model in one transaction": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			o := newBOrder("a")
			b.exec(t, ctx, tx.NewInsert().Model(o))
			b.exec(t, ctx, tx.NewUpdate().Model(o).WherePK().Set("version = 1")) // hands no event over again
		}, []string{"a 1"}},
		"a statement without a model is not seen": {func(t *testing.T, ctx context.Context, b *bunEnv, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(&map[string]any{"name": "m", "stock": 1}).Table("b_products"))
			_, err := tx.ExecContext(ctx, "UPDATE b_products SET stock = ?", 3)
			fixture.NoError(t, err)
			b.exec(t, ctx, tx.NewDelete().Table("b_products").Where("1 = 1"))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
				mapBun(b)
				b.inTx(t, func(ctx context.Context, tx bun.Tx) { tc.do(t, ctx, b, tx) })
				b.wantRows(t, tc.want...)
			})
		})
	}
}

// A function gets each row that a statement changed, whatever the statement says about its rows.
func TestBunKeyless(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(ctx context.Context, tx bun.Tx) error
		want string
	}{
		"update of a nil model": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model((*bProduct)(nil)).Set("stock = 9").Where("name = ?", "x").Exec(ctx)
			return err
		}, "product.x.update 1"},
		"update by another column": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&bProduct{ID: 1, Stock: 9}).Column("stock").Where("name = ?", "x").Exec(ctx)
			return err
		}, "product.x.update 1"},
		"update by a key that is not the model's": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&bProduct{ID: 2, Stock: 9}).Column("stock").Where("id = ?", 1).Exec(ctx)
			return err
		}, "product.x.update 1"},
		"update by the key or something else": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&bProduct{ID: 1, Stock: 9}).Column("stock").Where("id = ?",
				1).WhereOr("name = ?", "x").Exec(ctx)
			return err
		}, "product.x.update 1"},
		"update of data that looks like a key": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewUpdate().Model(&bProduct{ID: 1, Stock: 9}).Set("stock = 9").Where("name <> ? AND stock < 9",
				" WHERE (id = 1)").Exec(ctx)
			return err
		}, "product.x.update 1"},
		"delete": {func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model((*bProduct)(nil)).Where("name = ?", "x").Exec(ctx)
			return err
		}, "product.x.delete 1"},
	} {
		t.Run(name, func(t *testing.T) {
			eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
				b.inTx(t, func(ctx context.Context, tx bun.Tx) {
					b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
				})
				mapBun(b)
				fixture.NoError(t, b.ob.RunInTx(t.Context(), tc.do))
				b.WantCount(t, "b_products WHERE stock = 0 AND deleted_at IS NULL", 0)
				b.wantRows(t, tc.want)
			})
		})
	}
}

// A key in a condition does not name the row if another condition is joined to it by OR.
func TestBunKeyOrSomethingElse(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(&[]*bStrict{{Name: "x"}, {Name: "y"}}))
			b.exec(t, ctx, tx.NewUpdate().Model(&bStrict{ID: 1, Name: "z"}).Where("id = ?", 1).Where("name = ?", "x"))
			b.exec(t, ctx, tx.NewUpdate().Model(&bStrict{ID: 1}).Set("name = 'all'").Where("id = ?",
				1).WhereOr("name = ?", "y"))
		})
		b.wantRows(t, "strict.create 1", "strict.create 2", "strict.update 1", "strict.update 1", "strict.update 2")
	})
}

// A closure that is run again publishes its recorded events once, with the ids that they got when
// they were recorded.
func TestBunRecordedEventsOfARetriedClosure(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		o := newBOrder("placed")
		id := o.Recorded()[0].ID
		for attempt := range 3 {
			err := b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				o.ID = 0
				if _, err := tx.NewInsert().Model(o).Exec(ctx); err != nil {
					return err
				}
				if attempt < 2 {
					return errReason
				}
				return nil
			})
			if attempt < 2 {
				fixture.WantError(t, err, errReason)
				if n := len(o.Recorded()); n != 1 {
					t.Fatalf("%d events are recorded after a rollback, want 1", n)
				}
				continue
			}
			fixture.NoError(t, err)
		}
		if n := len(o.Recorded()); n != 0 {
			t.Fatalf("%d events are recorded after the commit, want none", n)
		}
		var stored string
		fixture.NoError(t, b.Plain.QueryRowContext(t.Context(), "SELECT event_id FROM outbox_event").Scan(&stored))
		fixture.Must(t, stored == id, "the event has the id %s, was recorded as %s", stored, id)
	})
}

// A *bun.DB that has the hook twice captures once.
func TestBunHookTwice(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		twice := b.WithQueryHook(b.ob.Hook())
		fixture.NoError(t, twice.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewInsert().Model(&bProduct{Name: "x"}).Exec(ctx)
			return err
		}))
		b.wantRows(t, "product.x.create 1")
	})
}

// An On function can read in the transaction of its statement.
func TestBunOnReadsInTheTransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		bunoutbox.OnContext(b.ob, func(ctx context.Context, _ core.Op, p *bProduct) ([]core.Event, error) {
			tx, err := bunoutbox.FromContext(ctx)
			if err != nil {
				return nil, err
			}
			n, err := tx.NewSelect().Model((*bProduct)(nil)).Count(ctx)
			return []core.Event{{Type: fmt.Sprintf("%d products", n)}}, err
		})
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
			b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "y"}))
		})
		b.wantRows(t, "1 products 1", "2 products 2")
	})
}

// The context of an On function has the transaction of its statement. The function publishes in it,
// and keeps nothing that works after its return.
func TestBunOnPublishesInTheTransaction(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		var kept core.Tx
		var heard []core.Outcome
		bunoutbox.OnContext(b.ob, func(ctx context.Context, _ core.Op, p *bProduct) ([]core.Event, error) {
			kept, _ = core.TxFromContext(ctx)
			if kept == nil {
				return nil, errors.New("no transaction in the context")
			}
			kept.OnOutcome(func(o core.Outcome) { heard = append(heard, o) })
			return nil, b.ob.Publish(ctx, nil, core.Event{Type: "published." + p.Name})
		})
		fail := errors.New("undo")
		for _, result := range []error{fail, nil} {
			err := b.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				b.exec(t, ctx, tx.NewInsert().Model(&bProduct{Name: "x"}))
				if _, err := kept.Exec(ctx, "DELETE FROM outbox_event"); !errors.Is(err, core.ErrNoTransaction) {
					t.Errorf("Exec after the function: %v", err)
				}
				if _, err := kept.Query(ctx, "SELECT 1"); !errors.Is(err, core.ErrNoTransaction) ||
					!errors.Is(kept.Err(), core.ErrNoTransaction) {
					t.Errorf("Query after the function: %v; Err: %v", err, kept.Err())
				}
				return result
			})
			if !errors.Is(err, result) {
				t.Fatal(err)
			}
		}
		b.wantRows(t, "published.x")
		if want := []core.Outcome{core.RolledBack, core.Committed}; !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}

// The end of a statement's own context does not separate a row from its event.
func TestBunContextOfTheStatementEnds(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		bunoutbox.On(b.ob, func(core.Op, *bProduct) []core.Event {
			cancel()
			return []core.Event{{Type: "t"}}
		})
		err := b.ob.RunInTx(t.Context(), func(_ context.Context, tx bun.Tx) error {
			_, _ = tx.NewInsert().Model(&bProduct{Name: "x"}).Exec(ctx)
			return nil
		})
		if err == nil {
			b.WantCount(t, "b_products", 1)
			b.wantRows(t, "t 1")
			return
		}
		b.WantCount(t, "b_products", 0)
		b.wantRows(t)
	})
}

// A rollback puts a Recorder back to what it held when the transaction, or the savepoint, began. So
// the usual loop around a transaction publishes one event for one call that lasts.
func TestBunRecorderAfterRollback(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		o := newBOrder("before")
		save := func(ctx context.Context, tx bun.Tx) error {
			o.ID = 0
			o.Record(fixture.Happened{Name: "paid"})
			_, err := tx.NewInsert().Model(o).Exec(ctx)
			return err
		}
		for i := range 3 {
			err := b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				fixture.WantError(t, b.ob.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
					return errors.Join(save(ctx, tx), errReason)
				}), errReason)
				if err := save(ctx, tx); err != nil || i == 2 {
					return err
				}
				return errReason
			})
			if i == 2 {
				fixture.NoError(t, err)
				continue
			}
			fixture.WantError(t, err, errReason)
			fixture.Check(t, len(o.Recorded()) == 1, "%d events are recorded", len(o.Recorded()))
		}
		fixture.SameSet(t, "events", b.Column(t, "event_type"), []string{"before", "paid"})
	})
}
