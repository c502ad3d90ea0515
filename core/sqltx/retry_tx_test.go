package sqltx_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func TestRetryTx(t *testing.T) {
	errOwn := errors.New("its own")
	synctest.Test(t, func(t *testing.T) {
		transactor := outboxtest.NewRepository().Transactor()
		for name, tt := range map[string]struct {
			errs []error
			runs int
			want error
		}{
			"at once":          {[]error{nil}, 1, nil},
			"after others":     {[]error{deadlock{}, core.ErrTxAborted, nil}, 3, nil},
			"its own error":    {[]error{errOwn}, 1, errOwn},
			"unknown outcome":  {[]error{core.ErrCommitUnknown}, 1, core.ErrCommitUnknown},
			"others for ever":  {slices.Repeat([]error{deadlock{}}, 20), 10, deadlock{}},
			"then its own":     {[]error{deadlock{}, errOwn}, 2, errOwn},
			"aborted for ever": {slices.Repeat([]error{core.ErrTxAborted}, 20), 10, core.ErrTxAborted},
		} {
			runs := 0
			err := sqltx.RetryTx(t.Context(), transactor, func(context.Context, core.Tx) error {
				runs++
				return tt.errs[runs-1]
			})
			if runs != tt.runs || !errors.Is(err, tt.want) {
				t.Errorf("%s: %v after %d runs", name, err, runs)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		runs := 0
		err := sqltx.RetryTx(ctx, transactor, func(context.Context, core.Tx) error {
			runs++
			cancel()
			return deadlock{}
		})
		if runs != 1 || !errors.As(err, &deadlock{}) {
			t.Errorf("after the context ended: %v after %d runs", err, runs)
		}
		if sqltx.RetryTx(t.Context(), nil, nil) == nil {
			t.Error("nothing to do was accepted")
		}
	})
}

// Only a transaction that the Transactor joins keeps RetryTx from repeating.
func TestRetryTxWithinATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		joined, other := outboxtest.NewRepository().Transactor(), outboxtest.NewRepository().Transactor()
		retried := func(ctx context.Context, tr core.Transactor, want int, end error) {
			t.Helper()
			runs := 0
			err := sqltx.RetryTx(ctx, tr, func(context.Context, core.Tx) error {
				if runs++; runs < 3 {
					return deadlock{}
				}
				return nil
			})
			if runs != want || !errors.Is(err, end) {
				t.Errorf("%v after %d runs, want %v after %d", err, runs, end, want)
			}
		}
		var over context.Context
		if err := joined.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
			retried(ctx, joined, 1, deadlock{})
			retried(ctx, other, 3, nil)
			// nobody hears how the inner transaction ended
			deaf := sloppy{other, func(tx core.Tx) {
				tx.(*outboxtest.Tx).FailCommit(outboxtest.CommitNotSent)
			}}
			retried(ctx, deaf, 3, core.ErrCommitUnknown)
			over = ctx //nolint:fatcontext // used after its transaction
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		retried(over, other, 3, nil)
	})
}

// sloppy is a Transactor that relies on the driver's answer to a commit. Its transactions report
// the real outcome.
type sloppy struct {
	core.Transactor
	end func(tx core.Tx)
}

func (s sloppy) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	_ = s.Transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		err := fn(ctx, tx)
		s.end(tx)
		return err
	})
	return nil
}

// deadlock is the error of the victim of a deadlock.
type deadlock struct{}

func (deadlock) Error() string    { return "deadlock detected" }
func (deadlock) SQLState() string { return "40P01" }
