package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// If all destinations of a relay are stopped, the relay has no reason to claim. Events that commit
// meanwhile must not make it claim.
func TestNothingSpinsWhileEveryDestinationIsStopped(t *testing.T) {
	pub := &outboxtest.Publisher{}
	pub.Outage("a", nil)
	router := core.NewRouter() // the router lists its topics
	router.Handle("a", pub)
	var failed atomic.Int64
	stopped, enough := make(chan struct{}), make(chan struct{})
	w := join(t, outboxtest.NewRepository(), pub, core.Config{
		Publisher: router, Breaker: core.BreakerPolicy{
			ProbeInterval:    10 * time.Millisecond,
			MaxProbeInterval: 10 * time.Millisecond,
		},
		Observer: &core.Observer{ProbeFailed: func(core.ProbeInfo) {
			switch failed.Add(1) {
			case 1:
				close(stopped)
			case 20:
				close(enough)
			}
		}},
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- w.ob.Run(ctx) }()
	w.publish(core.Event{Type: "a", Key: "k"})
	<-stopped
	w.publish(core.Event{Type: "a", Key: "k"}) // these events wait for the first event of their key
	before, probes := core.Rounds(w.ob), failed.Load()
	<-enough
	rounds, probes := core.Rounds(w.ob)-before, failed.Load()-probes
	if rounds > 50*uint(probes+1) { // one round for each probe, and some rounds between them
		t.Errorf("%d rounds of the poller for %d probes", rounds, probes)
	}
	pub.Restore("a")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A key whose next look is due later does not prevent Drain from reporting that its destination is
// stopped.
func TestDrainEndsWhenEveryDestinationIsStopped(t *testing.T) {
	good := make(chan struct{})
	router := core.NewRouter()
	router.Handle("a", core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		if d.Key == "bad" {
			<-good
			return core.Unavailable(errors.New("down"))
		}
		close(good)
		return nil
	}))
	w := newWorld(t, core.Config{Publisher: router})
	w.publish(core.Event{Type: "a", Key: "good"}, core.Event{Type: "a", Key: "bad"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := w.ob.Drain(ctx); !errors.Is(err, core.ErrStopped) {
		t.Errorf("Drain: %v, want ErrStopped", err)
	}
}
