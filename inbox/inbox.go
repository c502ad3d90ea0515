package inbox

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Inbox processes each event once. It is package core/inbox for a Router of Watermill. Make one
// with New; it is safe for use by several goroutines, and its zero value is not usable.
type Inbox struct {
	engine *engine.Inbox
	from   translation
	out    producer
	onDead OnDead
}

// New returns an Inbox, or an error that names every problem of cfg.
func New(cfg Config) (*Inbox, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	from := cfg.translation()
	e, err := engine.New(cfg.engine(from))
	if err != nil {
		return nil, err
	}
	return &Inbox{
		engine: e, from: from, onDead: cfg.OnDead,
		out: producer{publisher: cfg.Publisher, observer: cfg.Observer},
	}, nil
}

// Event returns the event of a message with its key, as this inbox remembers it. The error wraps
// ErrInvalidMessage.
func (in *Inbox) Event(msg *message.Message) (Event, error) {
	return in.engine.Event(in.from.message(msg))
}

// ListDead returns the dead events of this consumer. The events that were received first come
// first. It takes the consumer of the Inbox, not q.Consumer.
func (in *Inbox) ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error) {
	return in.engine.ListDead(ctx, q)
}

// Redrive lets dead events be processed, with fresh attempts, when their messages are delivered
// again: from the poison queue, or by a replay. Redrive itself delivers nothing, because the inbox
// does not have the payload. The row keeps actor and reason until the delivery. Redrive returns how
// many events changed; the others were not dead. An incomplete request, or one with a key of
// another consumer, is refused with an error wrapping ErrInvalidRequest.
//
// Config.Cache forgets the events first. If it cannot, Redrive changes nothing and returns its
// error. Give the Inbox that redrives the Cache of the consumers: see Cache.
func (in *Inbox) Redrive(ctx context.Context, req RedriveRequest) (changed int, err error) {
	return in.engine.Redrive(ctx, req)
}

// Discard ends dead events: they are never processed. When the message of one is delivered again,
// it is acknowledged and not handled, as that of a processed event, and Observer.Duplicate is
// called. The event is dead no longer, Redrive does not change it, and Cleanup deletes it after
// Config.Retention. Until then its row keeps actor and reason. Discard returns how many events
// changed; the others were not dead. An incomplete request, or one with a key of another consumer,
// is refused with an error wrapping ErrInvalidRequest. Config.Cache is not told: it cannot have a
// wrong entry.
func (in *Inbox) Discard(ctx context.Context, req DiscardRequest) (changed int, err error) {
	return in.engine.Discard(ctx, req)
}

// State returns the state of an event: StateProcessed (also after Discard), StateDead,
// StateInProgress, or StateFresh if a delivery would run the handler. While a process works on the
// event, State waits until that has ended. It leaves the table as it is.
func (in *Inbox) State(ctx context.Context, k Key) (State, error) { return in.engine.State(ctx, k) }

// Cleanup deletes, in chunks, the processed and the discarded events and the keys of OnlyNewer of
// this consumer that are older than Config.Retention. It returns how many it deleted. Rows of
// failed and dead events stay. Any number of processes may call it at once.
func (in *Inbox) Cleanup(ctx context.Context) (deleted int, err error) { return in.engine.Cleanup(ctx) }

// Run calls Cleanup now and every Config.CleanupInterval until ctx ends, and then returns nil. The
// Observer and the Logger get each error of Cleanup, and Run tries again. Without Config.Retention
// it returns an error at once.
func (in *Inbox) Run(ctx context.Context) error { return in.engine.Run(ctx) }

// answer returns the error that a Router gets for a result. AckDead acknowledges what is in the
// table. A message without a usable id is Dead too, and in no table.
func (in *Inbox) answer(r engine.Result) error {
	if r.Action == engine.Dead && in.onDead == AckDead && isDead(r.Err) {
		return nil
	}
	return r.Err
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
