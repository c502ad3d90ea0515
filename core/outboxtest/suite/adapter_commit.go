package suite

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

func adapterCommitCases() []adapterCase {
	return []adapterCase{
		{"is reported once, in order, when the rows are visible", adapterCommit},
		{"of nothing", func(a *adapterFixture) {
			a.inTx(func(context.Context) {})
			a.wantStored()
		}},
		{"an error rolls back", adapterError},
		{"a panic rolls back and goes on", adapterPanic},
		{"a goroutine that ends inside rolls back", adapterGoexit},
		{"that the database refuses", adapterRefused},
		{"two transactions do not mix", adapterTwo},
		{"many transactions at once", adapterMany},
		{"many events in one call", adapterManyEvents},
		{"no transaction", adapterNone},
		{"a transaction that has ended", adapterEnded},
		{"a closure that is run again", adapterRetried},
		{"an event that is not valid", adapterInvalid},
		{"a callback that publishes in a new transaction", adapterAgain},
	}
}

func adapterCommit(a *adapterFixture) {
	var ids []string
	visible := map[string]bool{}
	a.inTx(func(ctx context.Context) {
		a.must(a.tx(ctx).Tracked(), "the transaction is not tracked")
		a.must(a.tx(ctx).Err() == nil, "a fresh transaction reports %v", a.tx(ctx).Err())
		for range 5 {
			id := a.publish(ctx)
			ids = append(ids, id)
			a.tx(ctx).OnOutcome(func(core.Outcome) { visible[id] = slices.Contains(a.stored(), id) })
		}
		a.must(len(a.reports()) == 0, "an outcome was reported before the commit")
	})
	a.wantOutcome(core.Committed, ids...)
	for i, r := range a.reports() {
		a.must(r.id == ids[i], "report %d is of event %s, want %s", i, r.id, ids[i])
	}
	for _, id := range ids {
		a.must(visible[id], "event %s was reported before another connection could see it", id)
	}
	a.wantStored(ids...)
}

func adapterError(a *adapterFixture) {
	var id string
	reason := errors.New("reason")
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		id = a.publish(ctx)
		return reason
	})
	a.must(errors.Is(err, reason), "RunInTx returned %v, want the error of the function", err)
	a.wantOutcome(core.RolledBack, id)
	a.wantStored()
}

func adapterPanic(a *adapterFixture) {
	var id string
	func() {
		defer func() {
			r := recover()
			a.must(r == "reason", "recovered %v, want the value of the panic", r)
		}()
		_ = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			id = a.publish(ctx)
			panic("reason")
		})
	}()
	a.wantOutcome(core.RolledBack, id)
	a.wantStored()
	a.inTx(func(ctx context.Context) { id = a.publish(ctx) }) // the connection still works
	a.wantStored(id)
}

// adapterGoexit ends the goroutine inside the transaction, as t.FailNow does in a test.
func adapterGoexit(a *adapterFixture) {
	e := newEvent()
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		_ = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			ended <- a.tryPublish(ctx, e)
			runtime.Goexit()
			return nil
		})
	}()
	for err := range ended {
		a.check(err)
	}
	a.wantOutcome(core.RolledBack, e.ID)
	a.wantStored()
	a.whole()
}

func adapterManyEvents(a *adapterFixture) {
	events := make([]core.Event, 150)
	ids := make([]string, len(events))
	for i := range events {
		events[i] = newEvent()
		events[i].Key = "key" + events[i].ID[len(events[i].ID)-1:]
		ids[i] = events[i].ID
	}
	a.inTx(func(ctx context.Context) {
		a.check(a.Publish(ctx, events...))
		for _, id := range ids {
			a.follow(ctx, id)
		}
	})
	a.wantOutcome(core.Committed, ids...)
	a.wantStored(ids...)
}

func adapterRefused(a *adapterFixture) {
	if a.RefuseCommit == nil {
		a.Log("the harness knows no way to have a COMMIT refused")
		return
	}
	var id string
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		id = a.publish(ctx)
		return a.RefuseCommit(ctx)
	})
	a.must(err != nil, "a refused COMMIT is no error")
	a.must(a.noLies(id) == 0, "a refused COMMIT was reported as a commit")
	a.wantStored()
	a.inTx(func(ctx context.Context) { id = a.publish(ctx) })
	a.wantStored(id)
	a.wantOutcome(core.Committed, id)
}

func adapterTwo(a *adapterFixture) {
	var good, bad string
	reason := errors.New("reason")
	published, rolledBack := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		defer close(rolledBack)
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			e := newEvent()
			bad = e.ID
			err := a.tryPublish(ctx, e)
			close(published)
			return errors.Join(err, reason)
		})
		if !errors.Is(err, reason) {
			a.Errorf("RunInTx returned %v", err)
		}
	})
	if a.SingleWriter { // the second transaction could not begin
		<-rolledBack
	}
	a.inTx(func(ctx context.Context) {
		<-published
		good = a.publish(ctx)
		<-rolledBack
		a.must(len(a.reports()) == 1, "%d outcomes after one rollback", len(a.reports()))
	})
	first.Wait()
	a.wantOutcome(core.RolledBack, bad)
	a.wantOutcome(core.Committed, good)
	a.wantStored(good)
}

func adapterMany(a *adapterFixture) {
	reason := errors.New("reason")
	var mu sync.Mutex
	var good, bad []string
	var workers sync.WaitGroup
	for worker := range 6 {
		workers.Go(func() {
			for i := range 8 {
				e := newEvent()
				fail := (worker+i)%3 == 0
				err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
					if err := a.tryPublish(ctx, e); err != nil || !fail {
						return err
					}
					return reason
				})
				mu.Lock()
				switch {
				case err == nil && !fail:
					good = append(good, e.ID)
				case fail && errors.Is(err, reason):
					bad = append(bad, e.ID)
				default:
					a.Errorf("RunInTx: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	a.wantOutcome(core.Committed, good...)
	a.wantOutcome(core.RolledBack, bad...)
	a.wantStored(good...)
}

func adapterNone(a *adapterFixture) {
	err := a.Publish(a.Context(), newEvent())
	a.must(errors.Is(err, core.ErrNoTransaction), "Publish without a transaction: %v", err)
	a.wantStored()
}

func adapterEnded(a *adapterFixture) {
	var id string
	var after context.Context
	a.inTx(func(ctx context.Context) {
		id = a.publish(ctx)
		after = ctx //nolint:fatcontext // the case uses it after its transaction
	})
	err := a.Publish(after, newEvent())
	a.must(err != nil, "published in a transaction that has ended")
	a.must(errors.Is(err, core.ErrNoTransaction) || errors.Is(err, core.ErrTxAborted),
		"Publish in a transaction that has ended: %v", err)
	a.wantStored(id)
	a.wantOutcome(core.Committed, id)
}

// adapterRetried publishes one event in two attempts. The first is rolled back.
func adapterRetried(a *adapterFixture) {
	e := newEvent()
	reason := errors.New("reason")
	for attempt := range 2 {
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			a.check(a.tryPublish(ctx, e))
			if attempt == 0 {
				return reason
			}
			return nil
		})
		a.must((err == nil) == (attempt == 1), "attempt %d: %v", attempt, err)
	}
	a.wantStored(e.ID)
	want := []report{{e.ID, core.RolledBack}, {e.ID, core.Committed}}
	a.must(slices.Equal(a.reports(), want), "heard %v, want %v", a.reports(), want)
}

func adapterInvalid(a *adapterFixture) {
	var id string
	a.inTx(func(ctx context.Context) {
		err := a.Publish(ctx, newEvent(), core.Event{Type: "t", Key: "\x00"}, newEvent())
		a.must(errors.Is(err, core.ErrInvalidEvent), "Publish of an event that is not valid: %v", err)

		large := errors.New("more than 100 bytes")
		a.published.Sizes(func(e core.Event) error {
			if len(e.Payload) > 100 {
				return large
			}
			return nil
		})
		err = a.Publish(ctx, newEvent(), core.Event{Type: "t", Payload: make([]byte, 101)})
		a.must(errors.Is(err, core.ErrInvalidEvent) && errors.Is(err, large),
			"Publish of an event too large for the publisher: %v", err)

		id = a.publish(ctx) // nothing was written, so the transaction goes on
	})
	a.wantStored(id)
	a.wantOutcome(core.Committed, id)
}

func adapterAgain(a *adapterFixture) {
	var first, second string
	a.inTx(func(ctx context.Context) {
		first = a.publish(ctx)
		a.tx(ctx).OnOutcome(func(core.Outcome) {
			a.inTx(func(ctx context.Context) { second = a.publish(ctx) })
		})
	})
	a.wantOutcome(core.Committed, first, second)
	a.wantStored(first, second)
}
