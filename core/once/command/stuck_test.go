package command_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Handlers of four of nine subscribers never return, as many at once as the relay has workers. They
// hold up the other subscribers for a while, and never the channel. When they return after all,
// their results count: no effect is executed twice.
func TestStuckHandlersTakeNoWorkers(t *testing.T) {
	const each, live, dead = 20, 5, 4
	for name, c := range map[string]struct {
		destination func(command.Effect) string
		within      time.Duration
		calls       int // of the dead, at most
	}{
		"destinations with names": {func(e command.Effect) string { return e.Tenant }, 20 * time.Second, dead * 8},
		"destinations without":    {nil, 3 * time.Minute, dead * each},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newEffects(t)
			release := make(chan struct{})
			var mu sync.Mutex
			calls := map[string]int{} // by the id of the effect
			begun := 0                // of the dead
			worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
				mu.Lock()
				calls[e.ID]++
				never := e.Headers["dead"] != ""
				if never {
					begun++
				}
				mu.Unlock()
				if never {
					<-release
				}
				return "ref", nil
			}, func(cfg *command.WorkerConfig) { cfg.Destination = c.destination })
			var opened, stuck atomic.Int64
			var all []command.Effect
			for i := range each {
				for s := range live + dead {
					e := command.Effect{Channel: "mail", Tenant: fmt.Sprint("s", s), Key: fmt.Sprint(i)}
					if s >= live {
						e.Headers = map[string]string{"dead": "yes"}
					}
					all = append(all, e)
				}
			}
			w.enqueue(all...)
			w.relay(worker, &core.Observer{
				BreakerChanged: func(string, bool, error) { opened.Add(1) },
				Stuck:          func(string, int) { stuck.Add(1) },
			})
			open := func() (live, dead int) {
				w.store.mu.Lock()
				defer w.store.mu.Unlock()
				for _, r := range w.store.rows {
					switch {
					case r.Status == command.StatusCompleted:
					case r.Headers["dead"] != "":
						dead++
					default:
						live++
					}
				}
				return live, dead
			}
			time.Sleep(c.within)
			if n, _ := open(); n != 0 {
				t.Errorf("%d effects of subscribers that work are open after %s", n, c.within)
			}
			time.Sleep(10 * time.Minute)
			mu.Lock()
			if begun > c.calls {
				t.Errorf("%d handlers were called that never return, want at most %d", begun, c.calls)
			}
			mu.Unlock()
			close(release)
			time.Sleep(30 * time.Second)
			if n, m := open(); n+m != 0 {
				t.Errorf("%d effects are open after all have returned", n+m)
			}
			mu.Lock()
			defer mu.Unlock()
			for id, n := range calls {
				if n != 1 {
					t.Errorf("effect %s was executed %d times", id, n)
				}
			}
			if opened.Load() != 0 || stuck.Load() != 0 {
				t.Errorf("the channel was stopped %d times, %d times the relay found a worker stuck", opened.Load(),
					stuck.Load())
			}
		})
	}
}

// A handler that was given up may still fail or panic. Its effect is tried again, and no attempt is
// spent on the time that was over.
func TestStuckHandlerFailsLate(t *testing.T) {
	for name, end := range map[string]func() (string, error){
		"fails":  func() (string, error) { return "", context.DeadlineExceeded },
		"panics": func() (string, error) { panic("oh no") },
	} {
		bubble(t, name, func(t *testing.T) {
			w := newEffects(t)
			var calls atomic.Int64
			worker := w.worker(func(context.Context, command.Effect) (string, error) {
				if calls.Add(1) == 1 {
					time.Sleep(time.Minute)
					return end()
				}
				return "ref", nil
			}, func(cfg *command.WorkerConfig) { cfg.Destination = func(command.Effect) string { return "there" } })
			w.relay(worker, nil)
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1")
			if rec.Status != command.StatusCompleted || calls.Load() != 2 {
				t.Errorf("%d calls, %+v", calls.Load(), rec)
			}
		})
	}
}

// The relay ends in time although a handler never returns.
func TestRelayEndsBesideAStuckHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		release := make(chan struct{})
		worker := w.worker(func(context.Context, command.Effect) (string, error) {
			<-release
			return "ref", nil
		})
		router := core.NewRouter()
		worker.AddTo(router)
		ob, err := core.New(core.Config{Repository: w.repo, Publisher: router, Relay: relay.Config{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		if err := ob.Run(ctx); err != nil || time.Since(began) > 25*time.Second {
			t.Errorf("Run ended after %s: %v", time.Since(began), err)
		}
		close(release)
		synctest.Wait()
		if rec, _ := w.queue.Find(t.Context(), "acme", "mail", "1"); rec.Status != command.StatusCompleted {
			t.Errorf("the handler succeeded in the end: %+v", rec)
		}
	})
}

// Handlers that never return are given up in bounded number. After that the relay sees them, and
// leaves the channel alone.
func TestGivenUpHandlersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newEffects(t)
		release := make(chan struct{})
		var begun, stuck atomic.Int64
		worker := w.worker(func(context.Context, command.Effect) (string, error) {
			begun.Add(1)
			<-release
			return "ref", nil
		})
		var all []command.Effect
		for i := range 400 {
			all = append(all, command.Effect{Channel: "mail", Tenant: "acme", Key: fmt.Sprint("k", i)})
		}
		w.enqueue(all...)
		w.relay(worker, &core.Observer{Stuck: func(_ string, total int) { stuck.Store(int64(total)) }})
		time.Sleep(30 * time.Minute)
		if n := begun.Load(); n < 128 || n > 128+32 || stuck.Load() == 0 {
			t.Errorf("%d handlers were called, the relay knows of %d", n, stuck.Load())
		}
		close(release)
		time.Sleep(2 * time.Minute)
		if n := begun.Load(); n != 401 || stuck.Load() != 0 {
			t.Errorf("after all have returned: %d handlers were called, want one for each effect; %d are stuck", n,
				stuck.Load())
		}
	})
}
