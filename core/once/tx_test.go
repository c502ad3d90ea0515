package once_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

type deadlock struct{}

func (deadlock) Error() string    { return "deadlock detected" }
func (deadlock) SQLState() string { return "40P01" }

func returnsTx(data string) func(context.Context, core.Tx) (once.Result, error) {
	return func(context.Context, core.Tx) (once.Result, error) { return once.Result{Data: []byte(data)}, nil }
}

func neverTx(t *testing.T) func(context.Context, core.Tx) (once.Result, error) {
	t.Helper()
	return func(context.Context, core.Tx) (once.Result, error) {
		t.Error("the work was run")
		return once.Result{}, nil
	}
}

// world is an outbox in memory with keys. The test counts its events as effects.
type world struct {
	*outboxtest.Outbox
	*once.Runner
	store *outboxtest.OnceStore
}

func newWorld(t *testing.T, cfg once.Config) *world {
	t.Helper()
	ob := outboxtest.NewOutbox(t, core.Config{})
	w := &world{Outbox: ob, store: ob.Repository.OnceStore()}
	cfg.Store = w.store
	w.Runner = newRunner(t, cfg)
	return w
}

func (w *world) effect(ctx context.Context, tx core.Tx) error {
	_, err := w.Publish(ctx, tx, core.Event{Type: "thing.happened"})
	return err
}

func (w *world) wantEffects(t *testing.T, want int) {
	t.Helper()
	if got := len(w.Repository.Rows()); got != want {
		t.Errorf("%d effects, want %d", got, want)
	}
}

func TestRunInTx(t *testing.T) {
	w := newWorld(t, once.Config{})
	work := func(ctx context.Context, tx core.Tx) (once.Result, error) {
		return once.Result{Data: []byte("a")}, w.effect(ctx, tx)
	}
	for i := range 3 {
		res, replayed, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint, work)
		if err != nil || replayed != (i > 0) || string(res.Data) != "a" {
			t.Errorf("run %d: %q, %t, %v", i, res.Data, replayed, err)
		}
	}
	w.wantEffects(t, 1)
	other := once.FingerprintOf([]byte("other"))
	first := once.Key{Scope: "test", ID: "fingerprint"}
	if _, _, err := w.RunInTx(t.Context(), w.Transactor, first, once.FingerprintOf([]byte("one")), work); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.RunInTx(t.Context(), w.Transactor, first, other, neverTx(t)); !errors.Is(err,
		once.ErrFingerprintMismatch) {
		t.Errorf("another fingerprint: %v", err)
	}
}

func TestRunInTxUndoesFailedWork(t *testing.T) {
	w := newWorld(t, once.Config{MaxResult: 3})
	for name, tt := range map[string]struct {
		res  once.Result
		err  error
		want error
	}{
		"an error":       {once.Result{}, errWork, errWork},
		"a large result": {once.Result{Data: []byte("four")}, nil, once.ErrInvalidResult},
	} {
		_, _, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint,
			func(ctx context.Context, tx core.Tx) (once.Result, error) {
				return tt.res, errors.Join(w.effect(ctx, tx), tt.err)
			})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("recovered %v", p)
			}
		}()
		_, _, _ = w.RunInTx(t.Context(), w.Transactor, key, noPrint,
			func(ctx context.Context, tx core.Tx) (once.Result, error) {
				_ = w.effect(ctx, tx)
				panic("boom")
			})
	}()
	w.wantEffects(t, 0)
	if w.store.Keys() != 0 {
		t.Errorf("%d keys are left", w.store.Keys())
	}
}

// If a caller commits in spite of the error, the work is repeated rather than lost.
func TestDoTxFreesTheKeyWhenTheErrorIsIgnored(t *testing.T) {
	w := newWorld(t, once.Config{})
	err := w.Transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
		if _, _, err := w.DoTx(ctx, tx, key, noPrint,
			func(context.Context) (once.Result, error) { return once.Result{}, errWork }); !errors.Is(err, errWork) {
			t.Errorf("got %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, replayed, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint, returnsTx("a")); err != nil || replayed {
		t.Errorf("again: %t, %v", replayed, err)
	}
}

func TestRunInTxIsRepeatedAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retried int
		w := newWorld(t, once.Config{Observer: &once.Observer{Retried: func(once.Key, error) { retried++ }}})
		runs := 0
		_, replayed, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint,
			func(ctx context.Context, tx core.Tx) (once.Result, error) {
				if err := w.effect(ctx, tx); err != nil {
					return once.Result{}, err
				}
				if runs++; runs < 4 {
					return once.Result{}, deadlock{}
				}
				return once.Result{}, nil
			})
		if err != nil || replayed || runs != 4 || retried != 3 {
			t.Errorf("%t, %v after %d runs, %d retries heard of", replayed, err, runs, retried)
		}
		w.wantEffects(t, 1)

		runs = 0
		_, _, err = w.RunInTx(t.Context(), w.Transactor, once.Key{Scope: "test", ID: "2"}, noPrint,
			func(context.Context, core.Tx) (once.Result, error) {
				runs++
				return once.Result{}, deadlock{}
			})
		if !errors.As(err, &deadlock{}) || runs != 10 {
			t.Errorf("%v after %d runs", err, runs)
		}

		runs = 0
		_ = w.Transactor.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
			_, _, err := w.RunInTx(ctx, w.Transactor, once.Key{Scope: "test", ID: "3"}, noPrint,
				func(context.Context, core.Tx) (once.Result, error) {
					runs++
					return once.Result{}, deadlock{}
				})
			return err
		})
		if runs != 1 {
			t.Errorf("%d runs within the caller's transaction", runs)
		}
	})
}

// After a commit whose answer was lost, the key shows whether the transaction committed.
func TestRunInTxFindsOutWhatCommitted(t *testing.T) {
	for fault, committed := range map[outboxtest.CommitFault]bool{
		outboxtest.CommitAnswerLost: true,
		outboxtest.CommitNotSent:    false,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, once.Config{})
			w.Repository.FailCommit(fault)
			runs := 0
			res, replayed, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint,
				func(ctx context.Context, tx core.Tx) (once.Result, error) {
					runs++
					return once.Result{Data: []byte("a")}, w.effect(ctx, tx)
				})
			if err != nil || replayed != committed || string(res.Data) != "a" ||
				runs != map[bool]int{true: 1, false: 2}[committed] {
				t.Errorf("committed %t: %q, %t, %v after %d runs", committed, res.Data, replayed, err, runs)
			}
			w.wantEffects(t, 1)
		})
	}
}

func TestRunInTxManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, once.Config{})
		var runs, replays atomic.Int32
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				_, replayed, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint,
					func(ctx context.Context, tx core.Tx) (once.Result, error) {
						if runs.Add(1) <= 3 {
							return once.Result{}, errors.Join(w.effect(ctx, tx), deadlock{})
						}
						return once.Result{}, w.effect(ctx, tx)
					})
				if err != nil {
					t.Error(err)
				}
				if replayed {
					replays.Add(1)
				}
			})
		}
		wg.Wait()
		if runs.Load() != 4 || replays.Load() != 63 {
			t.Errorf("%d runs, %d replays", runs.Load(), replays.Load())
		}
		w.wantEffects(t, 1)
	})
}

func TestDoTxRefuses(t *testing.T) {
	w := newWorld(t, once.Config{})
	held := once.Request{Key: key, Owner: "held in the lease form", Lease: time.Minute, TTL: time.Hour}
	if _, err := w.store.Acquire(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint, neverTx(t)); !errors.Is(err,
		once.ErrInProgress) || once.RetryAfter(err) <= 0 {
		t.Errorf("a held key: %v", err)
	}
	if _, _, err := w.DoTx(t.Context(), nil, key, noPrint, never(t)); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("no transaction: %v", err)
	}
	if _, _, err := w.RunInTx(t.Context(), w.Transactor, once.Key{}, noPrint, neverTx(t)); !errors.Is(err,
		once.ErrInvalidKey) {
		t.Errorf("no key: %v", err)
	}
	if _, _, err := w.RunInTx(t.Context(), nil, key, noPrint, neverTx(t)); err == nil {
		t.Error("a nil Transactor was accepted")
	}
	if _, _, err := w.RunInTx(t.Context(), w.Transactor, key, noPrint, nil); err == nil {
		t.Error("a nil function was accepted")
	}
	leaseOnly := newRunner(t, once.Config{Store: struct{ once.Store }{w.store}})
	if _, _, err := leaseOnly.RunInTx(t.Context(), w.Transactor, key, noPrint, neverTx(t)); err == nil {
		t.Error("a store without the transaction form was accepted")
	}
	txOnly := newRunner(t, once.Config{TxStore: w.store})
	if _, _, err := txOnly.Do(t.Context(), key, noPrint, never(t)); err == nil {
		t.Error("a store without the lease form was accepted")
	}
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

// RunInTx relies on the outcome that the transaction reports, whatever the Transactor returns.
func TestRunInTxBelievesTheTransaction(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(tx core.Tx)
		want error
	}{
		"heard to commit":    {func(core.Tx) {}, nil},
		"heard to roll back": {func(tx core.Tx) { _ = tx.(*outboxtest.Tx).Rollback() }, core.ErrTxAborted},
		"the answer was lost": {
			func(tx core.Tx) { tx.(*outboxtest.Tx).FailCommit(outboxtest.CommitNotSent) },
			core.ErrCommitUnknown,
		},
		"the commit was refused": {
			func(tx core.Tx) { tx.(*outboxtest.Tx).FailCommit(outboxtest.CommitRefused) },
			core.ErrTxAborted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, once.Config{})
				s := sloppy{w.Transactor, tc.end}
				_, _, err := w.RunInTx(t.Context(), s, key, noPrint,
					func(ctx context.Context, tx core.Tx) (once.Result, error) {
						return once.Result{}, w.effect(ctx, tx)
					})
				if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
					t.Errorf("RunInTx: %v, want %v", err, tc.want)
				}
				if want := map[bool]int{true: 1}[tc.want == nil]; len(w.Repository.Rows()) != want {
					t.Errorf("%d effects, want %d", len(w.Repository.Rows()), want)
				}
				err = sqltx.RetryTx(t.Context(), s,
					func(ctx context.Context, tx core.Tx) error { return w.effect(ctx, tx) })
				if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
					t.Errorf("RetryTx: %v, want %v", err, tc.want)
				}
			})
		})
	}
}
