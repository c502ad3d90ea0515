package suite

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

func adapterOtherCases() []adapterCase {
	return []adapterCase{
		{"a transaction of another database", adapterOtherDatabase},
		{"a nested transaction of another database", adapterOtherDatabaseNested},
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

// adapterOtherDatabaseNested begins a transaction of another database inside one of its own. It is
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
