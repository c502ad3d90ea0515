package command_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

// deadSubscriber has the ways in which a subscriber can fail: the result of a call, and how many
// attempts all its effects may spend.
var deadSubscriber = map[string]struct {
	call  func(ctx context.Context) error
	spent int
}{
	"hangs":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 0},
	"refuses": {func(context.Context) error { return fmt.Errorf("dial: %w", syscall.ECONNREFUSED) }, 0},
	"says so": {func(context.Context) error { return core.Unavailable(errors.New("503")) }, 0},
	// The fifth failure shows that the destination is at fault.
	"fails":  {func(context.Context) error { return errors.New("500") }, 4},
	"fails!": {func(context.Context) error { return core.Transient(errors.New("500")) }, 4},
}

// One of eleven subscribers is dead. It holds up none of the others, takes few calls and no
// workers, and its effects wait until it is back.
func TestDeadDestinationHoldsUpNoOther(t *testing.T) {
	for name, c := range deadSubscriber {
		bubble(t, name, func(t *testing.T) {
			const each, live = 25, 10
			w := newEffects(t) // the effect goes to the tenant acme, whose subscriber works
			var mu sync.Mutex
			calls, running, most := map[string]int{}, 0, 0
			back := false
			worker := w.worker(func(ctx context.Context, e command.Effect) (string, error) {
				mu.Lock()
				calls[e.Tenant]++
				dead := e.Tenant == "dead" && !back
				if dead {
					running++
					most = max(most, running)
				}
				mu.Unlock()
				if !dead {
					time.Sleep(20 * time.Millisecond)
					return "ref", nil
				}
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					running--
				}()
				return "", c.call(ctx)
			}, func(cfg *command.WorkerConfig) {
				cfg.Destination = func(e command.Effect) string { return e.Tenant }
			})
			var opened atomic.Int64
			var all []command.Effect
			for i := range each {
				for s := range live + 2 {
					tenant := fmt.Sprint("live", s)
					if s >= live { // twice as many calls, before the last of the others
						tenant = "dead"
					}
					all = append(all, command.Effect{Channel: "mail", Tenant: tenant, Key: fmt.Sprint(s, ":", i)})
				}
			}
			w.enqueue(all...)
			w.relay(worker, &core.Observer{BreakerChanged: func(string, bool, error) { opened.Add(1) }})
			time.Sleep(10 * time.Second)
			count := func(tenant string) int {
				mu.Lock()
				defer mu.Unlock()
				return calls[tenant]
			}
			for s := range live {
				if n := count(fmt.Sprint("live", s)); n != each {
					t.Errorf("live subscriber %d got %d of %d in 10s", s, n, each)
				}
			}
			time.Sleep(5 * time.Minute)
			spent, waiting := 0, 0
			w.store.mu.Lock()
			for _, r := range w.store.rows {
				if r.Tenant == "dead" {
					spent += r.Attempts
					if r.Status != command.StatusCompleted && r.Status != command.StatusDead {
						waiting++
					}
				}
			}
			w.store.mu.Unlock()
			if waiting != 2*each || spent > c.spent {
				t.Errorf("%d of %d wait, %d attempts spent", waiting, 2*each, spent)
			}
			// At most the first eight calls, then one after each 1, 2, 4, 8, 10, 10, ...
			// seconds.
			mu.Lock()
			if n := calls["dead"]; n < 10 || n > 8+40 || most > 8 {
				t.Errorf("the dead one got %d calls in five minutes, %d at once", n, most)
			}
			back = true
			mu.Unlock()
			time.Sleep(25 * time.Second)
			w.store.mu.Lock()
			for _, r := range w.store.rows {
				if r.Status != command.StatusCompleted {
					t.Errorf("after 25s with all back: %s of %s is %s", r.Key, r.Tenant, r.Status)
					break
				}
			}
			w.store.mu.Unlock()
			if n := opened.Load(); n != 0 {
				t.Errorf("the channel was stopped %d times", n)
			}
		})
	}
}

// With destinations, an effect that is the only one to fail is tried again after growing pauses.
// Its row counts the attempts, and it becomes dead. A panic counts too.
func TestEffectOfADestinationBecomesDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		calls := 0
		worker := w.worker(func(context.Context, command.Effect) (string, error) {
			if calls++; calls == 2 {
				panic("oh no")
			}
			return "", core.Transient(errors.New("odd"))
		}, func(c *command.WorkerConfig) {
			c.MaxAttempts, c.Destination = 4, func(command.Effect) string { return "there" }
		})
		w.relay(worker, nil)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
		if rec.Status != command.StatusDead || rec.Attempts != 4 || calls != 4 {
			t.Errorf("%d calls, %+v", calls, rec)
		}
	})
}

// A destination refuses its only effect with an unmarked error. That may be an outage, so the
// effect does not become dead until the destination accepts another effect.
func TestEffectRefusedAloneIsNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		var calls atomic.Int64
		worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
			if e.Key != "1" {
				return "ref", nil
			}
			calls.Add(1)
			return "", errors.New("503")
		}, func(c *command.WorkerConfig) {
			c.MaxAttempts, c.Destination = 4, func(command.Effect) string { return "there" }
		})
		w.relay(worker, nil)
		time.Sleep(10 * time.Minute)
		rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
		if rec.Status != command.StatusFailed || rec.Attempts != 3 || calls.Load() > 25 {
			t.Errorf("after an outage of 10 minutes: %d calls, %+v", calls.Load(), rec)
		}
		w.enqueue(command.Effect{Channel: "mail", Tenant: "acme", Key: "2"})
		time.Sleep(90 * time.Second)
		if rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Status != command.StatusDead {
			t.Errorf("the destination takes others: %+v", rec)
		}
	})
}

// With destinations and without, the error of a handler decides when its effect is tried again, or
// that the effect is dead.
func TestHandlerSays(t *testing.T) {
	for name, c := range map[string]struct {
		says   func(ctx context.Context) error
		calls  int // within a minute
		status command.Status
	}{
		"put off": {
			func(context.Context) error { return core.PutOff(errors.New("429"), 50*time.Second) }, 2,
			command.StatusFailed,
		},
		"away for a time": {
			func(context.Context) error { return core.UnavailableFor(errors.New("503"), 50*time.Second) }, 2,
			command.StatusFailed,
		},
		"never": {
			func(context.Context) error { return core.Permanent(errors.New("410")) }, 1,
			command.StatusDead,
		},
		"never, at last": {
			func(ctx context.Context) error { <-ctx.Done(); return core.Permanent(errors.New("410")) },
			1, command.StatusDead,
		},
	} {
		for what, destination := range map[string]func(command.Effect) string{
			"": nil, " there": func(command.Effect) string { return "there" },
		} {
			bubble(t, name+what, func(t *testing.T) {
				w := newEffects(t)
				calls := 0
				worker := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
					calls++
					return "", c.says(ctx)
				}, func(cfg *command.WorkerConfig) { cfg.Destination = destination })
				w.relay(worker, nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
				if calls != c.calls || rec.Status != c.status || rec.Attempts > 1 {
					t.Errorf("%d calls, %+v", calls, rec)
				}
			})
		}
	}
}

// A destination says how long it is away. No effect of it is executed before that, although one that
// began earlier succeeds meanwhile.
func TestDestinationAwayForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t) // effect 1
		const pause = 50 * time.Second
		start := time.Now()
		var mu sync.Mutex
		begun := map[string]time.Duration{}
		worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
			mu.Lock()
			_, again := begun[e.Key]
			begun[e.Key] = time.Since(start)
			mu.Unlock()
			switch {
			case e.Key == "slow":
				time.Sleep(time.Second)
			case e.Key == "1" && !again:
				return "", core.UnavailableFor(errors.New("503"), pause)
			}
			return "ref", nil
		}, func(c *command.WorkerConfig) { c.Destination = func(command.Effect) string { return "there" } })
		w.enqueue(command.Effect{Channel: "mail", Tenant: "acme", Key: "slow"})
		w.relay(worker, nil)
		time.Sleep(2 * time.Second)
		for i := range 20 {
			w.enqueue(command.Effect{Channel: "mail", Tenant: "acme", Key: fmt.Sprint("later", i)})
		}
		time.Sleep(pause + 10*time.Second)
		mu.Lock()
		defer mu.Unlock()
		for key, at := range begun {
			if key != "slow" && at < pause {
				t.Errorf("effect %s was executed after %s", key, at)
			}
		}
		if len(begun) != 22 {
			t.Errorf("%d of 22 effects were executed", len(begun))
		}
	})
}

// A sweep passes over effects that wait for a dead destination, and probes the destination at
// intervals.
func TestSweepPassesOverADeadDestination(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		of := func(tenant string, n int) (all []command.Effect) {
			for i := range n {
				all = append(all, command.Effect{Channel: "mail", Tenant: tenant, Key: fmt.Sprint(i)})
			}
			return all
		}
		w.enqueue(of("dead", 250)...)
		time.Sleep(time.Second) // the others are due later
		w.enqueue(of("live", 20)...)
		dead := 0
		worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
			if e.Tenant != "dead" {
				return "ref", nil
			}
			dead++
			return "", syscall.ECONNREFUSED
		}, func(c *command.WorkerConfig) { c.Destination = func(e command.Effect) string { return e.Tenant } })
		time.Sleep(6 * time.Minute)
		if n, err := worker.Sweep(t.Context()); n != 21 || err != nil || dead != 1 {
			t.Errorf("%d executed, %v, %d calls to the dead one", n, err, dead)
		}
	})
}
