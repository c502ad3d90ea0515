package bun_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
)

// Strict models are refused before the statement where events could not be written.
func TestBunRefusesStrictModels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		only func(adapters.BunWay) bool
		do   func(ctx context.Context, b *bunEnv) error
		want error
	}{
		"a strict model without the hook": {nil, func(ctx context.Context, b *bunEnv) error {
			return b.bare.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewInsert().Model(&bStrict{Name: "x"}).Exec(ctx)
				return err
			})
		}, core.ErrNotInstalled},
		"a strict model on a pool without the connector": {
			withoutConnector,
			func(ctx context.Context, b *bunEnv) error {
				_, err := b.NewInsert().Model(&bStrict{Name: "x"}).Exec(ctx)
				return err
			}, core.ErrUntracked,
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachBunEnv(t, tc.only, func(t *testing.T, b *bunEnv) {
				mapBun(b)
				err := tc.do(t.Context(), b)
				fixture.WantError(t, err, tc.want)
				for _, table := range []string{"b_products", "b_orders", "b_stricts", "outbox_event"} {
					b.WantCount(t, table, 0)
				}
			})
		})
	}
}

// Events of On functions and of models are checked only after the statement was executed. If they
// are wrong, the statement returns the error. COMMIT fails too, even if the program ignores that.
func TestBunFailedCaptureFailsTheCommit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do   func(ctx context.Context, tx bun.IDB) error
		want error
	}{
		"On fails": {func(ctx context.Context, tx bun.IDB) error {
			_, err := tx.NewInsert().Model(&bCoupon{Code: "x"}).Exec(ctx)
			return err
		}, errReason},
		"an event that is not valid": {func(ctx context.Context, tx bun.IDB) error {
			o := newBOrder()
			o.Record(struct{}{}) // has no type
			_, err := tx.NewInsert().Model(o).Exec(ctx)
			return err
		}, core.ErrInvalidEvent},
		"an event that is stored already": {func(ctx context.Context, tx bun.IDB) error {
			o := newBOrder()
			o.Record(core.Event{ID: "01a1fba3-cb86-7391-a0f4-64679995f198", Type: "t"})
			_, err := tx.NewInsert().Model(o).Exec(ctx)
			return err
		}, core.ErrDuplicateEvent},
	} {
		t.Run(name, func(t *testing.T) {
			eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
				bunoutbox.OnContext(b.ob,
					func(context.Context, core.Op, *bCoupon) ([]core.Event, error) { return nil, errReason })
				b.inTx(t, func(ctx context.Context, tx bun.Tx) {
					fixture.NoError(t, b.ob.Publish(ctx, tx,
						core.Event{ID: "01a1fba3-cb86-7391-a0f4-64679995f198", Type: "t"}))
				})
				b.RunRelay(t)
				err := b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
					if err := b.publish(ctx, tx, "before"); err != nil {
						return err
					}
					fixture.WantError(t, tc.do(ctx, tx), tc.want)
					return nil
				})
				fixture.WantError(t, err, tc.want)
				b.WantCount(t, "b_orders", 0)
				b.WantCount(t, "b_coupons", 0)
				b.wantRows(t, "t")
				b.WantHot(t)
				if !b.way.Connector {
					return
				}
				tx, err := b.BeginTx(t.Context(), nil) // Bun's own transactions too
				fixture.NoError(t, err)
				fixture.WantError(t, tc.do(t.Context(), tx), tc.want)
				fixture.WantError(t, tx.Commit(), tc.want)
				b.WantCount(t, "b_orders", 0)
				b.WantCount(t, "b_coupons", 0)
				b.wantRows(t, "t")
			})
		})
	}
}

// If a failed capture is rolled back with its savepoint, the rest of the transaction can commit.
func TestBunFailedCaptureInASavepoint(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		bunoutbox.OnContext(b.ob,
			func(context.Context, core.Op, *bCoupon) ([]core.Event, error) { return nil, errReason })
		b.RunRelay(t)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			fixture.NoError(t, b.publish(ctx, tx, "outer"))
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, sp bun.Tx) error {
				_, err := sp.NewInsert().Model(&bCoupon{Code: "x"}).Exec(ctx)
				return err
			})
			fixture.WantError(t, err, errReason)
		})
		b.WantCount(t, "b_coupons", 0)
		b.wantRows(t, "outer")
		b.WantHot(t, "outer")
	})
}

// A statement whose events cannot be written fails itself, so that the program does not go on in
// vain.
func TestBunStrictModels(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, nil, func(t *testing.T, b *bunEnv) {
		mapBun(b)
		b.inTx(t, func(ctx context.Context, tx bun.Tx) {
			s := &bStrict{Name: "good"}
			b.exec(t, ctx, tx.NewInsert().Model(s))
			b.exec(t, ctx, tx.NewUpdate().Model(s).Set("name = 'better'").WherePK())
			b.exec(t, ctx, tx.NewDelete().Model(s).WherePK())
			b.exec(t, ctx, tx.NewInsert().Model(&[]*bStrict{{Name: "x"}, {Name: "y"}}))
		})
		b.wantRows(t, "strict.create 1", "strict.update 1", "strict.delete 1", "strict.create 2", "strict.create 3")
		_, err := b.Plain.ExecContext(t.Context(), "INSERT INTO b_stricts (id, name) VALUES (7, 'bad')")
		fixture.NoError(t, err)
		for name, statement := range map[string]func(ctx context.Context, tx bun.Tx) error{
			"insert": func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewInsert().Model(&bStrict{Name: "bad"}).Exec(ctx)
				return err
			},
			"update": func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewUpdate().Model(&bStrict{ID: 2, Name: "bad"}).WherePK().Exec(ctx)
				return err
			},
			"delete": func(ctx context.Context, tx bun.Tx) error {
				_, err := tx.NewDelete().Model(&bStrict{ID: 7}).WherePK().Exec(ctx)
				return err
			},
		} {
			err := b.ob.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
				err := statement(ctx, tx)
				fixture.Check(t, errors.Is(err, errReason), "%s: the statement returned %v", name, err)
				return err
			})
			fixture.WantError(t, err, errReason)
		}
		b.WantCount(t, "b_stricts", 3)
	})
}
