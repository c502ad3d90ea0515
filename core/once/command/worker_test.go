package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// The test checks the status of the effect and the error that the relay gets, for every way in
// which a handler can end.
func TestWorkerOutcomes(t *testing.T) {
	odd := errors.New("odd")
	for name, c := range map[string]struct {
		err     error
		attempt int
		status  command.Status
		spent   int
		told    bool // the relay gets an error
		class   core.Class
		outcome string
	}{
		"done":         {nil, 1, command.StatusCompleted, 0, false, 0, "executed"},
		"unmarked":     {odd, 1, command.StatusFailed, 1, true, core.ClassTransient, "retried"},
		"transient":    {core.Transient(odd), 9, command.StatusFailed, 1, true, core.ClassTransient, "retried"},
		"last attempt": {odd, 10, command.StatusDead, 1, false, 0, "dead"},
		"permanent":    {core.Permanent(odd), 1, command.StatusDead, 1, false, 0, "dead"},
		"outage": {
			core.Unavailable(odd), 99, command.StatusFailed, 0, true, core.ClassKeyUnavailable,
			"retried",
		},
		"outage of a part": {
			core.UnavailableForKey(odd), 99, command.StatusFailed, 0, true, core.ClassKeyUnavailable,
			"retried",
		},
		"network error": {
			fmt.Errorf("call: %w", syscall.ECONNREFUSED), 99, command.StatusFailed, 0, true,
			core.ClassKeyUnavailable, "retried",
		},
		"its own deadline": {
			context.DeadlineExceeded, 1, command.StatusFailed, 1, true, core.ClassTransient,
			"retried",
		},
		"deadline, at last": {context.DeadlineExceeded, 10, command.StatusDead, 1, false, 0, "dead"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEffects(t)
			var info command.ExecInfo
			var got command.Effect
			worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
				got = e
				return "ref", c.err
			}, func(cfg *command.WorkerConfig) { cfg.Observer = func(i command.ExecInfo) { info = i } })
			receipt, err := worker.PublishWithReceipt(t.Context(), w.delivery(c.attempt))
			class, marked := core.ClassOf(err)
			if (err != nil) != c.told || class != c.class ||
				c.told && !marked && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the relay is told %v, class %s", err, class)
			}
			rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
			if rec.Status != c.status || rec.Attempts != c.spent ||
				(c.status == command.StatusCompleted) != (receipt == "ref") {
				t.Errorf("%q, %+v", receipt, rec)
			}
			if info.Result != c.outcome || info.Channel != "mail" || info.Key != "1" || info.ID != w.rec.ID ||
				info.Attempt != c.attempt || !errors.Is(info.Err, c.err) {
				t.Errorf("%+v", info)
			}
			if string(got.Payload) != "hello" || len(got.IdempotencyKey()) != 64 ||
				got.IdempotencyKey() != w.rec.IdempotencyKey() {
				t.Errorf("%+v", got)
			}
		})
	}
}

// While the store fails, no effect is treated as done, and the event spends no attempt.
func TestWorkerWithoutStore(t *testing.T) {
	down := errors.New("database is down")
	for call, calls := range map[string]int{"claim": 0, "complete": 1, "fail": 1} {
		bubble(t, call, func(t *testing.T) {
			w := newEffects(t)
			w.store.fail = func(c string) error {
				if c == call {
					return down
				}
				return nil
			}
			n := 0
			worker := w.worker(func(context.Context, command.Effect) (string, error) {
				n++
				if call == "fail" {
					return "", core.Permanent(errors.New("no"))
				}
				return "ref", nil
			})
			err := worker.Publish(t.Context(), w.delivery(1))
			if class, _ := core.ClassOf(err); !errors.Is(err, down) || class != core.ClassKeyUnavailable ||
				n != calls {
				t.Errorf("%v after %d calls", err, n)
			}
			if call != "claim" && w.store.calls[call] < 3 {
				t.Errorf("%s was tried %d times", call, w.store.calls[call])
			}
			// The lease ends and the store works again. The next worker completes the effect.
			w.store.fail = nil
			time.Sleep(time.Minute)
			receipt, err := w.worker(func(context.Context, command.Effect) (string, error) {
				return "again", nil
			}).PublishWithReceipt(t.Context(), w.delivery(1))
			if err != nil || receipt != "again" {
				t.Errorf("%q, %v", receipt, err)
			}
		})
	}
}

// A stop of the relay is no failure of the effect. A panic is a failure, and goes on to the relay.
func TestWorkerStopAndPanic(t *testing.T) {
	w := newEffects(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
		cancel()
		return "", ctx.Err()
	}).Publish(ctx, w.delivery(10))
	rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
	if !errors.Is(err, context.Canceled) || rec.Status != command.StatusFailed || rec.Attempts != 0 {
		t.Errorf("stopped: %v, %+v", err, rec)
	}
	func() {
		defer func() {
			p, ok := recover().(*core.PanicError)
			if !ok || p.Value != "oh no" || !strings.Contains(string(p.Stack), "TestWorkerStopAndPanic") {
				t.Errorf("recovered %+v", p)
			}
		}()
		_ = w.worker(func(context.Context, command.Effect) (string, error) { panic("oh no") }).Publish(t.Context(),
			w.delivery(1))
	}()
	if rec, _ = w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Status != command.StatusFailed ||
		rec.Attempts != 1 ||
		rec.ErrorCode != "panic" ||
		!strings.Contains(rec.Error, "panic: oh no") {
		t.Errorf("panic: %+v", rec)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.worker(func(context.Context, command.Effect) (string, error) {
			runtime.Goexit()
			return "", nil
		}).Publish(t.Context(), w.delivery(2))
		t.Error("runtime.Goexit returned")
	}()
	<-done
	if rec, _ = w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Attempts != 2 || rec.ErrorCode != "goexit" ||
		!strings.Contains(rec.Error, "runtime.Goexit") {
		t.Errorf("runtime.Goexit: %+v", rec)
	}
}

// If the store has not answered for the length of the lease, the handler's context ends. A later
// success of the handler is not relied on.
func TestWorkerLosesLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		w.store.fail = func(c string) error {
			if c == "extend" {
				return errors.New("database is down")
			}
			return nil
		}
		start := time.Now()
		err := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		}, func(c *command.WorkerConfig) { c.Lease = 30 * time.Second }).Publish(t.Context(), w.delivery(1))
		if class, _ := core.ClassOf(err); !errors.Is(err, once.ErrLeaseLost) || class != core.ClassKeyUnavailable {
			t.Errorf("%v", err)
		}
		if d := time.Since(start); d != 30*time.Second {
			t.Errorf("told after %s", d)
		}
	})
}

// The worker warns once if its lease is shorter than the time for which a handler may run.
func TestWorkerTellsOfAShortLease(t *testing.T) {
	for limit, told := range map[time.Duration]int{20 * time.Second: 0, 40 * time.Second: 1, 0: 0} {
		w := newEffects(t)
		var out safeBuffer
		worker := w.worker(
			func(context.Context, command.Effect) (string, error) { return "", context.DeadlineExceeded },
			func(cfg *command.WorkerConfig) { cfg.Logger = slog.New(slog.NewTextHandler(&out, nil)) })
		ctx, cancel := t.Context(), func() {}
		if limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, limit)
		}
		for attempt := range 3 {
			_ = worker.Publish(ctx, w.delivery(attempt+1))
		}
		cancel()
		if got := out.String(); strings.Count(got, "lease=30s") != told || strings.Count(got, "\n") != told {
			t.Errorf("handlers may run for %s: logged %q, want %d lines", limit, got, told)
		}
	}
}

// safeBuffer is a bytes.Buffer for several goroutines.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
