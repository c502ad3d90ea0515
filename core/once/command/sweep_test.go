package command_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// Run executes an effect that no event wakes up. The effect is executed once, however many
// processes call Run. A failure is treated as if the relay had called the handler.
func TestWorkerRunFindsWhatNoEventWakes(t *testing.T) {
	odd := errors.New("odd")
	for name, c := range map[string]struct {
		handle  func(ctx context.Context) (string, error)
		after   time.Duration // the handler is called calls times within this time
		calls   int
		status  command.Status
		spent   int
		outcome string // outcome of the last execution
	}{
		"not overdue": {
			func(context.Context) (string, error) { return "ref", nil }, 5 * time.Minute, 0,
			command.StatusPending, 0, "",
		},
		"done": {
			func(context.Context) (string, error) { return "ref", nil }, time.Hour, 1, command.StatusCompleted, 0,
			"executed",
		},
		"fails": {
			func(context.Context) (string, error) { return "", odd }, 3 * time.Hour, 10, command.StatusDead, 10,
			"dead",
		},
		"permanently": {
			func(context.Context) (string, error) { return "", core.Permanent(odd) }, time.Hour, 1,
			command.StatusDead, 1, "dead",
		},
		"panics": {
			func(context.Context) (string, error) { panic("oh no") }, 3 * time.Hour, 10, command.StatusDead, 10,
			"retried",
		},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newEffects(t)
			calls := 0
			var last command.ExecInfo
			ctx, cancel := context.WithTimeout(t.Context(), c.after)
			defer cancel()
			done := make(chan error)
			for range 3 { // processes
				worker := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
					calls++
					return c.handle(ctx)
				}, func(cfg *command.WorkerConfig) {
					cfg.Observer = func(i command.ExecInfo) {
						if i.Result != "skipped" {
							last = i
						}
					}
				})
				go func() { done <- worker.Run(ctx) }()
			}
			for range 3 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			rec, _ := w.queue.Find(context.WithoutCancel(ctx), "acme", "mail", "1")
			if calls != c.calls || rec.Status != c.status || rec.Attempts != c.spent || last.Result != c.outcome ||
				last.Attempt != c.calls {
				t.Errorf("%d calls, %+v, %+v", calls, rec, last)
			}
		})
	}
}

// A handler may report an outage or hang. Either spends no attempt, and holds up neither the other
// effects of its channel nor another channel.
func TestSweepGoesOnBesideOutages(t *testing.T) {
	for name, fail := range map[string]func(ctx context.Context) error{
		"down":   func(context.Context) error { return core.Unavailable(errors.New("down")) },
		"hangs":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"hangs!": func(ctx context.Context) error { <-ctx.Done(); return core.Transient(ctx.Err()) },
	} {
		bubble(t, name, func(t *testing.T) {
			w := newEffects(t)
			for i := range 4 {
				w.enqueue(command.Effect{Channel: "mail", Key: fmt.Sprint("more", i)},
					command.Effect{Channel: "fax", Key: fmt.Sprint(i)})
			}
			calls, back := 0, false
			var called command.Effect
			worker := w.worker(func(ctx context.Context, e command.Effect) (string, error) {
				calls++
				called = e
				if back {
					return "ref", nil
				}
				return "", fail(ctx)
			}, func(c *command.WorkerConfig) {
				c.MaxAttempts = 1
				c.Handlers["fax"] = func(context.Context, command.Effect) (string, error) { return "faxed", nil }
			})
			time.Sleep(6 * time.Minute)
			start := time.Now()
			n, err := worker.Sweep(t.Context())
			if n != 4 || err != nil || calls != 5 || time.Since(start) > 25*time.Second {
				t.Errorf("%d executed, %d calls, %v after %s", n, calls, err, time.Since(start))
			}
			if rec, _ := w.queue.Find(t.Context(), called.Tenant, "mail",
				called.Key); rec.Status != command.StatusFailed || rec.Attempts != 0 {
				t.Errorf("%+v", rec)
			}
			back = true
			time.Sleep(6 * time.Minute)
			if n, err = worker.Sweep(t.Context()); n != 5 || err != nil {
				t.Errorf("after the outage %d, %v", n, err)
			}
		})
	}
}

// If the store fails, a sweep executes nothing and returns the error, and Run goes on.
func TestSweepWithoutStore(t *testing.T) {
	for _, call := range []string{"overdue", "claim"} {
		bubble(t, call, func(t *testing.T) {
			w := newEffects(t)
			down := errors.New("database is down")
			w.store.fail = func(c string) error {
				if c == call {
					return down
				}
				return nil
			}
			worker := w.worker(func(context.Context, command.Effect) (string, error) { return "ref", nil })
			time.Sleep(6 * time.Minute)
			if n, err := worker.Sweep(t.Context()); n != 0 || !errors.Is(err, down) {
				t.Errorf("%d, %v", n, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			time.AfterFunc(30*time.Minute, func() {
				w.store.mu.Lock()
				defer w.store.mu.Unlock()
				w.store.fail = nil
			})
			if err := worker.Run(ctx); err != nil {
				t.Error(err)
			}
			if rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Status != command.StatusCompleted {
				t.Errorf("%+v", rec)
			}
		})
	}
}

func TestQueueBacklog(t *testing.T) {
	w := newEffects(t)
	if list, err := w.queue.Backlog(t.Context()); err != nil || len(list) != 1 ||
		list[0] != (command.Backlog{Channel: "mail", Pending: 1, Limit: 100_000}) {
		t.Errorf("%+v, %v", list, err)
	}
	down := errors.New("database is down")
	w.store.fail = func(string) error { return down }
	if _, err := w.queue.Backlog(t.Context()); !errors.Is(err, down) {
		t.Errorf("%v", err)
	}
}
