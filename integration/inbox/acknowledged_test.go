package inbox_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// lost collects what an inbox tells of messages that were acknowledged too early.
type lost struct {
	mu   sync.Mutex
	told []coreinbox.Info
}

func (l *lost) observer() *coreinbox.Observer {
	return &coreinbox.Observer{Dead: func(i coreinbox.Info) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.told = append(l.told, i)
	}}
}

// all reports whether the inbox has told that n messages were acknowledged.
func (l *lost) all(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, i := range l.told {
		if !strings.Contains(i.Err.Error(), "acknowledged") {
			return false
		}
	}
	return len(l.told) == n
}

// earlyAcks are the ways in which a message is acknowledged before its transaction has committed.
var earlyAcks = map[string]func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc{
	"InstantAck outside": func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
		return middleware.InstantAck(in(h))
	},
	"InstantAck inside": func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
		return in(middleware.InstantAck(h))
	},
	"first line of the handler": func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
		return in(func(msg *message.Message) ([]*message.Message, error) { msg.Ack(); return h(msg) })
	},
	"last line of the handler": func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
		return in(func(msg *message.Message) ([]*message.Message, error) {
			produced, err := h(msg)
			msg.Ack()
			return produced, err
		})
	},
	"handler that fails": func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
		return in(func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			_, _ = h(msg)
			return nil, errOnce
		})
	},
	"handler that panics": func(in message.HandlerMiddleware, h message.HandlerFunc) message.HandlerFunc {
		return middleware.Recoverer(in(func(msg *message.Message) ([]*message.Message, error) {
			msg.Ack()
			panic("boom")
		}))
	},
}

// A message that is acknowledged before its work is committed never comes again. So the inbox
// commits nothing, says so, and gives the message up: the table and the poison queue keep it.
func TestInboxEarlyAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, way := range earlyAcks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachInbox(t, func(t *testing.T, w *inboxWorld) {
				var l lost
				var poison deadLetters
				in := w.another(func(c *coreinbox.Config) { c.Observer = l.observer() })
				publish := earlyRouter(t, poison.poison(t), way(in.Middleware, w.handler))
				for n, id := range []string{"a", "b", "c"} {
					publish(id)
					fixture.Await(t, "the inbox tells of the message", func() bool { return l.all(n + 1) })
				}
				if name != "handler that panics" { // the panic goes on
					fixture.Await(t, "the messages are in the poison queue", func() bool {
						return poison.sorted() == "a b c"
					})
				}
				w.wantEffects(map[string]int{})
				dead, err := in.ListDead(t.Context(), coreinbox.DeadQuery{})
				fixture.NoError(t, err)
				if len(dead) != 3 || dead[0].Code != "acknowledged" {
					t.Errorf("dead are %+v", dead)
				}
			})
		})
	}
}

// The same holds with a lease.
func TestLeaseEarlyAcknowledgement(t *testing.T) {
	t.Parallel()
	for name, way := range earlyAcks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachInbox(t, func(t *testing.T, w *inboxWorld) {
				var l lost
				var poison deadLetters
				runner, err := once.New(once.Config{
					Store: fixture.NewOnceStore(t, w.pool, sqlonce.Config{Dialect: w.db.Dialect}),
				})
				fixture.NoError(t, err)
				a, err := coreinbox.NewAtLeastOnce(coreinbox.AtLeastOnceConfig{
					Consumer: "billing", Runner: runner, Observer: l.observer(),
					RetryPause: time.Millisecond, MaxRetryPause: time.Millisecond,
				})
				fixture.NoError(t, err)
				publish := earlyRouter(t, poison.poison(t), way(inbox.Wrap(a, inbox.ReturnDead()),
					func(*message.Message) ([]*message.Message, error) { return nil, nil }))
				for n, id := range []string{"a", "b"} {
					publish(id)
					fixture.Await(t, "the inbox tells of the message", func() bool { return l.all(n + 1) })
				}
				if name != "handler that panics" {
					fixture.Await(t, "the messages are in the poison queue", func() bool {
						return poison.sorted() == "a b"
					})
				}
			})
		})
	}
}

// A copy of an event that was processed needs nothing more, acknowledged or not.
func TestInboxEarlyAcknowledgementOfACopy(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		_, err := w.in.Middleware(w.handler)(w.routed("e"))
		fixture.NoError(t, err)
		again := w.routed("e")
		again.Ack()
		_, err = w.in.Middleware(w.handler)(again)
		fixture.NoError(t, err)
		w.hears("duplicate", 1)
		w.wantEffects(map[string]int{"e handled": 1})
	})
}

// earlyRouter runs h on a Go channel, and returns a function that publishes one message.
func earlyRouter(t *testing.T, poison message.HandlerMiddleware, h message.HandlerFunc) func(id string) {
	t.Helper()
	ps := inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddConsumerHandler("handler", "orders", ps, func(msg *message.Message) error {
			_, err := poison(h)(msg)
			return err
		})
	})
	return func(id string) {
		msg := message.NewMessage(watermill.NewUUID(), nil)
		msg.Metadata.Set(core.HeaderEventID, id)
		fixture.NoError(t, ps.Publish("orders", msg))
	}
}

// sorted returns the ids in alphabetical order. Messages that are acknowledged run at once.
func (d *deadLetters) sorted() string {
	ids := strings.Fields(d.ids())
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
