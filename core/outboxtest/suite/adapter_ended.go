package suite

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// These cases end the context of a nested transaction, or go on with one whose transaction is over.
func adapterEndedCases() []adapterCase {
	ended := func(end func(error) error) func(*adapterFixture) {
		return func(a *adapterFixture) { adapterNestedEnded(a, end) }
	}
	return []adapterCase{
		{"the context ends, then what is nested returns its error", ended(func(err error) error { return err })},
		{"the context ends, then what is nested returns nil", ended(func(error) error { return nil })},
		{"the context ends, then what is nested panics", ended(func(err error) error { panic(err) })},
		{"the context ends, then the nested goroutine ends", ended(func(error) error { runtime.Goexit(); return nil })},
		{"another Transactor of the same pool", adapterAnother},
		{"the context of a transaction that is over", adapterOver},
	}
}

// adapterNestedEnded ends the context of a nested transaction before its end. Either it returned
// nil and its events are kept, or it failed and nothing is kept. The outer transaction goes on
// without the nested one.
func adapterNestedEnded(a *adapterFixture, end func(error) error) {
	for i, nest := range a.nestings() {
		var outer, inner string
		var ran []string
		kept := false
		a.inTx(func(ctx context.Context) {
			outer = a.publish(ctx)
			short, cancel := context.WithCancel(ctx)
			defer cancel()
			done := make(chan struct{})
			go func() { // so that runtime.Goexit ends only the nested transaction
				defer close(done)
				defer func() { _ = recover() }()
				kept = nest(short, func(ctx context.Context) error {
					inner = a.publish(ctx)
					a.after(ctx, &ran, "nested")
					if a.Booked != nil {
						a.exec(ctx, "INSERT INTO outboxtest_booking (id) VALUES (1)")
					}
					cancel()
					return end(ctx.Err())
				}) == nil
			}()
			<-done
			a.after(ctx, &ran, "outer")
		})
		want, outcome, after := []string{outer}, core.RolledBack, []string{"outer"}
		if kept {
			want, outcome, after = append(want, inner), core.Committed, []string{"nested", "outer"}
		}
		stored := a.stored()
		for id, there := range map[string]bool{outer: true, inner: kept} {
			a.must(slices.Contains(stored, id) == there, "way %d: success %t; stored are %q, want %q", i, kept,
				stored, want)
		}
		a.wantOutcome(core.Committed, outer)
		a.wantOutcome(outcome, inner)
		a.must(slices.Equal(ran, after), "way %d: ran %q, want %q", i, ran, after)
		if a.Booked == nil {
			continue
		}
		rows, err := a.Booked(a.Context())
		a.check(err)
		a.must((len(rows) == 1) == kept, "way %d: success %t; rows %v", i, kept, rows)
		if kept {
			a.inTx(func(ctx context.Context) { a.exec(ctx, "DELETE FROM outboxtest_booking") })
		}
	}
}

// adapterAnother nests transactions of two Transactors of one pool. They are one transaction.
func adapterAnother(a *adapterFixture) {
	if !a.has(a.Another != nil, nil) {
		return
	}
	for _, order := range [][2]core.Transactor{{a.Transactor, a.Another}, {a.Another, a.Transactor}} {
		for _, outerFails := range []bool{false, true} {
			var outer, kept, undone string
			before := a.stored()
			err := order[0].RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
				outer = a.publish(ctx)
				a.check(order[1].RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
					kept = a.publish(ctx)
					return nil
				}))
				err := order[1].RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
					undone = a.publish(ctx)
					return errNested
				})
				a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
				if outerFails {
					return errNested
				}
				return nil
			})
			a.wantOutcome(core.RolledBack, undone)
			if outerFails {
				a.must(errors.Is(err, errNested), "RunInTx: %v", err)
				a.wantOutcome(core.RolledBack, outer, kept)
				a.wantStored(before...)
			} else {
				a.check(err)
				a.wantOutcome(core.Committed, outer, kept)
				a.wantStored(append(before, outer, kept)...)
			}
		}
	}
}

// adapterOver runs a transaction in the context of a transaction that is over: in AfterCommit, and
// later.
func adapterOver(a *adapterFixture) {
	var over context.Context
	begin := func() {
		err := a.Transactor.RunInTx(over, func(context.Context, core.Tx) error {
			a.Error("the function ran")
			return nil
		})
		if !errors.Is(err, core.ErrNoTransaction) {
			a.Errorf("RunInTx in the context of a transaction that is over: %v", err)
		}
	}
	ran := false
	a.inTx(func(ctx context.Context) {
		over = ctx //nolint:fatcontext // the case uses it after its transaction
		a.check(sqltx.AfterCommit(a.tx(ctx), func() {
			begin()
			ran = true
		}))
	})
	a.must(ran, "AfterCommit did not run")
	begin()
	a.whole()
}
