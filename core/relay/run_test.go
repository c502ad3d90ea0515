package relay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

func TestShutdown(t *testing.T) {
	bubble(t, "publishes what it holds", func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{Workers: 1}})
		w.pub.Block()
		w.run()
		for i := range 10 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint(i)})
		}
		synctest.Wait()
		time.AfterFunc(2*time.Second, w.pub.Unblock)
		must(t, w.stop())
		w.atRest(10)
	})
	t.Run("gives back what a claim under way brings", func(t *testing.T) {
		for _, key := range []string{"", "k"} {
			synctest.Test(t, func(t *testing.T) {
				table, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
				w := join(t, table, pub, core.Config{Relay: relay.Config{DisableJanitor: true}})
				for range 10 {
					w.publish(core.Event{Type: "a", Key: key})
				}
				slow := newOutbox(t, core.Config{Repository: &slowAnswers{Repository: table}, Publisher: pub})
				pub.Block()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- slow.Run(ctx) }()
				time.Sleep(slowAnswer / 2) // the rows are claimed, and the relay does not know it
				cancel()
				since := time.Now()
				pub.Unblock()
				if err := <-ended; err != nil || time.Since(since) > time.Second {
					t.Errorf("%v after %s", err, time.Since(since))
				}
				for _, r := range table.Rows() {
					if !r.LeaseUntil.IsZero() || r.Attempts != 0 {
						t.Fatalf("row was not given back: %+v", r)
					}
				}
			})
		}
	})
	bubble(t, "gives back the rest", func(t *testing.T) {
		w := newWorld(t, core.Config{Relay: relay.Config{Workers: 1, ShutdownTimeout: time.Second}})
		w.pub.Block()
		w.run()
		for i := range 10 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 2)})
		}
		must(t, w.stop())
		for _, r := range w.repo.Rows() {
			if !r.LeaseUntil.IsZero() || r.Attempts != 0 || r.Status != outboxtest.StatusNew {
				t.Fatalf("row was not given back: %+v", r)
			}
		}
		w.pub.Unblock()
		must(t, w.ob.Drain(t.Context()))
		w.atRest(10)
		inOrder(t, w.pub.Accepted())
	})
	bubble(t, "gives back at once what waits behind a slow event", func(t *testing.T) {
		slow := core.PublisherFunc(func(ctx context.Context, _ core.Delivery) error {
			select {
			case <-time.After(3 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		w := newWorld(t, core.Config{Publisher: slow}).run()
		for range 50 {
			w.publish(core.Event{Type: "a", Key: "k"})
		}
		time.Sleep(time.Second)
		start := time.Now()
		must(t, w.stop())
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Run returned after %s, want what the one publish takes", d)
		}
		if got := w.statuses(); got[outboxtest.StatusDone] != 1 || got[outboxtest.StatusNew] != 49 {
			t.Errorf("rows by status: %v", got)
		}
		for _, r := range w.repo.Rows() {
			if !r.LeaseUntil.IsZero() {
				t.Fatalf("row was not given back: %+v", r)
			}
		}
	})
	t.Run("takes no longer than ShutdownTimeout", func(t *testing.T) {
		for _, timeout := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, core.Config{Relay: relay.Config{ShutdownTimeout: timeout}})
				w.pub.Block()
				w.run()
				for i := range 100 {
					w.publish(core.Event{Type: "a", Key: fmt.Sprint(i)})
				}
				w.faulty.Hook(func(ctx context.Context, m outboxtest.Method) error { // the database hangs
					if m == outboxtest.MethodMarkDone || m == outboxtest.MethodMarkFailed ||
						m == outboxtest.MethodRelease || m == outboxtest.MethodRenew {
						<-ctx.Done()
						return ctx.Err()
					}
					return nil
				})
				time.Sleep(time.Second)
				start := time.Now()
				must(t, w.stop())
				most := timeout
				if most == 0 {
					most = 20 * time.Second
				}
				if d := time.Since(start); d > most+100*time.Millisecond {
					t.Errorf("Run returned after %s, want %s", d, most)
				}
			})
		}
	})
	bubble(t, "publisher that does not listen", func(t *testing.T) {
		hung := make(chan struct{})
		w := newWorld(t, core.Config{
			Relay: relay.Config{ShutdownTimeout: time.Second},
			Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
				<-hung
				return nil
			}),
		}).run()
		w.publish(core.Event{Type: "a"})
		wantErr(t, w.stop(), core.ErrShutdownTimeout, "Run")
		close(hung)
	})
}

func TestRunAndDrainErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		silent := newOutbox(t, core.Config{Repository: repo})
		wantErr(t, silent.Run(t.Context()), core.ErrNoPublisher, "Run without publisher")
		wantErr(t, silent.Drain(t.Context()), core.ErrNoPublisher, "Drain without publisher")
		w := newWorld(t, core.Config{}).run()
		wantErr(t, w.ob.Run(t.Context()), core.ErrRunning, "second Run")
		w.pub.Outage("a", nil)
		w.publish(core.Event{Type: "a"})
		wantErr(t, w.ob.Drain(t.Context()), core.ErrStopped, "Drain during an outage")
	})
}

// Drain returns as soon as nothing is due: it does not wait for the repeated looks at a key that
// has no further events.
func TestDrainOfKeyedEventTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.publish(core.Event{Type: "a", Key: "1"}, core.Event{Type: "a", Key: "2"})
		start := time.Now()
		must(t, w.ob.Drain(t.Context()))
		w.atRest(2)
		if took := time.Since(start); took > 20*time.Millisecond {
			t.Errorf("Drain took %s", took)
		}
	})
}

func TestDrain(t *testing.T) {
	for _, running := range []bool{false, true} {
		bubble(t, fmt.Sprintf("running=%t", running), func(t *testing.T) {
			w := newWorld(
				t,
				core.Config{
					Relay: relay.Config{KeyRun: 3, ColdEvents: 20, ClaimBatch: 10, MarkBatch: 7, MaxUnmarked: 9},
				},
			)
			producer := join(t, w.repo, w.pub, core.Config{})
			for i := range 500 { // inserted by a process without a relay
				producer.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 7)}, core.Event{Type: "b"})
			}
			if running {
				w.run()
			}
			must(t, w.ob.Drain(t.Context()))
			w.atRest(1000)
			equal(t, len(w.pub.Accepted()), 1000, "copies of 1000 events")
			inOrder(t, w.pub.Accepted())
			if running {
				w.stop()
			}
		})
	}
}

const slowAnswer = 200 * time.Millisecond

// slowAnswers answers claims after they are committed, and not at all if the caller does not wait.
type slowAnswers struct{ *outboxtest.Repository }

func (s *slowAnswers) answer(ctx context.Context, rows []core.Claimed, err error) ([]core.Claimed, error) {
	select {
	case <-time.After(slowAnswer):
		return rows, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slowAnswers) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	rows, err := s.Repository.ClaimUnordered(ctx, req)
	return s.answer(ctx, rows, err)
}

func (s *slowAnswers) ClaimHeads(ctx context.Context, req core.ClaimRequest, after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	rows, next, err := s.Repository.ClaimHeads(ctx, req, after)
	rows, err = s.answer(ctx, rows, err)
	return rows, next, err
}

// A pool that the program has closed stays closed. Run says so once, and ends at once.
func TestPoolClosedBeforeRun(t *testing.T) {
	closed := errors.New("sql: database is closed")
	for name, methods := range map[string][]outboxtest.Method{
		"at rest": {
			outboxtest.MethodNextDue, outboxtest.MethodClaimUnordered, outboxtest.MethodClaimHeads,
		},
		"marks are due":    {outboxtest.MethodMarkDone},
		"at its beginning": {outboxtest.MethodClaimUnordered, outboxtest.MethodClaimHeads, outboxtest.MethodMarkDone},
	} {
		bubble(t, name, func(t *testing.T) {
			var logged bytes.Buffer
			w := newWorld(t, core.Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
			fail := func() {
				for _, m := range methods {
					w.faulty.Fail(outboxtest.Fault{Method: m, Err: closed, Times: -1})
				}
			}
			ended := make(chan error, 1)
			if name == "at its beginning" {
				fail()
			}
			go func() { ended <- w.ob.Run(t.Context()) }()
			synctest.Wait()
			fail()
			since := time.Now()
			w.publish(core.Event{Type: "a"})
			wantErr(t, <-ended, core.ErrPoolClosed, "Run")
			if waited := time.Since(since); waited > 10*time.Second {
				t.Errorf("Run ended after %s", waited)
			}
			if n := strings.Count(logged.String(), "level="); n != 1 {
				t.Errorf("%d lines were logged:\n%s", n, logged.String())
			}
		})
	}
}
