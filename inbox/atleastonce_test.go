package inbox_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

// leasing is an AtLeastOnce for a Router.
type leasing struct {
	*coreinbox.AtLeastOnce
	opts []inbox.Option
}

func (l *leasing) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return inbox.Wrap(l.AtLeastOnce, l.opts...)(h)
}

func newAtLeastOnce(t *testing.T, set ...func(*coreinbox.AtLeastOnceConfig)) *leasing {
	t.Helper()
	runner, err := once.New(once.Config{Store: outboxtest.NewOnceStore(), Lease: time.Minute, TTL: time.Hour, Wait: -1})
	must(t, err)
	cfg := coreinbox.AtLeastOnceConfig{
		Consumer: "search", Runner: runner,
		Handler: "index", RetryPause: -1,
	}
	for _, fn := range set {
		fn(&cfg)
	}
	a, err := coreinbox.NewAtLeastOnce(cfg)
	must(t, err)
	return &leasing{a, []inbox.Option{inbox.ReturnDead()}}
}

func TestAtLeastOnce(t *testing.T) {
	calls := 0
	heard := ""
	a := newAtLeastOnce(t, func(c *coreinbox.AtLeastOnceConfig) {
		c.Observer = &coreinbox.Observer{
			Processed: func(coreinbox.Info) { heard += "p" }, Duplicate: func(coreinbox.Info) { heard += "d" },
			Failed: func(coreinbox.Info) { heard += "f" }, InProgress: func(coreinbox.Info) { heard += "i" },
		}
	})
	var h message.HandlerFunc
	h = a.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		if calls++; calls == 1 {
			return nil, errHandler
		}
		if _, err := h(event(t.Context(), "e")); !errors.Is(err, coreinbox.ErrInProgress) ||
			!errors.Is(err, once.ErrInProgress) {
			t.Errorf("a copy at the same time: %v", err)
		}
		return nil, nil
	})
	msg := event(t.Context(), "e")
	for n, want := range []error{errHandler, nil, nil} {
		wantErr(t, errOf(h(msg)), want, "delivery %d", n)
		equal(t, msg.Context(), t.Context(), "the context was not restored")
	}
	if calls != 2 || heard != "fipd" {
		t.Errorf("%d calls, heard %q", calls, heard)
	}
	wantErr(t, errOf(h(message.NewMessage("", nil))), coreinbox.ErrInvalidMessage, "without an id")
}

// Produced messages are published before the mark. After the mark the handler would not run again,
// and they could be lost.
func TestAtLeastOncePublishesBeforeItMarks(t *testing.T) {
	out := &publisher{err: errHandler}
	a := newAtLeastOnce(t)
	a.opts = append(a.opts, inbox.Publisher(out))
	var router atomic.Int64
	calls := 0
	ps := routed(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(a.Middleware)
		r.AddHandler("h", "orders", ps, "invoices", countingPublisher{&router},
			func(*message.Message) ([]*message.Message, error) {
				if calls++; calls == 2 {
					out.mu.Lock()
					out.err = nil
					out.mu.Unlock()
				}
				return message.Messages{event(t.Context(), "i")}, nil
			})
	})
	for range 2 {
		must(t, ps.Publish("orders", event(t.Context(), "e")))
	}
	if calls != 2 || len(out.topics) != 2 || router.Load() != 0 {
		t.Errorf("%d calls, published %v, by the Router %d", calls, out.topics, router.Load())
	}
	refuses := newAtLeastOnce(t)
	_, err := refuses.Middleware(func(*message.Message) ([]*message.Message, error) {
		return message.Messages{event(t.Context(), "i")}, nil
	})(event(t.Context(), "e"))
	wantErr(t, err, inbox.ErrProducedNeedsOutbox, "without a publisher")
}

func TestAtLeastOnceConfig(t *testing.T) {
	_, err := coreinbox.NewAtLeastOnce(coreinbox.AtLeastOnceConfig{})
	for _, part := range []string{"Consumer", "Runner"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
	refuses(t, func() { inbox.Wrap(newAtLeastOnce(t).AtLeastOnce, inbox.Publisher((*publisher)(nil))) }, "Publisher")
}
