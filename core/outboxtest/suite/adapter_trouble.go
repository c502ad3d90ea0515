package suite

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

func adapterTroubleCases() []adapterCase {
	return []adapterCase{
		{"a context that ends before the commit", adapterCancelled},
		{"a context that ends before a statement", adapterCancelledStatement},
		{"a context that ended before the begin", adapterCancelledBegin},
		{"a statement that fails", adapterStatementError},
		{"a statement that fails in a savepoint", adapterStatementErrorNested},
		{"a duplicate that the application ignores", adapterDuplicateIgnored},
		{"a connection that is lost before a statement", func(a *adapterFixture) { a.disconnected(true) }},
		{"a connection that is lost before the commit", func(a *adapterFixture) { a.disconnected(false) }},
		{"connections that died unused", adapterIdleConnections},
	}
}

func adapterCancelled(a *adapterFixture) {
	var id string
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	err := a.Transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		id = a.publish(ctx)
		cancel()
		return nil
	})
	committed := a.noLies(id)
	a.must(err != nil || slices.Contains(a.stored(), id), "RunInTx reported success, and the event is not there")
	a.must(err == nil || committed == 0, "RunInTx failed with %v, and the event was reported as committed", err)
	a.inTx(func(ctx context.Context) { id = a.publish(ctx) })
	a.wantOutcome(core.Committed, id)
}

func adapterCancelledStatement(a *adapterFixture) {
	e := newEvent()
	var id string
	ctx, cancel := context.WithCancel(a.Context())
	defer cancel()
	err := a.Transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		id = a.publish(ctx)
		cancel()
		err := a.Publish(ctx, e)
		a.must(err != nil, "published after the end of the context")
		return err
	})
	a.must(err != nil, "RunInTx reported success")
	a.must(a.noLies(id) == 0, "the event was reported as committed")
	a.wantStored()
}

func adapterCancelledBegin(a *adapterFixture) {
	ctx, cancel := context.WithCancel(a.Context())
	cancel()
	err := a.Transactor.RunInTx(ctx, func(context.Context, core.Tx) error {
		a.Error("a transaction began after the end of the context")
		return nil
	})
	a.must(errors.Is(err, context.Canceled), "RunInTx: %v", err)
}

const badStatement = "INSERT INTO outboxtest_no_such_table (x) VALUES (1)"

// adapterStatementError ignores the error of a statement. Databases answer the later COMMIT
// differently. The reported outcome must be true.
func adapterStatementError(a *adapterFixture) {
	var first string
	second := newEvent()
	published := false
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		first = a.publish(ctx)
		if err := a.Exec(ctx, badStatement); err == nil {
			return errors.New("a statement on a table that does not exist is no error")
		}
		published = a.tryPublish(ctx, second) == nil
		return nil
	})
	ids := []string{first}
	if published {
		ids = append(ids, second.ID)
	}
	committed := a.noLies(ids...)
	a.must(err == nil || committed == 0, "RunInTx failed with %v, and an event was reported as committed", err)
	stored := a.stored()
	a.must(published || !slices.Contains(stored, second.ID), "Publish failed, and its event is there")
	a.must(err != nil || slices.Contains(stored, first), "RunInTx reported success, and the event is not there")
	if a.AbortsOnError {
		a.must(err != nil && !published && len(stored) == 0, "an aborted transaction: RunInTx %v, published %t, "+
			"stored %q", err, published, stored)
	}
}

func adapterStatementErrorNested(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var outer, inner string
		err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			outer = a.publish(ctx)
			err := nest(ctx, func(ctx context.Context) error {
				inner = a.publish(ctx)
				return a.Exec(ctx, badStatement)
			})
			a.must(err != nil, "the nested transaction reported success")
			return nil
		})
		committed := a.noLies(outer, inner)
		stored := a.stored()
		a.must(!slices.Contains(stored, inner), "the nested transaction failed, and its event is there")
		a.must((err == nil) == slices.Contains(stored, outer), "RunInTx: %v; stored are %q", err, stored)
		a.must(err == nil || committed == 0, "RunInTx failed with %v, and an event was reported as committed", err)
	}
}

func adapterDuplicateIgnored(a *adapterFixture) {
	twin := newEvent()
	a.inTx(func(ctx context.Context) { a.check(a.Publish(ctx, twin)) })
	var first string
	second := newEvent()
	published, deferred := false, false
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		first = a.publish(ctx)
		err := a.Publish(ctx, twin)
		deferred = a.Defers && err == nil
		a.must(errors.Is(err, core.ErrDuplicateEvent) || deferred, "the duplicate was not refused: %v", err)
		published = a.tryPublish(ctx, second) == nil
		return nil
	})
	a.must(!deferred || errors.Is(err, core.ErrDuplicateEvent), "the duplicate was not refused: RunInTx: %v", err)
	ids := []string{first}
	if published {
		ids = append(ids, second.ID)
	}
	a.noLies(ids...)
	stored := a.stored()
	a.must((err == nil) == slices.Contains(stored, first), "RunInTx: %v; stored are %q", err, stored)
	a.must(slices.Contains(stored, second.ID) == (published && err == nil), "published %t, RunInTx: %v; stored are %q",
		published, err, stored)
}

// disconnected ends the connection during a transaction, which then publishes or commits.
func (a *adapterFixture) disconnected(publish bool) {
	var id string
	can := a.has(a.Disconnect != nil, nil)
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		id = a.publish(ctx)
		if !can {
			return nil
		}
		if err := a.Disconnect(ctx); !a.has(true, err) {
			can = false
			return nil
		} else if err != nil {
			return err
		}
		if !publish {
			return nil
		}
		err := a.Publish(ctx, newEvent())
		a.must(err != nil || a.Defers, "published on a connection that is lost")
		return err
	})
	if !can {
		a.check(err)
		return
	}
	a.must(err != nil, "the connection was lost, and RunInTx reported success")
	a.must(a.noLies(id) == 0, "the connection was lost before the COMMIT, and the event was reported as committed")
	a.wantStored()
	a.whole()
}

// adapterIdleConnections makes the server end all idle connections of the pool, as a restart does.
// No transaction may fail because of it: none had begun on those connections.
func adapterIdleConnections(a *adapterFixture) {
	if a.SingleWriter || !a.has(a.Connection != nil, nil) {
		return
	}
	const size = 5 // more connections than database/sql tries before it opens a new one
	ends := make(chan func(context.Context) error, size)
	errs := make(chan error, size)
	var all, done sync.WaitGroup
	all.Add(size)
	for range size {
		done.Go(func() {
			errs <- a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
				end, err := a.Connection(ctx)
				ends <- end
				all.Done()
				all.Wait() // each transaction has a connection of its own
				return err
			})
		})
	}
	done.Wait()
	for range size {
		a.check(<-errs)
	}
	for range size {
		a.check((<-ends)(a.Context()))
	}
	for range 2 * size {
		id := ""
		a.inTx(func(ctx context.Context) { id = a.publish(ctx) })
		a.wantOutcome(core.Committed, id)
	}
	a.whole()
}
