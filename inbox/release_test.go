package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// queues is a broker in memory: a message stays in its queue until it is acknowledged.
type queues struct {
	mu      sync.Mutex
	waiting map[string][]*message.Message
	more    chan struct{} // closed with each change
	// publish, if it is set, decides about a message that is published. It may be in the queue in
	// spite of an error.
	publish func(topic string, msg *message.Message) (sent bool, err error)
}

func newQueues() *queues {
	return &queues{waiting: map[string][]*message.Message{}, more: make(chan struct{})}
}

func (q *queues) Publish(topic string, msgs ...*message.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer func() {
		close(q.more)
		q.more = make(chan struct{})
	}()
	for _, msg := range msgs {
		sent, err := true, error(nil)
		if q.publish != nil {
			sent, err = q.publish(topic, msg)
		}
		if sent {
			q.waiting[topic] = append(q.waiting[topic], msg.Copy())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// head returns a copy of the first message of a queue, or a channel that is closed when there may
// be one.
func (q *queues) head(topic string) (*message.Message, chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting[topic]) == 0 {
		return nil, q.more
	}
	return q.waiting[topic][0].Copy(), nil
}

func (q *queues) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for {
			msg, more := q.head(topic)
			if msg == nil {
				select {
				case <-more:
					continue
				case <-ctx.Done():
					return
				}
			}
			msg.SetContext(ctx)
			select {
			case out <- msg:
			case <-ctx.Done():
				return
			}
			select {
			case <-msg.Acked():
				q.mu.Lock()
				q.waiting[topic] = q.waiting[topic][1:]
				q.mu.Unlock()
			case <-msg.Nacked():
				time.Sleep(time.Millisecond) // a broker does not deliver again at once either
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

func (q *queues) Close() error { return nil }

// ids returns the events in a queue.
func (q *queues) ids(topic string) (ids []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, msg := range q.waiting[topic] {
		ids = append(ids, msg.Metadata[core.HeaderEventID])
	}
	return ids
}

// clinic is a consumer with a poison queue. Its handler fails with the events that are ill.
type clinic struct {
	*queues
	*world
	ill     func(id string) bool
	handled []string
}

const illness = "broken bones"

func healthy(string) bool { return false }

func newClinic(t *testing.T) *clinic {
	t.Helper()
	c := &clinic{queues: newQueues(), world: newWorld(t), ill: func(string) bool { return true }}
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Store: c.store, Transactor: c.repo.Transactor(), Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	c.in = &wired{Inbox: in}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(t, err)
	router.AddMiddleware(inbox.Wrap(in, inbox.Poison(c.queues, "poison")))
	router.AddConsumerHandler("invoice", "orders", c.queues, c.handle)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	t.Cleanup(func() {
		stop()
		noError(t, <-ended)
	})
	return c
}

func (c *clinic) handle(msg *message.Message) error {
	id := msg.Metadata[core.HeaderEventID]
	for name := range msg.Metadata {
		if strings.Contains(name, "poisoned") || name == "Nats-Msg-Id" && msg.Metadata["released_by"] != "" {
			c.t.Errorf("%s still has metadata %s", id, name)
		}
	}
	c.locked(func() { c.handled = append(c.handled, id) })
	if c.ill(id) {
		return core.Permanent(errors.New(illness))
	}
	return c.apply(msg.Context(), id)
}

func (c *clinic) locked(fn func()) {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	fn()
}

// park lets the consumer give up events. An id is key:number.
func (c *clinic) park(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		key, _, _ := strings.Cut(id, ":")
		msg := event(c.t.Context(), id, core.HeaderPartitionKey, key, "Nats-Msg-Id", id,
			core.HeaderSource, "orders/0/1")
		must(c.t, c.Publish("orders", msg))
	}
	synctest.Wait()
	c.wantQueue(ids...)
	for _, msg := range c.waiting["poison"] {
		if msg.Metadata["Nats-Msg-Id"] != "" || msg.Metadata["consumer_poisoned"] != "billing" {
			c.t.Errorf("parked with %v", msg.Metadata)
		}
	}
	c.locked(func() { c.handled = nil })
}

// wantQueue compares the poison queue.
func (c *clinic) wantQueue(ids ...string) {
	c.t.Helper()
	if got := c.ids("poison"); !slices.Equal(got, ids) {
		c.t.Errorf("in the poison queue: %v, want %v", got, ids)
	}
}

func (c *clinic) wantHandled(ids ...string) {
	c.t.Helper()
	c.locked(func() {
		if !slices.Equal(c.handled, ids) {
			c.t.Errorf("handled %v, want %v", c.handled, ids)
		}
	})
}

func (c *clinic) request() inbox.ReleaseRequest {
	return inbox.ReleaseRequest{
		From: c.queues, Topic: "poison", To: c.queues, Actor: "ada", Reason: "the bones are set",
	}
}

func (c *clinic) wantReleased(req inbox.ReleaseRequest, want coreinbox.Released, wantErr error) {
	c.t.Helper()
	got, err := inbox.Release(c.t.Context(), c.in.Inbox, req)
	if !reflect.DeepEqual(got, want) || !errors.Is(err, wantErr) {
		c.t.Errorf("%+v, %v; want %+v, %v", got, err, want, wantErr)
	}
}

func TestReleaseHasParkedMessagesProcessedInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		ids := []string{"a:1", "b:1", "a:2", "c:1", "a:3", "b:2", "d:1", "a:4"}
		c.park(ids...)
		c.ill = healthy
		c.wantReleased(c.request(), coreinbox.Released{Sent: 8, Processed: 8}, nil)
		c.wantHandled(ids...)
		c.wantQueue()
		c.wantReleased(c.request(), coreinbox.Released{}, nil)
		for _, id := range ids {
			c.effect(id, 1)
		}
	})
}

// A consumer that is still broken gets few messages, and the others stay where they are.
func TestReleaseStopsWhenAMessageIsParkedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		c.park("a:1", "a:2", "b:1", "b:2", "c:1", "c:2", "d:1", "d:2")
		c.wantReleased(c.request(), coreinbox.Released{Sent: 1}, coreinbox.ErrParkedAgain)
		c.wantHandled("a:1")
		_, err := inbox.Release(t.Context(), c.in.Inbox, c.request())
		if !errors.Is(err, coreinbox.ErrParkedAgain) || !strings.Contains(err.Error(), illness) {
			t.Errorf("%v", err)
		}
		synctest.Wait()
		c.wantQueue("b:1", "b:2", "c:1", "c:2", "d:1", "d:2", "a:1", "a:2")

		// The third of the rest is bad. It is in the second wave, which is sent as a whole.
		c.ill = func(id string) bool { return id == "c:1" }
		got, err := inbox.Release(t.Context(), c.in.Inbox, c.request())
		if !errors.Is(err, coreinbox.ErrParkedAgain) || got.Sent != 5 {
			t.Errorf("%+v, %v", got, err)
		}
		synctest.Wait()
		c.wantQueue("d:2", "a:1", "a:2", "c:1")
		c.ill = healthy
		c.wantReleased(c.request(), coreinbox.Released{Sent: 4, Processed: 4}, nil)
		for _, id := range []string{"a:1", "a:2", "b:1", "b:2", "c:1", "c:2", "d:1", "d:2"} {
			c.effect(id, 1)
		}
	})
}

func TestReleaseSelects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		c.park("a:1", "b:1", "a:2", "b:2", "c:1")
		c.ill = healthy
		req := c.request()
		req.Select = func(p coreinbox.Parked) bool {
			if p.Topic != "orders" || p.Key.Handler != "invoice" || p.At.IsZero() ||
				!strings.Contains(p.Reason, illness) {
				t.Errorf("%+v", p)
			}
			return p.Key.EventID != "a:1"
		}
		// a:2 stays behind a:1, although it is selected.
		c.wantReleased(req, coreinbox.Released{Sent: 3, Processed: 3, Kept: 2, Behind: 1}, nil)
		c.wantHandled("b:1", "b:2", "c:1")
		c.wantQueue("a:1", "a:2")

		req = c.request()
		req.Limit = 1
		c.wantReleased(req, coreinbox.Released{Sent: 1, Processed: 1}, nil)
		c.wantQueue("a:2")
	})
}

// If Release is killed before or after it has sent a message, each event is processed once.
func TestReleaseIsKilledBetweenItsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		c.park("a:1", "a:2", "a:3")
		c.ill = healthy
		killed := errors.New("killed")
		kill := func(id string, sent bool) {
			c.publish = func(_ string, msg *message.Message) (bool, error) {
				if msg.Metadata[core.HeaderEventID] == id {
					return sent, killed
				}
				return true, nil
			}
		}
		kill("a:1", false)
		c.wantReleased(c.request(), coreinbox.Released{}, killed)
		c.wantQueue("a:1", "a:2", "a:3")
		kill("a:2", true)
		c.wantReleased(c.request(), coreinbox.Released{Sent: 1, Processed: 1}, killed)
		synctest.Wait()
		c.wantQueue("a:2", "a:3")
		c.publish = nil
		c.wantReleased(c.request(), coreinbox.Released{Sent: 1, Processed: 1, Done: 1}, nil)
		c.wantQueue()
		c.wantHandled("a:1", "a:2", "a:3")
	})
}

func TestReleaseNeedsAConsumer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		c.park("a:1", "a:2")
		c.publish = func(topic string, _ *message.Message) (bool, error) {
			return topic != "orders", nil // nobody gets it
		}
		began := time.Now()
		c.wantReleased(c.request(), coreinbox.Released{Sent: 1}, coreinbox.ErrNotHandled)
		if took := time.Since(began); took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A message that cannot be released stays. One whose event has ended is taken out.
func TestReleaseKeepsAndDropsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		c.park("a:1", "b:1")
		c.ill = healthy
		key := coreinbox.Key{Consumer: "billing", Handler: "invoice", EventID: "b:1"}
		if n, err := c.in.Discard(t.Context(), []coreinbox.Key{key}, "ada", "hopeless"); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		parked := func(id string, metadata ...string) *message.Message {
			return event(t.Context(), id, append([]string{"handler_poisoned", "invoice"}, metadata...)...)
		}
		nameless := message.NewMessage("", nil)
		nameless.Metadata = message.Metadata{"topic_poisoned": "orders", "handler_poisoned": "invoice"}
		if err := c.Publish("poison", parked("no topic"), nameless,
			parked("another consumer", "topic_poisoned", "orders", "consumer_poisoned", "shipping"),
			// Watermill's own middleware has put it there, and the table does not know its event.
			parked("unknown", "topic_poisoned", "orders", "Nats-Msg-Id", "n")); err != nil {
			t.Fatal(err)
		}
		c.wantReleased(c.request(), coreinbox.Released{Sent: 2, Processed: 2, Done: 1, Kept: 3}, nil)
		c.wantHandled("a:1", "unknown")
		c.wantQueue("no topic", "", "another consumer")
	})
}

// A stop leaves everything where it is.
func TestReleaseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClinic(t)
		c.park("a:1")
		req := c.request()
		ctx, stop := context.WithCancel(t.Context())
		req.Select = func(coreinbox.Parked) bool { stop(); return true }
		if got, err := inbox.Release(ctx, c.in.Inbox, req); got.Sent != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, %v", got, err)
		}
		c.wantQueue("a:1")
	})
}

func TestReleaseRefusesIncompleteRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := inbox.Release(t.Context(), w.in.Inbox, inbox.ReleaseRequest{Limit: -1, Wait: -1, Idle: -1})
	wantErr(t, err, coreinbox.ErrInvalidRequest, "Release")
	for _, part := range []string{"From", "Topic", "To", "Actor", "Reason", "Limit", "Wait", "Idle"} {
		if !strings.Contains(err.Error(), "ReleaseRequest."+part+" ") {
			t.Errorf("%v does not say %s", err, part)
		}
	}
}
