package inbox_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestChainOrder(t *testing.T) {
	w := newWorld(t, func(c *inbox.Config) { c.OnDead = inbox.AckDead })
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
	for name, c := range map[string]inbox.ChainConfig{
		"all":       {Poison: link("poison"), Retry: link("retry"), Inbox: w.in},
		"no poison": {Retry: link("retry"), Inbox: w.in}, "none": {Inbox: w.in},
	} {
		order = nil
		chain, err := inbox.Chain(c)
		must(t, err)
		must(t, errOf(chain(w.handler)(event(t.Context(), name))))
		want := 0
		if c.Retry != nil {
			want++
		}
		if c.Poison != nil {
			want++
			equal(t, order[0], "poison", "%s: %v", name, order)
		}
		equal(t, len(order), want, "%s: %v", name, order)
		w.effect(name, 1)
	}
	if _, err := inbox.Chain(inbox.ChainConfig{}); err == nil {
		t.Error("a chain without an inbox was accepted")
	}
	returning := newWorld(t, func(c *inbox.Config) { c.OnDead = inbox.ReturnDead })
	if _, err := inbox.Chain(inbox.ChainConfig{Inbox: returning.in}); err == nil {
		t.Error("a chain that delivers dead messages for ever was accepted")
	}
}

func TestFinal(t *testing.T) {
	for err, want := range map[error]bool{
		inbox.ErrDead: true, inbox.ErrInvalidMessage: true, core.Permanent(errHandler): true, errHandler: false,
		core.Unavailable(errHandler): false, inbox.ErrInProgress: false, errors.Join(errHandler, inbox.ErrDead): true,
	} {
		equal(t, inbox.Final(err), want, "Final(%v)", err)
	}
	if inbox.Final(nil) {
		t.Error("Final(nil)")
	}
}
