package once_test

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// One of eleven subscribers is down. As many effects wait for it as for all others together. The
// others get their effects. The effects of the subscriber that is down wait without spending
// attempts, and the channel is never stopped. When that subscriber is back, it gets all of its
// effects.
func TestDeadWebhookSubscriber(t *testing.T) {
	t.Parallel()
	byTenant := func(e command.Effect) string { return e.Tenant }
	for name, dies := range map[string]struct {
		with        func(ctx context.Context) error
		destination func(e command.Effect) string
	}{
		"hangs":   {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, byTenant},
		"refuses": {func(context.Context) error { return fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED) }, byTenant},
		"without Destination, hangs": {func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("send: %w", &url.Error{Op: "Post", URL: "https://dead.example/hook", Err: ctx.Err()})
		}, nil},
		"without Destination, refuses": {func(context.Context) error {
			return fmt.Errorf("dial tcp: %w", syscall.ECONNREFUSED) // names no host
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
				const live = 10
				each := 25
				if testing.Short() {
					each = 10
				}
				if dies.destination == nil {
					each = 3 // each of them is tried once
				}
				var mu sync.Mutex
				got, tried, back, stops := map[string]int{}, 0, false, 0
				router := core.NewRouter()
				w.worker(func(ctx context.Context, e command.Effect) (string, error) {
					mu.Lock()
					dead := e.Tenant == "dead" && !back
					if dead {
						tried++
					} else {
						got[e.Tenant+" "+e.Key]++
					}
					mu.Unlock()
					if dead {
						return "", dies.with(ctx)
					}
					return "ref", nil
				},
					func(c *command.WorkerConfig) {
						c.Destination = dies.destination
					}).AddTo(router)
				ob := w.runRelay(core.Config{Publisher: router, Relay: relay.Config{}, Observer: &core.Observer{
					BreakerChanged: func(string, bool, error) {
						mu.Lock()
						defer mu.Unlock()
						stops++
					},
				}})
				queue, err := command.NewQueue(command.QueueConfig{Store: w.store, Outbox: ob})
				fixture.NoError(t, err)
				enqueue := func(ctx context.Context, tenant string, key int) error {
					_, _, err := queue.Enqueue(ctx, nil,
						command.Effect{Channel: "mail", Tenant: tenant, Key: fmt.Sprint(key)})
					return err
				}
				for i := range each {
					fixture.NoError(t, w.inTx(func(ctx context.Context, _ core.Tx) error {
						for s := range live {
							if err := enqueue(ctx, "dead", s*each+i); err != nil {
								return err
							}
							if err := enqueue(ctx, fmt.Sprint("live", s), i); err != nil {
								return err
							}
						}
						return nil
					}))
				}
				w.eventually("the other subscribers have their effects", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(got) == live*each
				})
				all := live * each
				if n := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM side_effect_command WHERE tenant_id = 'dead' "+
					"AND status IN (0, 1, 3) AND attempts = 0"); n != int64(all) {
					t.Errorf("%d of %d effects of the subscriber that is down wait and have spent no attempt", n, all)
				}
				mu.Lock()
				if dies.destination != nil && (tried < 1 || tried > 8+30) { // eight at once, then probes
					t.Errorf("the subscriber that is down was called %d times", tried)
				}
				fixture.Check(t, stops == 0, "the channel was stopped %d times", stops)
				mu.Unlock()
				// No breaker tells of the outage. The age of the backlog does, however often the
				// effects are tried.
				var keys []string
				for n := range all {
					keys = append(keys, fmt.Sprint(n))
				}
				w.ago("created_at", time.Hour, keys...)
				w.eventually("the backlog is as old as the outage", func() bool {
					list, err := queue.Backlog(t.Context())
					return err == nil && len(list) == 1 && list[0].OldestAge > 59*time.Minute
				})
				mu.Lock()
				back = true
				mu.Unlock()
				w.eventually("the subscriber that was down has its effects", func() bool {
					return fixture.Count(t, w.pool,
						"SELECT COUNT(*) FROM side_effect_command WHERE status = 2") == int64(2*all)
				})
				mu.Lock()
				defer mu.Unlock()
				w.mu.Lock()
				defer w.mu.Unlock()
				calls, lost := 0, 0
				for _, n := range got {
					calls += n
				}
				for _, info := range w.infos {
					if info.Result == "lost" { // the database was too slow for its mark
						lost++
					}
				}
				fixture.Check(t, len(got) == 2*all && calls <= 2*all+lost,
					"%d effects were called %d times, %d of which could not be recorded", len(got), calls, lost)
				if list, err := queue.List(t.Context(), command.Query{Status: command.StatusDead}); err != nil ||
					len(list) != 0 {
					t.Errorf("dead: %+v, %v", list, err)
				}
			})
		})
	}
}
