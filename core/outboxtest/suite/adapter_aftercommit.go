package suite

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// These cases call functions after the commit: sqltx.AfterCommit on the transactions of the
// adapter.
func adapterAfterCommitCases() []adapterCase {
	return []adapterCase{
		{"after the commit, before RunInTx returns", adapterAfterCommit},
		{"never after a rollback", adapterAfterRollback},
		{"not what a savepoint undid", adapterAfterCommitNested},
		{"not after an unknown outcome", adapterAfterUnknown},
		{"a panic of the function harms nothing else", adapterAfterCommitPanics},
		{"once for a closure that is run again", adapterAfterCommitAgain},
	}
}

// after registers a function that adds name to ran after the commit.
func (a *adapterFixture) after(ctx context.Context, ran *[]string, name string) {
	a.Helper()
	a.check(sqltx.AfterCommit(a.tx(ctx), func() { *ran = append(*ran, name) }))
}

func adapterAfterCommit(a *adapterFixture) {
	var ran []string
	var id string
	a.inTx(func(ctx context.Context) {
		id = a.publish(ctx)
		a.check(sqltx.AfterCommit(a.tx(ctx), func() {
			ids, err := a.Stored(a.Context())
			if err != nil || !slices.Contains(ids, id) {
				a.Errorf("it runs while others see %q (%v)", ids, err)
			}
			ran = append(ran, "first")
		}))
		a.after(ctx, &ran, "second")
		a.must(len(ran) == 0, "it ran before the commit")
	})
	a.must(slices.Equal(ran, []string{"first", "second"}), "ran %q", ran)
	a.must(sqltx.AfterCommit(nil, func() {}) != nil, "a nil transaction was accepted")
	a.inTx(func(ctx context.Context) {
		a.must(sqltx.AfterCommit(a.tx(ctx), nil) != nil, "a nil function was accepted")
	})
}

func adapterAfterRollback(a *adapterFixture) {
	var ran []string
	var over core.Tx
	for _, end := range []func() error{
		func() error { return errNested },
		func() error { panic(errNested) },
	} {
		func() {
			defer func() { _ = recover() }()
			err := a.Transactor.RunInTx(a.Context(), func(ctx context.Context, tx core.Tx) error {
				over = tx
				a.after(ctx, &ran, "ran")
				return end()
			})
			a.must(errors.Is(err, errNested), "RunInTx: %v", err)
		}()
	}
	a.must(sqltx.AfterCommit(over, func() {}) != nil, "a transaction that is over was accepted")
	a.whole()
	a.must(len(ran) == 0, "ran %q after rollbacks", ran)
}

func adapterAfterCommitNested(a *adapterFixture) {
	for _, nest := range a.nestings() {
		var ran []string
		a.inTx(func(ctx context.Context) {
			a.after(ctx, &ran, "outer")
			a.check(nest(ctx, func(ctx context.Context) error {
				a.after(ctx, &ran, "kept")
				return nil
			}))
			err := nest(ctx, func(ctx context.Context) error {
				a.after(ctx, &ran, "undone")
				a.check(nest(ctx, func(ctx context.Context) error {
					a.after(ctx, &ran, "undone with it")
					return nil
				}))
				return errNested
			})
			a.must(errors.Is(err, errNested), "the nested transaction returned %v", err)
			a.must(len(ran) == 0, "ran %q before the commit", ran)
		})
		a.must(slices.Equal(ran, []string{"outer", "kept"}), "ran %q", ran)
	}
}

func adapterAfterUnknown(a *adapterFixture) {
	for _, committed := range []bool{true, false} {
		var ran []string
		if can, _ := a.loseCommit(committed, func(ctx context.Context) {
			a.publish(ctx)
			a.after(ctx, &ran, "ran")
		}); !can {
			return
		}
		a.must(len(ran) == 0, "ran %q after an unknown outcome", ran)
	}
}

func adapterAfterCommitPanics(a *adapterFixture) {
	var ran []string
	var id string
	a.inTx(func(ctx context.Context) {
		a.check(sqltx.AfterCommit(a.tx(ctx), func() { panic("the function's own fault") }))
		a.check(sqltx.AfterCommit(a.tx(ctx), runtime.Goexit))
		id = a.publish(ctx)
		a.after(ctx, &ran, "ran")
	})
	a.must(slices.Equal(ran, []string{"ran"}), "ran %q", ran)
	a.wantOutcome(core.Committed, id)
	a.whole()
}

func adapterAfterCommitAgain(a *adapterFixture) {
	var ran []string
	for try := range 3 {
		_ = a.Transactor.RunInTx(a.Context(), func(ctx context.Context, _ core.Tx) error {
			a.after(ctx, &ran, "ran")
			if try < 2 {
				return errNested
			}
			return nil
		})
	}
	a.must(slices.Equal(ran, []string{"ran"}), "ran %q", ran)
}
