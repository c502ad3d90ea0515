package watermillbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
)

// nameMetadata is the metadata in which Watermill's CQRS marshalers put the name of a command or an
// event.
const nameMetadata = "name"

// Outbox is the part of core.Outbox that an OutboxPublisher needs.
type Outbox interface {
	Publish(ctx context.Context, tx core.Tx, events ...core.Event) (ids []string, err error)
}

// OutboxConfig configures an OutboxPublisher. The zero value is ready for use.
type OutboxConfig struct {
	// Event may change the event made of a message before it is inserted: its type, its key, or
	// whether it is ordered. An error refuses the whole call. Default: none.
	Event func(topic string, msg *message.Message, e *core.Event) error
}

// OutboxPublisher is a message.Publisher of Watermill that writes messages to the outbox, in the
// transaction that the message's context carries. Give it to a Watermill CQRS bus, or use it in
// place of a Forwarder's publisher. The messages commit or roll back with the transaction, and the
// relay sends them to the broker. It is safe for use by several goroutines.
type OutboxPublisher struct {
	outbox Outbox
	cfg    OutboxConfig
	tx     core.Tx // set by InTx
	told   *atomic.Bool
}

// NewOutboxPublisher returns an OutboxPublisher.
func NewOutboxPublisher(ob Outbox, cfg OutboxConfig) (*OutboxPublisher, error) {
	if v := reflect.ValueOf(ob); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("watermillbridge: the outbox is nil")
	}
	return &OutboxPublisher{outbox: ob, cfg: cfg, told: new(atomic.Bool)}, nil
}

// InTx returns a publisher that writes messages in tx if their context carries no transaction. It
// can be used until tx ends, like a publisher that was made for one transaction.
func (p *OutboxPublisher) InTx(tx core.Tx) *OutboxPublisher {
	c := *p
	c.tx = tx
	return &c
}

// Publish writes all messages to the outbox in one call, or none of them. A message becomes an
// event like this:
//
//   - ID: metadata event_id, else the message's UUID if it is a UUID or a ULID, else
//     core.DeriveEventID of the UUID, else a new one. Publishing the same message again to the same
//     topic is core.ErrDuplicateEvent.
//   - Topic: topic. Type: metadata event_type, else name (Watermill's CQRS sets it), else topic.
//   - Key: metadata partition_key. Other fields: from the metadata that NewMessage writes.
//   - Delay: from the metadata of Watermill's components/delay. A message with a key also needs
//     OutboxConfig.Event to set Unordered.
//   - Headers: all other metadata, also from Watermill's components. NewMessage writes each of them
//     and the UUID back unchanged.
//
// A message may have the metadata of a consumed message (they name its row) and a new UUID. Such a
// message is a new event: its id comes from its UUID, its time is now, and name is used before
// event_type. Messages with the same UUID are one event.
//
// core.Config.Headers is called with each message's context. The statement runs with the context of
// the first message.
//
// As the publisher of Router.AddHandler it needs inbox.Middleware, which writes the messages that
// the handler returns in its transaction. Without it they carry no transaction, because the Router
// publishes them afterwards. The first such call logs this, and later calls take a second to fail.
//
// Errors wrap core.ErrNoTransaction if a message carries no transaction, core.ErrInvalidEvent if a
// message cannot be an event, or come from core.Outbox.Publish. The messages of one call must carry
// the same transaction.
func (p *OutboxPublisher) Publish(topic string, messages ...*message.Message) error {
	if topic == "" {
		return fmt.Errorf("%w: no topic", core.ErrInvalidEvent)
	}
	if len(messages) == 0 {
		return nil
	}
	events := make([]core.Event, len(messages))
	var problems []error
	for i, msg := range messages {
		if msg == nil {
			problems = append(problems, fmt.Errorf("%w: message %d is nil", core.ErrInvalidEvent, i))
			continue
		}
		e, err := p.event(topic, msg)
		if err != nil {
			problems = append(problems, fmt.Errorf("message %d: %w", i, err))
		}
		events[i] = e
	}
	if len(problems) > 0 {
		return fmt.Errorf("watermillbridge: publish to the outbox: %w", errors.Join(problems...))
	}
	tx, err := p.transaction(messages)
	handler := message.HandlerNameFromCtx(messages[0].Context())
	if handler != "" && errors.Is(err, core.ErrNoTransaction) {
		return p.afterHandler(messages[0].Context(), handler, err)
	}
	if err != nil {
		return err
	}
	_, err = p.outbox.Publish(messages[0].Context(), tx, events...)
	return err
}

// Close does nothing: the outbox belongs to the caller.
func (p *OutboxPublisher) Close() error { return nil }

// transaction returns the transaction of the messages, which must be the same for all.
func (p *OutboxPublisher) transaction(messages []*message.Message) (core.Tx, error) {
	var tx core.Tx
	for i, msg := range messages {
		found, ok := core.TxFromContext(msg.Context())
		if !ok {
			found = p.tx
		}
		if found == nil {
			return nil, fmt.Errorf("watermillbridge: message %d: %w in its context: publish with the context "+
				"of RunInTx, or gormoutbox.Context(ctx, tx) with GORM, or use InTx", i, core.ErrNoTransaction)
		}
		if tx == nil {
			tx = found
		} else if !same(tx, found) {
			return nil, fmt.Errorf("watermillbridge: message %d carries another transaction than message 0: publish "+
				"them in two calls", i)
		}
	}
	return tx, nil
}

// routerPause is how long a Router waits for the error of a message without a transaction.
const routerPause = time.Second

// afterHandler returns the error of messages that a Router publishes for its handler. The Router
// does so when the handler has returned, and gives the handler its message again at once: the first
// error is logged, and later ones take a while, so that the handler does not run in a tight loop.
func (p *OutboxPublisher) afterHandler(ctx context.Context, handler string, err error) error {
	err = fmt.Errorf("%w: the Router publishes what handler %q returns after its transaction: use inbox.Middleware, "+
		"which writes the messages within it", err, handler)
	if p.told.CompareAndSwap(false, true) {
		core.DefaultLogger().Error("watermillbridge: messages of a handler carry no transaction; their input is "+
			"delivered again and again", "handler", handler, "error", err)
		return err
	}
	select {
	case <-time.After(routerPause):
	case <-ctx.Done():
	}
	return err
}

func same(a, b core.Tx) bool {
	return reflect.ValueOf(a).Comparable() && a == b
}

func (p *OutboxPublisher) event(topic string, msg *message.Message) (core.Event, error) {
	if _, ok := msg.Metadata[core.HeaderFields]; ok { // it was read from a broker
		ctx, md := msg.Context(), message.Metadata(core.UnpackFields(msg.Metadata))
		msg = msg.Copy()
		msg.SetContext(ctx)
		msg.Metadata = md
	}
	r := reader{md: msg.Metadata}
	e := r.event()
	e.Topic, e.Payload, e.Delay = topic, msg.Payload, r.delay()
	id, keep, derived := identity(msg)
	e.ID = id
	name := msg.Metadata[nameMetadata]
	if derived { // these metadata belong only to the consumed event
		e.OccurredAt, e.Type = time.Time{}, cmp.Or(name, e.Type)
	}
	e.Type = cmp.Or(e.Type, name, topic)
	var err error
	if e.Headers, err = headersOf(keep, msg.Metadata); err != nil {
		r.problems = append(r.problems, err)
	}
	if derived { // that is the cause of the consumed event; the chain goes on
		delete(e.Headers, core.HeaderCausationID)
	}
	if len(r.problems) > 0 {
		return e, fmt.Errorf("%w: %w", core.ErrInvalidEvent, errors.Join(r.problems...))
	}
	e = e.WithContext(msg.Context())
	if p.cfg.Event != nil {
		if err := p.cfg.Event(topic, msg, &e); err != nil {
			return e, err
		}
	}
	return e, nil
}

// identity returns the id of a message's event, and the UUID to keep if the id does not contain it.
// derived: the message was derived from another one and has its metadata.
func identity(msg *message.Message) (id, keep string, derived bool) {
	named, uuid := msg.Metadata[core.HeaderEventID], msg.UUID
	if uuid == "" {
		return named, "", false
	}
	id, ok := canonical(uuid)
	if !ok {
		id = core.DeriveEventID(uuid)
	}
	if named != "" {
		derived = msg.Metadata[core.HeaderRowID] != "" && !strings.EqualFold(named, id)
		if !derived {
			id = named
		}
	}
	if id != uuid {
		keep = uuid
	}
	return id, keep, derived
}

// canonical returns a UUID or a ULID in the form that events have.
func canonical(id string) (string, bool) {
	if _, _, err := core.RowIDRange(id); err != nil {
		return "", false
	}
	if strings.Contains(id, "-") {
		return strings.ToLower(id), true
	}
	return strings.ToUpper(id), true
}
