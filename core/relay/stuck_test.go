package relay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// deaf is a publisher that ignores the end of its context for certain events, until the test tells
// it to return.
type deaf struct {
	next  *outboxtest.Publisher
	hears func(d core.Delivery) bool
	wake  chan struct{}
	hung  atomic.Int64 // calls that hang now
	most  atomic.Int64
}

func newDeaf(pub *outboxtest.Publisher, hears func(core.Delivery) bool) *deaf {
	return &deaf{next: pub, hears: hears, wake: make(chan struct{})}
}

func (d *deaf) Publish(ctx context.Context, e core.Delivery) error {
	if d.hears(e) {
		return d.next.Publish(ctx, e)
	}
	if n := d.hung.Add(1); n > d.most.Load() {
		d.most.Store(n)
	}
	<-d.wake
	d.hung.Add(-1)
	return d.next.Publish(context.WithoutCancel(ctx), e)
}

// The relay gives up an event whose publisher never returns, and releases it with the events that
// wait behind it. Another relay publishes them in their order. The other events of the process go
// on.
func TestStuckPublishIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		stuck := map[string]int{}
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		p := newDeaf(pub, func(d core.Delivery) bool { return d.Topic != "deaf" })
		w := join(t, repo, pub, core.Config{
			Publisher: p, Relay: relay.Config{Workers: 4},
			Observer: &core.Observer{Stuck: func(topic string, total int) {
				mu.Lock()
				defer mu.Unlock()
				stuck[topic] = total
			}},
		}).run()
		for range 20 {
			w.publish(core.Event{Type: "deaf", Key: "k"})
		}
		time.Sleep(15 * time.Second)
		mu.Lock()
		equal(t, stuck["deaf"], 1, "told of %v stuck publishes", stuck)
		mu.Unlock()

		join(t, repo, pub, core.Config{}).run()
		for i := range 200 {
			w.publish(core.Event{Type: "fine", Key: fmt.Sprint(i % 10)})
		}
		time.Sleep(time.Minute)
		w.atRest(220)
		equal(t, len(pub.Accepted()), 220, "copies of 220 events")
		equal(t, p.most.Load(), 1, "publishes of a destination that never answers were begun")
		close(p.wake) // a late acknowledgement means a second copy and nothing else
		time.Sleep(time.Minute)
		w.atRest(220)
		inOrder(t, pub.Accepted())
		mu.Lock()
		equal(t, stuck["deaf"], 0, "told of %v stuck publishes after they returned", stuck)
		mu.Unlock()
	})
}

// If no other process has published the event, a late acknowledgement marks it.
func TestStuckPublishSucceedsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		p := newDeaf(pub, func(core.Delivery) bool { return false })
		w := join(t, repo, pub, core.Config{Publisher: p, Relay: relay.Config{Workers: 4}}).run()
		w.publish(core.Event{Type: "a"})
		time.Sleep(20 * time.Second)
		close(p.wake)
		time.Sleep(100 * time.Millisecond)
		w.atRest(1)
		time.Sleep(2 * time.Minute)
		if n := len(pub.Accepted()); n > 2 {
			t.Errorf("%d copies", n)
		}
	})
}

// tardy is a publisher whose destination takes 7 s to accept an event. It leaves the call behind when
// its context ends.
type tardy struct{ next *outboxtest.Publisher }

func (s tardy) Publish(ctx context.Context, d core.Delivery) error {
	_, err := s.PublishLate(ctx, d, nil)
	return err
}

func (s tardy) PublishLate(ctx context.Context, d core.Delivery, late func(string, error)) (string, error) {
	time.AfterFunc(7*time.Second, func() {
		err := s.next.Publish(context.WithoutCancel(ctx), d)
		if late != nil {
			late("", err)
			late("", errors.New("a second answer"))
		}
	})
	<-ctx.Done()
	return "", fmt.Errorf("no answer: %w", ctx.Err())
}

// tardyAsync is an AsyncPublisher with the same destination. It answers when its context ends, and
// again when it knows better.
type tardyAsync struct{ tardy }

func (s tardyAsync) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	go func() {
		_, err := s.PublishLate(ctx, d, done)
		done("", err)
	}()
}

// A slow destination accepts each event after its publish was given up. The events are DONE when
// the publisher tells so, and the destination goes on getting events.
func TestLateAnswer(t *testing.T) {
	for name, publisher := range map[string]func(tardy) core.Publisher{
		"late":  func(s tardy) core.Publisher { return s },
		"async": func(s tardy) core.Publisher { return tardyAsync{s} },
		"routed": func(s tardy) core.Publisher {
			r := core.NewRouter()
			r.Handle("a", s)
			return r
		},
	} {
		bubble(t, name, func(t *testing.T) {
			repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
			w := join(t, repo, pub, core.Config{Publisher: publisher(tardy{pub})}).run()
			for i := range 30 {
				w.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 10)})
			}
			time.Sleep(2 * time.Minute)
			w.atRest(30)
			inOrder(t, pub.Accepted())
			if n := len(pub.Accepted()); n > 2*30 {
				t.Errorf("%d copies of 30 events", n)
			}
			if stopped := w.ob.Stopped(); len(stopped) > 0 {
				t.Errorf("stopped: %+v", stopped)
			}
			accepted := len(pub.Accepted())
			time.Sleep(10 * time.Minute)
			equal(t, len(pub.Accepted()), accepted, "copies after the last event was done")
		})
	}
}

// A publisher that calls a LatePublisher and then another one is not done when the first is.
func TestLateAnswerOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, first, second := outboxtest.NewRepository(), &outboxtest.Publisher{}, &outboxtest.Publisher{}
		tee := core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
			if err := (tardy{first}).Publish(ctx, d); err != nil {
				return err
			}
			return second.Publish(ctx, d)
		})
		w := join(t, repo, first, core.Config{Publisher: tee}).run()
		w.publish(core.Event{Type: "a"})
		time.Sleep(time.Minute)
		if n := w.statuses()[outboxtest.StatusDone]; n > 0 || len(first.Accepted()) == 0 || len(second.Accepted()) > 0 {
			t.Errorf("%d events are done; the first part has accepted %d, the second %d", n, len(first.Accepted()),
				len(second.Accepted()))
		}
	})
}

// Any number of publishes may hang. A process runs at most twice as many as it has workers, and
// leaves the events that it cannot publish to other processes.
func TestStuckPublishesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		p := newDeaf(pub, func(core.Delivery) bool { return false })
		w := join(t, repo, pub, core.Config{Publisher: p, Relay: relay.Config{Workers: 4}}).run()
		for i := range 400 {
			w.publish(core.Event{Type: fmt.Sprint("topic", i%40), Key: fmt.Sprint(i % 7)})
		}
		time.Sleep(10 * time.Minute)
		equal(t, p.most.Load(), 8, "publishes hang (twice the 4 workers)")
		other := join(t, repo, pub, core.Config{}).run()
		time.Sleep(2 * time.Minute)
		w.atRest(400)
		inOrder(t, pub.Accepted())

		close(p.wake)
		time.Sleep(time.Minute)
		p.hears = func(core.Delivery) bool { return true }
		noError(t, other.stop())
		for range 50 {
			w.publish(core.Event{Type: "topic1"})
		}
		time.Sleep(time.Minute)
		w.atRest(450)
	})
}

// A publisher may end its goroutine, as t.FailNow does in a test. This is a failure of one event,
// and the relay keeps its workers.
func TestGoexitInPublisher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, pub := outboxtest.NewRepository(), &outboxtest.Publisher{}
		exits := core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
			if strings.HasPrefix(d.Key, "exit") {
				runtime.Goexit()
			}
			return pub.Publish(ctx, d)
		})
		w := join(t, repo, pub, core.Config{
			Relay: relay.Config{Workers: 2, Retry: relay.RetryPolicy{MaxAttempts: 3}}, Publisher: exits,
		}).run()
		for i := range 10 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint("exit", i)},
				core.Event{Type: "a", Key: fmt.Sprint("good", i)}, core.Event{Type: "a"})
		}
		for range 60 { // the destination goes on acknowledging other events
			w.publish(core.Event{Type: "a"})
			time.Sleep(10 * time.Second)
		}
		if got := w.statuses(); got[outboxtest.StatusDead] != 10 || got[outboxtest.StatusDone] != 80 {
			t.Fatalf("rows by status: %v", got)
		}
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		if err != nil || len(dead) != 10 || dead[0].ErrorCode != "goexit" || dead[0].Attempts != 3 {
			t.Fatalf("ListDead: %+v, %v", dead, err)
		}
	})
}
