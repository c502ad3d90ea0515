package suite

import (
	"context"
	"errors"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// These cases use nested transactions in unusual ways.
func adapterNestedCases() []adapterCase {
	return []adapterCase{
		{"the outer context is used inside, and what is nested fails", adapterNestedForeign},
		{"the inner context is used outside, after what is nested failed", adapterNestedStale},
		{"a context that ends inside", adapterNestedCancelled},
		{"a nested closure that is run again", adapterNestedAgain},
		{"many, one after the other", adapterNestedMany},
		{"eight deep, every other fails", adapterNestedEight},
		{"savepoints by text inside", adapterNestedText},
		{"a savepoint by text around a nested success", adapterNestedTextAround},
		{"the outer panics after a nested success", adapterNestedOuterPanic},
	}
}

// adapterNestedForeign publishes inside a nested transaction with the context of the outer one,
// which is an easy mistake in a closure. The connection is the same, so a rollback to the savepoint
// undoes the event too.
func adapterNestedForeign(a *adapterFixture) {
	a.relay()
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(outer context.Context) {
			good = append(good, a.publish(outer))
			err := nest(outer, func(context.Context) error {
				bad = append(bad, a.publish(outer))
				return errNested
			})
			a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
			a.check(nest(outer, func(context.Context) error {
				good = append(good, a.publish(outer))
				return nil
			}))
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
	a.published.Wait(a, len(good))
	a.wantPublished(good)
}

// adapterNestedStale goes on with the context of a nested transaction that has failed. The adapter
// may refuse a statement. A statement that it does not refuse belongs to the outer transaction.
func adapterNestedStale(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var outer, inner string
		further := newEvent()
		published := false
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			outer = a.publish(ctx)
			var stale context.Context
			_ = nest(ctx, func(ctx context.Context) error {
				stale = ctx //nolint:fatcontext // the case uses it after its transaction
				inner = a.publish(ctx)
				return errNested
			})
			published = a.tryPublish(stale, further) == nil
			return nil
		})
		ids := []string{inner}
		if published {
			ids = append(ids, further.ID)
		}
		a.truthful(err, outer, ids...)
		stored := a.stored()
		a.must(!slices.Contains(stored, inner), "the nested transaction failed, and its event is there")
		a.must(slices.Contains(stored, further.ID) == (published && err == nil),
			"published %t, RunInTx: %v; stored are %q", published, err, stored)
	}
}

// adapterNestedCancelled ends the context of a nested transaction. Adapters differ in whether the
// rollback still reaches the database. The reported outcome must be true.
func adapterNestedCancelled(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var outer, inner, last string
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			outer = a.publish(ctx)
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			err := nest(child, func(ctx context.Context) error {
				inner = a.publish(ctx)
				cancel()
				return child.Err()
			})
			a.must(err != nil, "the nested transaction reported success")
			e := newEvent()
			if err := a.tryPublish(ctx, e); err != nil {
				return err
			}
			last = e.ID
			return nil
		})
		ids := []string{inner}
		if last != "" {
			ids = append(ids, last)
		}
		a.truthful(err, outer, ids...)
		a.must(err != nil || slices.Contains(a.stored(), last), "RunInTx reported success, and the event is not there")
		a.whole()
	}
}

// adapterNestedAgain runs a nested closure again with the same event, which must be stored once.
func adapterNestedAgain(a *adapterFixture) {
	a.relay()
	var want []string
	for _, nest := range a.nestings() {
		e := newEvent()
		a.inTx(func(ctx context.Context) {
			for attempt := range 3 {
				err := nest(ctx, func(ctx context.Context) error {
					a.check(a.Publish(ctx, e))
					if attempt < 2 {
						return errNested
					}
					a.follow(ctx, e.ID)
					return nil
				})
				a.must((err == nil) == (attempt == 2), "attempt %d: %v", attempt, err)
			}
		})
		want = append(want, e.ID)
	}
	a.wantOutcome(core.Committed, want...)
	a.wantStored(want...)
	a.published.Wait(a, len(want))
	a.waitIdle()
	a.wantPublished(want)
}

func adapterNestedMany(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			for i := range 40 {
				_ = nest(ctx, func(ctx context.Context) error {
					id := a.publish(ctx)
					if i%3 == 1 {
						bad = append(bad, id)
						return errNested
					}
					good = append(good, id)
					return nil
				})
			}
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

// adapterNestedEight has eight nested levels. Every other level fails, the first one included, and
// each level ignores the error of the level below it. Only the events of the outermost transaction
// are kept.
func adapterNestedEight(a *adapterFixture) {
	var good, bad []string
	var level func(ctx context.Context, nest nested, depth int, lost bool) error
	level = func(ctx context.Context, nest nested, depth int, lost bool) error {
		note := func() {
			if id := a.publish(ctx); lost {
				bad = append(bad, id)
			} else {
				good = append(good, id)
			}
		}
		note()
		fails := depth%2 == 1
		if depth < 8 {
			below := (depth+1)%2 == 1
			err := nest(ctx, func(ctx context.Context) error { return level(ctx, nest, depth+1, lost || below) })
			a.must((err != nil) == below, "level %d: %v", depth+1, err)
			note()
		}
		if fails {
			return errNested
		}
		return nil
	}
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) { a.check(level(ctx, nest, 0, false)) })
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

// adapterNestedText rolls back to a savepoint with an SQL text inside a nested transaction, which
// then succeeds.
func adapterNestedText(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			good = append(good, a.publish(ctx))
			a.check(nest(ctx, func(ctx context.Context) error {
				good = append(good, a.publish(ctx))
				a.exec(ctx, "SAVEPOINT s1")
				bad = append(bad, a.publish(ctx))
				a.exec(ctx, "ROLLBACK TO SAVEPOINT s1")
				good = append(good, a.publish(ctx))
				return nil
			}))
			good = append(good, a.publish(ctx))
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

// adapterNestedTextAround rolls back to a savepoint before a nested transaction that succeeded.
func adapterNestedTextAround(a *adapterFixture) {
	var good, bad []string
	for _, nest := range a.nestings() {
		a.inTx(func(ctx context.Context) {
			good = append(good, a.publish(ctx))
			a.exec(ctx, "SAVEPOINT s1")
			a.check(nest(ctx, func(ctx context.Context) error {
				bad = append(bad, a.publish(ctx))
				return nil
			}))
			a.exec(ctx, "ROLLBACK TO SAVEPOINT s1")
			good = append(good, a.publish(ctx))
		})
	}
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

func adapterNestedOuterPanic(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var ids []string
		func() {
			defer func() { a.must(recover() == "reason", "the panic did not go on") }()
			_ = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
				a.check(nest(ctx, func(ctx context.Context) error {
					ids = append(ids, a.publish(ctx))
					return nil
				}))
				panic("reason")
			})
		}()
		a.wantOutcome(core.RolledBack, ids...)
		a.wantStored()
	}
}
