package core_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
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
	noError(t, <-done)
}

// The stopped destinations of a relay can be asked for while it runs: which, since when, and why.
func TestStoppedDestinations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pub, down := &outboxtest.Publisher{}, errors.New("down")
		pub.Outage("b", core.Unavailable(down))
		pub.Outage("a", core.Unavailable(down))
		w := newWorld(t, core.Config{Publisher: pub})
		if all := w.ob.Stopped(); len(all) != 0 {
			t.Errorf("before Run: %v", all)
		}
		w.run()
		start := time.Now()
		w.publish(core.Event{Type: "b"}, core.Event{Type: "a"}, core.Event{Type: "c"})
		time.Sleep(time.Minute)
		all := w.ob.Stopped()
		if len(all) != 2 || all[0].Topic != "a" || all[1].Topic != "b" {
			t.Fatalf("%v", all)
		}
		for _, d := range all {
			if d.Since.Sub(start) > 10*time.Second || !errors.Is(d.Err, down) || d.Failures < 10 {
				t.Errorf("%+v", d)
			}
		}
		pub.Restore("a")
		time.Sleep(time.Minute)
		if all := w.ob.Stopped(); len(all) != 1 || all[0].Topic != "b" {
			t.Errorf("after one goes on: %v", all)
		}
		noError(t, w.stop())
		if all := w.ob.Stopped(); len(all) != 0 {
			t.Errorf("after Run: %v", all)
		}
	})
}

// A key whose next look is due later does not prevent Drain from reporting that its destination is
// stopped.
func TestDrainEndsWhenEveryDestinationIsStopped(t *testing.T) {
	acked := make(chan struct{}) // an acknowledgement after the refusal would let the destination go on
	router := core.NewRouter()
	router.Handle("a", core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
		if d.Key == "bad" {
			<-acked
			return core.Unavailable(errors.New("down"))
		}
		return nil
	}))
	w := newWorld(t, core.Config{Publisher: router, Observer: &core.Observer{Published: func(info core.PublishInfo) {
		if info.Result == core.PublishDone {
			close(acked)
		}
	}}})
	w.publish(core.Event{Type: "a", Key: "good"}, core.Event{Type: "a", Key: "bad"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wantErr(t, w.ob.Drain(ctx), core.ErrStopped, "Drain")
}
