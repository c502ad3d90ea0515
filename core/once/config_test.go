package once_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestConfigValidate(t *testing.T) {
	if err := (once.Config{Store: outboxtest.NewOnceStore()}).Validate(); err != nil {
		t.Errorf("the zero value with a store: %v", err)
	}
	if err := (once.Config{TxStore: outboxtest.NewOnceStore(), Lease: time.Second}).Validate(); err != nil {
		t.Errorf("a short lease: %v", err)
	}
	bad := once.Config{
		Lease: 2 * time.Hour, TTL: -1, MaxResult: -1, StoreTimeout: 3 * time.Hour, Node: strings.Repeat("n", 129),
		CleanupInterval: -1, CleanupBatch: -1,
	}
	_, err := once.New(bad)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{
		"Store is", "Lease:", "TTL:", "MaxResult", "StoreTimeout", "Node", "CleanupInterval",
		"CleanupBatch",
	} {
		if !strings.Contains(err.Error(), field) {
			t.Errorf("%q does not name %s", err, field)
		}
	}
}

func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewOnceStore()
		var chunks []int
		r := newRunner(t, once.Config{
			Store: s, TTL: time.Hour, CleanupBatch: 2,
			Observer: &once.Observer{Cleaned: func(n int, err error) {
				if err != nil {
					t.Error(err)
				}
				chunks = append(chunks, n)
			}},
		})
		for _, id := range []string{"1", "2", "3", "4", "5"} {
			if _, _, err := r.Do(t.Context(), once.Key{Scope: "test", ID: id}, noPrint, returns("")); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := r.Cleanup(t.Context()); n != 0 || err != nil {
			t.Errorf("too early: %d, %v", n, err)
		}
		time.Sleep(time.Hour + time.Second)
		if n, err := r.Cleanup(t.Context()); n != 5 || err != nil || len(chunks) != 4 {
			t.Errorf("deleted %d, %v, in chunks of %v", n, err, chunks)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		if _, _, err := r.Do(t.Context(), key, noPrint, returns("")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + 11*time.Minute)
		if s.Keys() != 0 {
			t.Errorf("%d keys are left", s.Keys())
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

type brokenCleanup struct{ *outboxtest.OnceStore }

func (brokenCleanup) Cleanup(context.Context, int) (int, error) { return 0, errDown }

func TestCleanupFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := 0
		r := newRunner(t, once.Config{
			Store: brokenCleanup{outboxtest.NewOnceStore()},
			Observer: &once.Observer{Cleaned: func(_ int, err error) {
				if errors.Is(err, errDown) {
					heard++
				}
			}},
		})
		if _, err := r.Cleanup(t.Context()); !errors.Is(err, errDown) || !errors.Is(err, once.ErrStore) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := r.Run(ctx); err != nil || heard < 6 {
			t.Errorf("Run: %v, heard of %d errors", err, heard)
		}
	})
	txOnly := newRunner(t, once.Config{TxStore: outboxtest.NewOnceStore()})
	if _, err := txOnly.Cleanup(t.Context()); err == nil {
		t.Error("Cleanup without a Store")
	}
	if err := txOnly.Run(t.Context()); err == nil {
		t.Error("Run without a Store")
	}
}

// A broken archive keeps the keys, and a panic in it does not end the program.
func TestCleanupArchives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := outboxtest.NewOnceStore()
		var result error
		panics, archived := false, 0
		r, err := once.New(once.Config{
			Store: s, TTL: time.Hour,
			Archive: func(_ context.Context, keys []once.ArchivedKey) error {
				if panics {
					panic("no archive")
				}
				if archived += len(keys); len(keys) > 100 {
					t.Errorf("%d keys at once", len(keys))
				}
				return result
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		const keys = 100 + 5
		for i := range keys {
			_, _, err := r.Do(t.Context(), once.Key{Scope: "s", ID: fmt.Sprint(i)}, once.Fingerprint{},
				func(context.Context) (once.Result, error) { return once.Result{}, nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		s.ShiftClock(2 * time.Hour)
		panics = true
		if n, err := r.Cleanup(t.Context()); n != 0 || !errors.Is(err, once.ErrStore) ||
			!strings.Contains(err.Error(), "Config.Archive: ") || s.Keys() != keys {
			t.Errorf("a panic: deleted %d, %d are left, %v", n, s.Keys(), err)
		}
		panics, result = false, errDown
		if n, err := r.Cleanup(t.Context()); n != 0 || !errors.Is(err, errDown) || s.Keys() != keys {
			t.Errorf("an error: deleted %d, %d are left, %v", n, s.Keys(), err)
		}
		result, archived = nil, 0
		if n, err := r.Cleanup(t.Context()); n != keys || err != nil || archived != keys || s.Keys() != 0 {
			t.Errorf("deleted %d, archived %d, %d are left, %v", n, archived, s.Keys(), err)
		}
	})
	type noArchiver struct{ once.Store }
	_, err := once.New(once.Config{
		Store:   noArchiver{outboxtest.NewOnceStore()},
		Archive: func(context.Context, []once.ArchivedKey) error { return nil },
	})
	if err == nil || !strings.Contains(err.Error(), "Archive needs a Store that is an Archiver") {
		t.Errorf("a store without archives: %v", err)
	}
}

// An archive that ignores the end of its context does not keep Run from ending. No second call
// begins beside it, and its keys stay.
func TestRunEndsBesideAnArchiveThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, failed atomic.Int64
		s, hang := outboxtest.NewOnceStore(), make(chan struct{})
		r, err := once.New(once.Config{
			Store: s, TTL: time.Hour, CleanupInterval: time.Minute,
			Archive: func(context.Context, []once.ArchivedKey) error {
				calls.Add(1)
				<-hang
				return nil
			},
			Observer: &once.Observer{Cleaned: func(_ int, err error) {
				if err != nil {
					failed.Add(1)
				}
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = r.Do(t.Context(), once.Key{Scope: "s", ID: "1"}, once.Fingerprint{},
			func(context.Context) (once.Result, error) { return once.Result{}, nil })
		if err != nil {
			t.Fatal(err)
		}
		s.ShiftClock(2 * time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if calls.Load() != 1 || failed.Load() < 5 || s.Keys() != 1 {
			t.Errorf("%d calls, %d errors, %d keys", calls.Load(), failed.Load(), s.Keys())
		}
		cancel()
		time.Sleep(2 * time.Second)
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Run has not ended")
		}
		close(hang)
		synctest.Wait()
		if s.Keys() != 1 {
			t.Error("the key of a call that was left alone is deleted")
		}
	})
}
