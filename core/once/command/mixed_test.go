package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once/command"
)

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

// If the effects of a channel go to several destinations and one of them is dead, the operator gets
// one warning. A single destination may go down and come back without a warning.
func TestChannelOfSeveralDestinationsIsTold(t *testing.T) {
	down := errors.New("connection refused")
	for name, c := range map[string]struct {
		call  func(ctx context.Context, e command.Effect, away bool) error
		named bool
		told  int
	}{
		"one subscriber is dead": {func(_ context.Context, e command.Effect, _ bool) error {
			if e.Tenant == "dead" {
				return core.Unavailable(down)
			}
			return nil
		}, false, 1},
		"one subscriber hangs": {func(ctx context.Context, e command.Effect, _ bool) error {
			if e.Tenant == "dead" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, false, 1},
		"destinations are named": {func(_ context.Context, e command.Effect, _ bool) error {
			if e.Tenant == "dead" {
				return core.Unavailable(down)
			}
			return nil
		}, true, 0},
		"all share one that comes and goes": {func(_ context.Context, _ command.Effect, away bool) error {
			if away {
				return core.Unavailable(down)
			}
			return nil
		}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newEffects(t)
				var out safeBuffer
				var away atomic.Bool
				worker := w.worker(func(ctx context.Context, e command.Effect) (string, error) {
					return "ref", c.call(ctx, e, away.Load())
				}, func(cfg *command.WorkerConfig) {
					cfg.Logger = slog.New(slog.NewTextHandler(&out, nil))
					if c.named {
						cfg.Destination = func(e command.Effect) string { return e.Tenant }
					}
				})
				router := core.NewRouter()
				worker.AddTo(router)
				outbox, err := core.New(core.Config{
					Repository: w.repo, Publisher: router,
					Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(context.Background())
				done := make(chan error)
				go func() { done <- outbox.Run(ctx) }()
				for i := range 40 {
					away.Store(i%4 == 3)
					w.inTx(func(ctx context.Context) error {
						for s, tenant := range []string{"live", "dead", "live", "live"} {
							if tenant == "dead" && i%10 > 0 {
								continue
							}
							if _, _, err := w.queue.Enqueue(ctx, nil,
								command.Effect{
									Channel: "mail", Tenant: tenant,
									Key: fmt.Sprint(i, ":", s),
								}); err != nil {
								return err
							}
						}
						return nil
					})
					time.Sleep(30 * time.Second)
				}
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if got := out.String(); strings.Count(got, "\n") != c.told ||
					c.told > 0 && !strings.Contains(got, "channel=mail") {
					t.Errorf("logged %q, want %d lines", got, c.told)
				}
			})
		})
	}
}
