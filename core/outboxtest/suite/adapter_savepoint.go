package suite

import (
	"context"
	"errors"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

func adapterSavepointCases() []adapterCase {
	return []adapterCase{
		{"a nested success belongs to the outer transaction", adapterNestedSuccess},
		{"a nested success is rolled back with the outer transaction", adapterNestedLost},
		{"a nested error rolls back what is nested", adapterNestedError},
		{"a nested panic rolls back what is nested", adapterNestedPanic},
		{"one after the other", adapterNestedSiblings},
		{"three deep", adapterNestedDeep},
		{"a refused event is undone by its savepoint", adapterNestedDuplicate},
	}
}

var errNested = errors.New("nested reason")

func adapterNestedSuccess(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var ids []string
		a.inTx(func(ctx context.Context) {
			ids = append(ids, a.publish(ctx))
			a.check(nest(ctx, func(ctx context.Context) error {
				ids = append(ids, a.publish(ctx))
				return nil
			}))
			ids = append(ids, a.publish(ctx))
			heard := a.outcomes()
			for _, id := range ids {
				_, early := heard[id]
				a.must(!early, "an outcome was reported before the outer commit")
			}
		})
		a.wantOutcome(core.Committed, ids...)
		var order []string
		for _, r := range a.reports()[len(a.reports())-3:] {
			order = append(order, r.id)
		}
		a.must(slices.Equal(order, ids), "reported in the order %q, want %q", order, ids)
		a.must(len(a.stored()) == len(a.reports()), "stored are %q", a.stored())
	}
}

func adapterNestedLost(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var ids []string
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			a.check(nest(ctx, func(ctx context.Context) error {
				ids = append(ids, a.publish(ctx))
				return nil
			}))
			return errNested
		})
		a.must(errors.Is(err, errNested), "RunInTx returned %v", err)
		a.wantOutcome(core.RolledBack, ids...)
		a.wantStored()
	}
}

func adapterNestedError(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			good = append(good, a.publish(ctx))
			err := nest(ctx, func(ctx context.Context) error {
				bad = append(bad, a.publish(ctx))
				return errNested
			})
			a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
			a.wantOutcome(core.RolledBack, bad...)
			good = append(good, a.publish(ctx))
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

func adapterNestedPanic(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			good = append(good, a.publish(ctx))
			func() {
				defer func() { a.must(recover() == "reason", "the panic did not go on") }()
				_ = nest(ctx, func(ctx context.Context) error {
					bad = append(bad, a.publish(ctx))
					panic("reason")
				})
			}()
			good = append(good, a.publish(ctx))
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

func adapterNestedSiblings(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			for i := range 4 {
				err := nest(ctx, func(ctx context.Context) error {
					id := a.publish(ctx)
					if i%2 == 0 {
						bad = append(bad, id)
						return errNested
					}
					good = append(good, id)
					return nil
				})
				a.must((err == nil) == (i%2 == 1), "nested transaction %d returned %v", i, err)
			}
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

// adapterNestedDeep rolls back the middle of three levels. The innermost level succeeded, and must
// be rolled back with it.
func adapterNestedDeep(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			good = append(good, a.publish(ctx))
			err := nest(ctx, func(ctx context.Context) error {
				bad = append(bad, a.publish(ctx))
				a.check(nest(ctx, func(ctx context.Context) error {
					bad = append(bad, a.publish(ctx))
					return nil
				}))
				bad = append(bad, a.publish(ctx))
				return errNested
			})
			a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
			a.check(nest(ctx, func(ctx context.Context) error {
				good = append(good, a.publish(ctx))
				return nil
			}))
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

// adapterNestedDuplicate has an event refused inside a savepoint. The outer transaction commits,
// and the reported outcomes of its events are true.
func adapterNestedDuplicate(a *adapterFixture) {
	twin := newEvent()
	a.inTx(func(ctx context.Context) { a.check(a.Publish(ctx, twin)) })
	for _, nest := range a.nestings() {
		var outer, inner, last string
		a.inTx(func(ctx context.Context) {
			outer = a.publish(ctx)
			err := nest(ctx, func(ctx context.Context) error {
				inner = a.publish(ctx)
				return a.Publish(ctx, twin)
			})
			a.must(errors.Is(err, core.ErrDuplicateEvent), "the duplicate was not refused: %v", err)
			last = a.publish(ctx)
		})
		a.noLies(outer, inner, last)
		stored := a.stored()
		a.must(slices.Contains(stored, outer) && slices.Contains(stored, last) && !slices.Contains(stored, inner),
			"stored are %q", stored)
	}
}
