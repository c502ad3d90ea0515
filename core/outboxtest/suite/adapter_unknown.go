package suite

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

// In these cases it is unknown whether the database has carried out a COMMIT.
func adapterUnknownCases() []adapterCase {
	return []adapterCase{
		{"the answer is lost and it has committed", func(a *adapterFixture) { a.unknownCommit(true) }},
		{"the answer is lost and it has not committed", func(a *adapterFixture) { a.unknownCommit(false) }},
		{"a nested success is unknown too", adapterUnknownNested},
		{"the closure is run again after a commit", func(a *adapterFixture) { a.unknownAgain(true) }},
		{"the closure is run again after none", func(a *adapterFixture) { a.unknownAgain(false) }},
		{"the relay publishes what is there and nothing else", adapterUnknownRelay},
	}
}

// loseCommit runs fn in a transaction whose COMMIT gets no answer, and returns the result of
// RunInTx. can is false if the adapter does not support that.
func (a *adapterFixture) loseCommit(committed bool, fn func(ctx context.Context)) (can bool, err error) {
	a.Helper()
	can = a.has(a.LoseCommit != nil, nil)
	if !can {
		return false, nil
	}
	err = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
		fn(ctx)
		err := a.LoseCommit(ctx, committed)
		can = a.has(true, err)
		return err
	})
	if can {
		a.must(errors.Is(err, core.ErrCommitUnknown), "RunInTx: %v, want an error wrapping ErrCommitUnknown", err)
	}
	return can, err
}

func (a *adapterFixture) unknownCommit(committed bool) {
	var id string
	if can, _ := a.loseCommit(committed, func(ctx context.Context) { id = a.publish(ctx) }); !can {
		return
	}
	a.wantOutcome(core.Unknown, id)
	if committed {
		a.wantStored(id)
	} else {
		a.wantStored()
	}
	a.whole()
}

// adapterUnknownNested distinguishes events that were rolled back before from events with an
// unknown outcome.
func adapterUnknownNested(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var outer, kept, lost string
		can, _ := a.loseCommit(true, func(ctx context.Context) {
			outer = a.publish(ctx)
			a.check(nest(ctx, func(ctx context.Context) error {
				kept = a.publish(ctx)
				return nil
			}))
			err := nest(ctx, func(ctx context.Context) error {
				lost = a.publish(ctx)
				return errNested
			})
			a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
		})
		if !can {
			return
		}
		a.wantOutcome(core.Unknown, outer, kept)
		a.wantOutcome(core.RolledBack, lost)
	}
}

// unknownAgain runs the transaction again with the same event, as an application does after an
// unknown outcome. The event must be stored once.
func (a *adapterFixture) unknownAgain(committed bool) {
	e := newEvent()
	if can, _ := a.loseCommit(committed, func(ctx context.Context) { a.check(a.tryPublish(ctx, e)) }); !can {
		return
	}
	err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error { return a.Publish(ctx, e) })
	if committed {
		a.must(errors.Is(err, core.ErrDuplicateEvent), "the event is there already: %v, want an error wrapping "+
			"ErrDuplicateEvent", err)
	} else {
		a.check(err)
	}
	a.wantStored(e.ID)
}

// adapterUnknownRelay leaves events with an unknown outcome to the poller, which publishes the
// stored ones when their leases have ended.
func adapterUnknownRelay(a *adapterFixture) {
	a = configuredFixture(a.T, a.AdapterHarness, shortLeases)
	a.relay()
	var want []string
	for i := range 4 {
		var id string
		if can, _ := a.loseCommit(i%2 == 0, func(ctx context.Context) { id = a.publish(ctx) }); !can {
			return
		}
		if i%2 == 0 {
			want = append(want, id)
		}
		a.inTx(func(ctx context.Context) { want = append(want, a.publish(ctx)) })
	}
	a.waitIdle()
	a.wantPublishedAtLeastOnce(want)
	a.wantStored(want...)
}
