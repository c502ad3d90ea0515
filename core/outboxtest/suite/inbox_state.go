package suite

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

func inboxStateCases() []inboxCase {
	return []inboxCase{
		{"the state of an event through its life", inboxStates},
		{"the state while the event is processed", inboxStateWaits},
	}
}

// wantStateOf asks an Inbox for the state of an event, twice: asking changes nothing.
func (c *cachedInbox) wantStateOf(id string, want inbox.State) {
	c.f.Helper()
	for range 2 {
		if got, err := c.in.State(c.f.Context(), inboxEvent(id).Key); err != nil || got != want {
			c.f.Errorf("%s is %s, %v; want %s", id, got, err, want)
		}
	}
}

// inboxStates asks for the state before and after each thing that can happen to an event.
func inboxStates(f *inboxFixture) {
	c := f.cached(nil)
	c.wantStateOf("e", inbox.StateFresh)
	f.fail(inboxEvent("e"), false)
	c.wantStateOf("e", inbox.StateFresh)
	f.fail(inboxEvent("e"), true)
	c.wantStateOf("e", inbox.StateDead)
	c.redriveDead(1, nil)
	c.wantStateOf("e", inbox.StateFresh)
	c.deliver("e", inbox.Ack)
	c.wantStateOf("e", inbox.StateProcessed)
	c.wantHandled(1) // no question has made it a duplicate

	f.fail(inboxEvent("d"), true)
	f.discard(f.Store, 1, inboxEvent("d").Key)
	c.wantStateOf("d", inbox.StateProcessed)

	other := inboxEvent("e").Key
	other.Consumer = "another"
	if _, err := c.in.State(f.Context(), other); !errors.Is(err, inbox.ErrInvalidRequest) {
		f.Errorf("a key of another consumer: %v", err)
	}
	err := f.Transactor.RunInTx(f.Context(), func(ctx context.Context, _ core.Tx) error {
		_, err := c.in.State(ctx, inboxEvent("e").Key)
		return err
	})
	if !errors.Is(err, inbox.ErrInTransaction) {
		f.Errorf("in a transaction: %v", err)
	}
}

// inboxStateWaits asks for the state while a handler works. The answer is the state after its end.
func inboxStateWaits(f *inboxFixture) {
	c := f.cached(nil)
	answer := make(chan inbox.State, 1)
	r := c.in.Process(f.Context(), inbox.Message{ID: "e"}, func(_ context.Context, tx core.Tx, _ inbox.Message) error {
		go func() {
			state, err := c.in.State(f.Context(), inboxEvent("e").Key)
			if err != nil {
				f.Error(err)
			}
			answer <- state
		}()
		return c.handle(tx, 1)
	})
	if r.Action != inbox.Ack {
		f.Errorf("%s, %v", r.Action, r.Err)
	}
	if got := <-answer; got != inbox.StateProcessed {
		f.Errorf("it is %s", got)
	}
}
