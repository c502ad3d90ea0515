package suite

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func adapterOtherCases() []adapterCase {
	return []adapterCase{
		{"a transaction of another database", adapterOtherDatabase},
		{"a nested transaction of another database", adapterOtherDatabaseNested},
		{"a nested transaction of another database is run again", adapterOtherDatabaseAgain},
		{"a nested transaction of its own is not run again", adapterOwnDatabaseAgain},
	}
}

// adapterOtherDatabase publishes with the outbox of another database. The outbox refuses that
// before anything is written. The transaction goes on, and each outbox has its own events.
func adapterOtherDatabase(a *adapterFixture) {
	other := newAdapterFixture(a.T, a.AdapterHarness)
	var own []string
	a.inTx(func(ctx context.Context) {
		own = append(own, a.publish(ctx))
		err := other.Publish(ctx, newEvent())
		a.must(errors.Is(err, core.ErrOtherDatabase), "Publish in a transaction of another database: %v", err)
		own = append(own, a.publish(ctx))
	})
	a.wantOutcome(core.Committed, own...)
	a.wantStored(own...)
	other.wantStored()
	other.whole()
}

// adapterOtherDatabaseNested begins a transaction of another database inside its own. It is
// independent of the outer one, and each outbox accepts its own transaction.
func adapterOtherDatabaseNested(a *adapterFixture) {
	other := newAdapterFixture(a.T, a.AdapterHarness)
	var own, theirs string
	a.inTx(func(ctx context.Context) {
		own = a.publish(ctx)
		err := other.Transactor.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
			theirs = other.publish(ctx)
			if err := a.Publish(ctx, newEvent()); !errors.Is(err, core.ErrOtherDatabase) {
				a.Errorf("Publish in the inner transaction: %v", err)
			}
			return nil
		})
		a.check(err)
	})
	a.wantStored(own)
	other.wantStored(theirs)
}

// errOthers is an error that only other transactions caused.
var errOthers = fmt.Errorf("suite: because of others: %w", core.ErrTxAborted)

// adapterOtherDatabaseAgain fails twice in a transaction of another database. The transaction in
// the context does not matter for it, so it is run again as a whole.
func adapterOtherDatabaseAgain(a *adapterFixture) {
	other := newAdapterFixture(a.T, a.AdapterHarness)
	var own string
	var theirs []string
	a.inTx(func(ctx context.Context) {
		own = a.publish(ctx)
		a.check(sqltx.RetryTx(ctx, other.Transactor, func(ctx context.Context, _ core.Tx) error {
			if theirs = append(theirs, other.publish(ctx)); len(theirs) < 3 {
				return errOthers
			}
			return nil
		}))
	})
	a.must(len(theirs) == 3, "it ran %d times, want 3", len(theirs))
	a.wantStored(own)
	other.wantOutcome(core.RolledBack, theirs[:2]...)
	other.wantOutcome(core.Committed, theirs[2])
	other.wantStored(theirs[2])
}

// adapterOwnDatabaseAgain fails in a savepoint. The owner of the transaction must repeat it as a
// whole, because the database may have rolled it back completely. A savepoint that succeeds ends
// with the transaction.
func adapterOwnDatabaseAgain(a *adapterFixture) {
	var outer, good, bad string
	a.inTx(func(ctx context.Context) {
		outer = a.publish(ctx)
		runs := 0
		err := sqltx.RetryTx(ctx, a.Transactor, func(ctx context.Context, _ core.Tx) error {
			runs++
			bad = a.publish(ctx)
			return errOthers
		})
		a.must(errors.Is(err, errOthers) && runs == 1, "it ran %d times: %v", runs, err)
		a.check(sqltx.RetryTx(ctx, a.Transactor, func(ctx context.Context, _ core.Tx) error {
			good = a.publish(ctx)
			return nil
		}))
	})
	a.wantOutcome(core.RolledBack, bad)
	a.wantOutcome(core.Committed, outer, good)
	a.wantStored(outer, good)
}
