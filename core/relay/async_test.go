package relay_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// handed is an event that an asynchronous publisher has.
type handed struct {
	core.Delivery
	ctx  context.Context
	done func(receipt string, err error)
}

// asyncPublisher keeps what it gets until the test answers it.
type asyncPublisher struct {
	take func(h handed) // nil: keep it

	mu   sync.Mutex
	held []handed
	most int
	all  []core.Delivery
}

func (p *asyncPublisher) Publish(context.Context, core.Delivery) error {
	panic("the relay has to use PublishAsync")
}

func (p *asyncPublisher) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	h := handed{d, ctx, done}
	p.mu.Lock()
	p.all = append(p.all, d)
	p.mu.Unlock()
	if p.take != nil {
		p.take(h)
		return
	}
	p.keep(h)
}

func (p *asyncPublisher) keep(h handed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, h)
	p.most = max(p.most, len(p.held))
}

// release returns the events that the publisher has, and forgets them.
func (p *asyncPublisher) release() []handed {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held
	p.held = nil
	return held
}

// acceptAll accepts everything until nothing more comes, the last event first.
func (p *asyncPublisher) acceptAll() (n int) {
	for held := p.release(); len(held) > 0; held = p.release() {
		n += len(held)
		for _, h := range slices.Backward(held) {
			h.done("", nil)
		}
		time.Sleep(time.Second) // marks are written
	}
	return n
}

// Two workers hand over as many events as InFlight allows. The answers come in another order.
func TestAsyncPublisherHasManyEventsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &asyncPublisher{}
		w := newWorld(t, core.Config{Publisher: p, Relay: relay.Config{Workers: 2, InFlight: 50, ColdEvents: 100}})
		for range 300 { // before Run: the poller claims them
			w.publish(core.Event{Type: "a"})
		}
		w.run()
		for i := range 300 {
			w.publish(core.Event{Type: "a", Key: fmt.Sprint(i % 100)})
		}
		equal(t, p.acceptAll(), 600, "events of 600 were published")
		equal(t, p.most, 50, "events were under way at once")
		w.atRest(600)
		inOrder(t, p.all)
	})
}

// InFlightBytes may be exceeded by one event.
func TestAsyncPublisherIsBoundedByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &asyncPublisher{}
		w := newWorld(t, core.Config{Publisher: p, Relay: relay.Config{InFlightBytes: 10_000}}).run()
		for range 20 {
			w.publish(core.Event{Type: "a", Payload: make([]byte, 4000)})
		}
		if n := p.acceptAll(); n != 20 || p.most != 3 {
			t.Errorf("%d events of 20 were published, %d at once, want 3", n, p.most)
		}
		w.atRest(20)
	})
}

// The next event of a key waits for the answer, also when that is a refusal.
func TestAsyncPublisherHasOneEventOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, refused := map[string]bool{}, map[string]bool{}
		var accepted []core.Delivery
		p := &asyncPublisher{}
		p.take = func(h handed) {
			mu.Lock()
			defer mu.Unlock()
			if busy[h.Key] {
				t.Errorf("two events of key %s are under way", h.Key)
			}
			busy[h.Key] = true
			go func() {
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				busy[h.Key] = false
				if h.Key == "k" && !refused[h.ID] {
					refused[h.ID] = true
					go h.done("", errors.New("not now"))
					return
				}
				accepted = append(accepted, h.Delivery)
				go h.done("", nil)
			}()
		}
		w := newWorld(t, core.Config{Publisher: p}).run()
		for range 5 {
			w.publish(core.Event{Type: "a", Key: "k"}, core.Event{Type: "a", Key: "other"})
		}
		time.Sleep(5 * time.Minute)
		w.atRest(10)
		inOrder(t, accepted)
		if len(accepted) != 10 || len(refused) != 5 {
			t.Errorf("%d accepted, %d refused", len(accepted), len(refused))
		}
	})
}

// The first answer counts, whatever comes later and from whichever goroutine. A success after an error
// is another matter, see TestLateAnswer.
func TestAsyncPublisherAnswersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := make(chan core.PublishInfo, 10)
		p := &asyncPublisher{}
		p.take = func(h handed) {
			if h.Type == "refused at once" {
				h.done("", core.Permanent(errors.New("never")))
				h.done("there", errors.New("another refusal"))
				return
			}
			p.keep(h)
		}
		w := newWorld(t, core.Config{
			Publisher: p,
			Observer:  &core.Observer{Published: func(i core.PublishInfo) { results <- i }},
		}).run()
		w.publish(core.Event{Type: "accepted"}, core.Event{Type: "refused"}, core.Event{Type: "refused at once"})
		for _, h := range p.release() {
			first, second := error(nil), core.Permanent(errors.New("never"))
			if h.Type == "refused" {
				first, second = second, errors.New("another refusal")
			}
			h.done("here", first)
			h.done("there", second)
			go h.done("elsewhere", second)
		}
		time.Sleep(time.Minute)
		for _, row := range w.repo.Rows() {
			switch {
			case row.Event.Type == "accepted" && (row.Status != outboxtest.StatusDone || row.Receipt != "here"):
				t.Errorf("the accepted event is %s with receipt %q", row.Status, row.Receipt)
			case row.Event.Type != "accepted" && row.Status != outboxtest.StatusDead:
				t.Errorf("the event that is %s is %s", row.Event.Type, row.Status)
			}
		}
		noError(t, w.stop())
		equal(t, len(results), 3, "the observer was told of publishes")
	})
}

// A publisher that panics or ends its goroutine has refused the event, unless it had answered.
func TestAsyncPublisherPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &asyncPublisher{}
		p.take = func(h handed) {
			if strings.HasPrefix(h.Type, "answered") {
				h.done("", nil)
			}
			switch {
			case strings.HasSuffix(h.Type, "panics"):
				panic("no")
			case strings.HasSuffix(h.Type, "exits"):
				runtime.Goexit()
			}
			h.done("", nil)
		}
		w := newWorld(
			t,
			core.Config{Publisher: p, Relay: relay.Config{Workers: 2, Retry: relay.RetryPolicy{MaxAttempts: 2}}},
		).run()
		for range 3 {
			w.publish(core.Event{Type: "answered, then panics"}, core.Event{Type: "answered, then exits"})
			w.publish(core.Event{Type: "panics", Topic: "t"}, core.Event{Type: "exits", Topic: "t"})
		}
		for range 30 { // the destination accepts others
			w.publish(core.Event{Type: "fine", Topic: "t"})
			time.Sleep(10 * time.Second)
		}
		if got := w.statuses(); got[outboxtest.StatusDead] != 6 || got[outboxtest.StatusDone] != 36 {
			t.Errorf("rows by status: %v", got)
		}
		dead, err := w.ob.ListDead(t.Context(), core.DeadQuery{})
		must(t, err)
		for _, d := range dead {
			if want := map[string]string{"panics": "panic", "exits": "goexit"}[d.Event.Type]; d.ErrorCode != want {
				t.Errorf("%s: code %q", d.Event.Type, d.ErrorCode)
			}
		}
	})
}

// A publish without an answer is given up and replaced by another one. A destination with many of
// them gets no more. A late acceptance marks the event.
func TestAsyncPublisherDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf, fine := &asyncPublisher{}, &asyncPublisher{take: func(h handed) { h.done("", nil) }}
		router := core.NewRouter()
		router.Handle("deaf", deaf)
		router.HandleOther(fine)
		told := 0
		w := newWorld(t, core.Config{
			Publisher: router,
			Relay:     relay.Config{Workers: 2, InFlight: 16, Breaker: relay.BreakerPolicy{Failures: 1000}},
			Observer:  &core.Observer{Stuck: func(_ string, total int) { told = total }},
		}).run()
		for i := range 40 {
			w.publish(core.Event{Type: "deaf", Key: fmt.Sprint(i)})
		}
		time.Sleep(15 * time.Second)
		for range 100 {
			w.publish(core.Event{Type: "fine"})
		}
		time.Sleep(10 * time.Minute)
		held := deaf.release()
		if len(held) != 16 || told != 16 {
			t.Errorf("a destination that never answers got %d events, want InFlight, and told of %d", len(held), told)
		}
		if got := w.statuses(); got[outboxtest.StatusDone] != 100 {
			t.Errorf("rows by status: %v, want the 100 of the other destination done", got)
		}
		deaf.mu.Lock()
		deaf.take = func(h handed) { h.done("", nil) }
		deaf.mu.Unlock()
		for _, h := range held {
			if h.ctx.Err() == nil {
				t.Error("a context has not ended")
			}
			h.done("", nil)
		}
		time.Sleep(time.Minute)
		w.atRest(140)
		equal(t, told, 0, "told of stuck publishes after they were answered")
	})
}

// The publisher never answers. When every place is taken, the process reports that every publish is
// stuck, and leaves the events to other processes.
func TestAsyncPublisherNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &asyncPublisher{}
		w := newWorld(t, core.Config{Publisher: p, Relay: relay.Config{Workers: 2, InFlight: 8}}).run()
		for i := range 40 {
			w.publish(core.Event{Type: fmt.Sprint("topic", i%10)})
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		equal(t, len(p.all), 16, "events were handed over (twice the 8 places)")
		if err := w.ob.Live(); err == nil {
			t.Error("Live does not say that every publish is stuck")
		}
		other := join(t, w.repo, w.pub, core.Config{}).run()
		time.Sleep(2 * time.Minute)
		w.atRest(40)
		noError(t, other.stop())
		wantErr(t, w.stop(), core.ErrShutdownTimeout, "Run returned")
		for _, h := range p.release() {
			h.done("", nil) // after the end of the relay: nothing happens
		}
	})
}

// A call that does not return keeps its worker. The relay replaces the worker, as it does with
// other publishers.
func TestAsyncPublisherDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &asyncPublisher{}
		p.take = func(h handed) {
			if h.Topic == "blocks" {
				<-release
			}
			h.done("", nil)
		}
		w := newWorld(t, core.Config{Publisher: p, Relay: relay.Config{Workers: 2}}).run()
		w.publish(core.Event{Type: "blocks"}, core.Event{Type: "blocks"})
		time.Sleep(15 * time.Second)
		for range 100 {
			w.publish(core.Event{Type: "fine"})
		}
		time.Sleep(time.Second)
		if got := w.statuses(); got[outboxtest.StatusDone] != 100 {
			t.Errorf("rows by status: %v, want the 100 of the other destination done", got)
		}
		close(release)
		time.Sleep(time.Minute)
		w.atRest(102)
	})
}

// At the end, Run waits for answers, then cancels, and gives the unanswered events back.
func TestAsyncPublisherAtShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &asyncPublisher{}
		p.take = func(h handed) {
			go func() {
				select {
				case <-h.ctx.Done():
					h.done("", h.ctx.Err())
				case <-time.After(map[string]time.Duration{"quick": time.Second, "slow": time.Hour}[h.Type]):
					h.done("", nil)
				}
			}()
		}
		w := newWorld(t, core.Config{
			Publisher: p, Relay: relay.Config{
				PublishTimeout: 30 * time.Second, HotLease: time.Minute,
				ClaimLease: time.Minute, ShutdownTimeout: 10 * time.Second,
			},
		}).run()
		w.publish(core.Event{Type: "quick"}, core.Event{Type: "slow", Key: "k"}, core.Event{Type: "slow", Key: "k"})
		noError(t, w.stop())
		now := time.Now()
		for _, row := range w.repo.Rows() {
			if done := row.Status == outboxtest.StatusDone; done != (row.Event.Type == "quick") {
				t.Errorf("%s is %s", row.Event.Type, row.Status)
			} else if !done && (row.LeaseUntil.After(now) || row.Attempts != 0) {
				t.Errorf("%s is leased until %s after %d attempts", row.Event.Type, row.LeaseUntil, row.Attempts)
			}
		}
	})
}

// The limits of a destination hold for events that are handed over.
func TestAsyncPublisherKeepsRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, repo := &asyncPublisher{}, &pausing{Repository: outboxtest.NewRepository()}
		ob, _ := runOutbox(t, core.Config{Repository: repo, Publisher: p})
		setRate(t, ob, "orders", 0, 3)
		time.Sleep(15 * time.Second)
		repo.publish(t, ob, slices.Repeat([]core.Event{{Type: "e", Topic: "orders"}}, 30)...)
		if n := p.acceptAll(); n != 30 || p.most != 3 {
			t.Errorf("%d events of 30 were published, %d at once, want 3", n, p.most)
		}
	})
}

// Every topic of the relay has a limit, and the poller holds as many rows as it may. It waits for
// room instead of asking again and again.
func TestPollerWaitsForRoomOfLimitedTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, repo := &asyncPublisher{}, &pausing{Repository: outboxtest.NewRepository()}
		router := core.NewRouter()
		router.Handle("orders", p)
		ob, _ := runOutbox(
			t,
			core.Config{Repository: repo, Publisher: router, Relay: relay.Config{ColdEvents: 4, HotEvents: 1}},
		)
		setRate(t, ob, "orders", 1000, 0)
		time.Sleep(15 * time.Second)
		repo.publish(t, ob, slices.Repeat([]core.Event{{Type: "e", Topic: "orders"}}, 20)...)
		for n := 0; n < 20; { // one by one: the room stays full
			held := p.release()
			n += len(held)
			for _, h := range held {
				before := relay.Rounds(ob)
				time.Sleep(time.Second)
				if rounds := relay.Rounds(ob) - before; rounds > 10 {
					t.Fatalf("%d rounds in a second without room", rounds)
				}
				h.done("", nil)
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// Tracer.Send begins before the event is handed over, and ends with its answer.
func TestAsyncPublisherIsTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got traces
		p := &asyncPublisher{}
		w := newWorld(t, core.Config{Publisher: p, Tracer: got.tracer(nil)}).run()
		w.publish(core.Event{Type: "a", Topic: "x"})
		h := p.release()[0]
		got.want(t, "create a x <nil>", "created x true", "send x  hot 1")
		if h.ctx.Value(traceKey{}) != "sending" || h.Headers["hop"] != "1" {
			t.Errorf("the publisher has another context or other headers: %v", h.Headers)
		}
		h.done("x/1@2", nil)
		got.want(t, `sent "x/1@2" <nil>`)
	})
}

// Replayed events get at most half of the places.
func TestAsyncPublisherKeepsPlacesFromReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &asyncPublisher{}
		w := join(
			t,
			replayOrders(t, 40),
			nil,
			core.Config{Publisher: p, Relay: relay.Config{Workers: 2, InFlight: 8}},
		).run()
		time.Sleep(time.Minute)
		held := p.release()
		equal(t, len(held), 4, "replayed events are under way (half of 8)")
		for _, h := range held {
			h.done("", nil)
		}
		for range 20 {
			time.Sleep(time.Minute)
			p.acceptAll()
		}
		w.atRest(80)
	})
}
