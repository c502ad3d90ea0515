package inbox_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestChainOrder(t *testing.T) {
	w := newWorld(t)
	var order []string
	link := func(name string) message.HandlerMiddleware {
		return func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				order = append(order, name)
				if _, in := core.TxFromContext(msg.Context()); in {
					t.Errorf("%s is in the transaction", name)
				}
				return h(msg)
			}
		}
	}
	poison := &publisher{}
	for name, opts := range map[string][]inbox.Option{
		"all":       {inbox.Poison(poison, "poison"), inbox.Retry(link("retry"))},
		"no poison": {inbox.AckDead(), inbox.Retry(link("retry"))},
		"no retry":  {inbox.Poison(poison, "poison")},
		"none":      {inbox.AckDead()},
	} {
		order, poison.topics = nil, nil
		m := inbox.Wrap(w.in.Inbox, opts...)
		must(t, errOf(m(w.handler)(event(t.Context(), name))))
		want := len(opts) - 1 // the link of Retry
		equal(t, len(order), want, "%s: %v", name, order)
		w.effect(name, 1)
		dead := func(*message.Message) ([]*message.Message, error) { return nil, core.Permanent(errHandler) }
		noError(t, errOf(m(dead)(event(t.Context(), "dead "+name))))
		if want := name == "all" || name == "no retry"; len(poison.topics) != 0 != want {
			t.Errorf("%s: published to %v", name, poison.topics)
		}
	}
	refuses(t, func() { inbox.Wrap(w.in.Inbox) }, "dead messages stay at the broker")
}

func TestFinal(t *testing.T) {
	for err, want := range map[error]bool{
		coreinbox.ErrDead: true, coreinbox.ErrInvalidMessage: true, core.Permanent(errHandler): true, errHandler: false,
		core.Unavailable(errHandler): false, coreinbox.ErrInProgress: false,
		errors.Join(errHandler, coreinbox.ErrDead): true,
	} {
		equal(t, coreinbox.Final(err), want, "Final(%v)", err)
	}
	if coreinbox.Final(nil) {
		t.Error("Final(nil)")
	}
}
