package ui_test

import (
	"context"
	"io"
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// poisonQueue is the poison queue of consumer billing, and its topic: what is sent to that is
// processed at once.
type poisonQueue struct {
	world *world

	mu     sync.Mutex
	parked []inbox.Message
}

func (q *poisonQueue) park(eventID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.parked = append(q.parked, inbox.Message{Payload: []byte("{}"), Headers: map[string]string{
		core.HeaderEventID: eventID, inbox.HeaderParkedTopic: "orders", inbox.HeaderParkedHandler: "invoice",
		inbox.HeaderParkedReason: `tax rate "XI" is not known`,
	}})
}

func (q *poisonQueue) open(context.Context) (from inbox.Queue, to inbox.Sender, done func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return &openQueue{q, slices.Clone(q.parked)}, q, func() {}, nil
}

// Send implements inbox.Sender.
func (q *poisonQueue) Send(ctx context.Context, _ string, msg inbox.Message) error {
	return q.world.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, _, err := q.world.inbox.Begin(ctx, tx, inbox.Event{
			Key: inbox.Key{Consumer: "billing", Handler: "invoice", EventID: msg.Headers[core.HeaderEventID]},
		})
		return err
	})
}

// openQueue is a poisonQueue as it was when it was opened.
type openQueue struct {
	of   *poisonQueue
	left []inbox.Message
}

func (q *openQueue) Next(context.Context) (msg inbox.Message, err error) {
	if len(q.left) == 0 {
		return msg, io.EOF
	}
	msg, q.left = q.left[0], q.left[1:]
	return msg, nil
}

func (q *openQueue) Ack(_ context.Context, msg inbox.Message) error {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.of.parked = slices.DeleteFunc(q.of.parked, func(m inbox.Message) bool {
		return m.Headers[core.HeaderEventID] == msg.Headers[core.HeaderEventID]
	})
	return nil
}
