package once_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// slowStore answers after a while.
type slowStore struct {
	*outboxtest.OnceStore
	after time.Duration
}

func (s slowStore) Acquire(ctx context.Context, r once.Request) (once.Acquired, error) {
	time.Sleep(s.after)
	return s.OnceStore.Acquire(ctx, r)
}

// A store that hangs does not outlast the caller's deadline. A key that it grants too late is given
// back, and spends no attempt.
func TestACallersDeadlineHoldsWhileTheStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := outboxtest.NewOnceStore()
		r, err := once.New(once.Config{Store: slowStore{store, 3 * time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		key, began := once.Key{Scope: "s", ID: "1"}, time.Now()
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, _, err = r.Do(ctx, key, once.Fingerprint{}, func(context.Context) (once.Result, error) {
				t.Error("the work ran")
				return once.Result{}, nil
			})
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 500*time.Millisecond {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			began = time.Now()
		}
		_, _, err = r.Do(t.Context(), key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
			if n := once.AttemptOf(ctx).Number; n != 1 {
				t.Errorf("attempt %d", n)
			}
			return once.Result{}, nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}
