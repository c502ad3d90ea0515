package suite

import (
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// A database may roll back the whole transaction of a deadlock's victim. It then runs each further
// statement as a transaction of its own.
func adapterDeadlockCases() []adapterCase {
	return []adapterCase{
		{"the victim returns the error", adapterDeadlockReturned},
		{"the victim ignores the error", adapterDeadlockIgnored},
		{"the victim ignores the error of a savepoint", adapterDeadlockNested},
		{"the victim's closure is run again", adapterDeadlockAgain},
	}
}

// deadlock makes the transaction the victim of a deadlock and returns the error of its statement.
// can is false if the adapter does not support that.
func (a *adapterFixture) deadlock(ctx context.Context) (can bool, err error) {
	a.Helper()
	if !a.has(a.Deadlock != nil, nil) {
		return false, nil
	}
	err = a.Deadlock(ctx)
	can = a.has(true, err)
	a.must(err != nil, "the victim of a deadlock got no error")
	return can, err
}

func adapterDeadlockReturned(a *adapterFixture) {
	var id string
	can := false
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) (err error) {
		id = a.publish(ctx)
		can, err = a.deadlock(ctx)
		return err
	})
	if !can {
		return
	}
	a.must(err != nil, "RunInTx reported success")
	a.must(a.noLies(id) == 0, "the event was reported as committed")
	a.wantStored()
	a.whole()
}

func adapterDeadlockIgnored(a *adapterFixture) {
	a.relay()
	var first string
	second := newEvent()
	can := false
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		first = a.publish(ctx)
		if can, _ = a.deadlock(ctx); !can {
			return nil
		}
		a.must(a.Publish(ctx, second) != nil, "published in a transaction that the database has rolled back")
		return nil // the application ignores the error
	})
	if !can {
		return
	}
	a.must(err != nil, "the database has rolled back, and RunInTx reported success")
	a.must(a.noLies(first) == 0, "the event was reported as committed")
	a.wantStored()
	a.whole()
	a.published.Wait(a, 1)
	a.waitIdle()
	a.must(len(a.published.Accepted()) == 1, "%d events were published, want the one that committed",
		len(a.published.Accepted()))
}

// adapterDeadlockNested ends differently on each database. PostgreSQL goes on from the savepoint.
// InnoDB has rolled back the whole transaction.
func adapterDeadlockNested(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var outer, inner string
		further := newEvent()
		can, published := false, false
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			outer = a.publish(ctx)
			err := nest(ctx, func(ctx context.Context) (err error) {
				inner = a.publish(ctx)
				can, err = a.deadlock(ctx)
				return err
			})
			if !can {
				return nil
			}
			a.must(err != nil, "the nested transaction reported success")
			published = a.tryPublish(ctx, further) == nil
			return nil
		})
		if !can {
			return
		}
		ids := []string{inner}
		if published {
			ids = append(ids, further.ID)
		}
		a.truthful(err, outer, ids...)
		stored := a.stored()
		a.must(!slices.Contains(stored, inner), "the nested transaction failed, and its event is there")
		a.must(slices.Contains(stored, further.ID) == (published && err == nil),
			"published %t, RunInTx: %v; stored are %q", published, err, stored)
		a.whole()
	}
}

func adapterDeadlockAgain(a *adapterFixture) {
	e := newEvent()
	for attempt := range 2 {
		can := true
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) (err error) {
			a.check(a.tryPublish(ctx, e))
			if attempt == 0 {
				can, err = a.deadlock(ctx)
			}
			return err
		})
		if !can {
			return
		}
		a.must((err == nil) == (attempt == 1), "attempt %d: %v", attempt, err)
	}
	a.wantStored(e.ID)
	heard := a.reports()
	a.must(len(heard) == 2 && heard[0].outcome != core.Committed && heard[1] == report{e.ID, core.Committed},
		"heard %v, want that the second attempt committed", heard)
}
