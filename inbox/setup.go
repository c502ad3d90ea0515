package inbox

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Middleware makes the handlers of a Router idempotent, in one statement:
//
//	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "billing", inbox.CreateTables()))
//
// t is the Transactor of the ORM: gormoutbox.Transactor(db), bunoutbox.Transactor(db),
// entoutbox.Transactor(client.Tx). For database/sql there is [SQL]. consumer names this consumer in
// the table: choose it once. Middleware is [Wrap] of an Inbox with the defaults of package
// core/inbox, with two differences. Without [Poison], [AckDead] or [ReturnDead] no message is given
// up: a message that keeps failing is tried again until it succeeds. The logger is slog.Default().
//
// Middleware returns without a query. While the database cannot be reached, or its tables cannot be
// created, messages fail, the reason is logged, and they are tried again. Like Router.AddHandler it
// panics when an argument is wrong: an empty consumer, a nil Transactor, options that contradict
// each other.
func Middleware(t core.Transactor, consumer string, opts ...Option) message.HandlerMiddleware {
	o := newOptions(opts)
	o.notLeased()
	store, err := sqlinbox.On(t, sqlinbox.Config{AutoCreate: o.createTables})
	cfg := coreinbox.Config{Consumer: consumer, Store: store, Logger: slog.Default()}
	if err != nil { // New reports it, together with other problems
		cfg.Transactor, cfg.Store = t, &sqlinbox.Store{}
	}
	if o.dead == 0 {
		cfg.MaxAttempts = -1
	}
	in, err := coreinbox.New(cfg)
	o.join(err)
	return wrap(o, "Middleware", in)
}

// SQL is [Middleware] for database/sql. The handler finds its transaction by
// sqltx.FromContext(msg.Context()).
//
//	router.AddMiddleware(inbox.SQL(db, "billing", inbox.CreateTables()))
func SQL(db *sql.DB, consumer string, opts ...Option) message.HandlerMiddleware {
	return Middleware(sqltx.NewTransactor(db, ""), consumer, opts...)
}

// Leased is [Middleware] without a transaction, on a lease in any store of package once: see
// AtLeastOnce of package core/inbox. For Redis there is redisonce.Middleware. It does not take the
// options [CreateTables] and [AckDead].
func Leased(store once.Store, consumer string, opts ...Option) message.HandlerMiddleware {
	o := newOptions(opts)
	if o.createTables {
		o.bad("CreateTables is for Middleware and SQL")
	}
	runner, err := once.New(once.Config{Store: store, TTL: cmp.Or(o.ttl, 7*24*time.Hour)})
	o.join(err)
	cfg := coreinbox.AtLeastOnceConfig{Consumer: consumer, Runner: runner, Logger: slog.Default()}
	if o.dead == 0 {
		cfg.MaxAttempts = -1
	}
	a, err := coreinbox.NewAtLeastOnce(cfg)
	o.join(err)
	return wrap(o, "Leased", a)
}

// Option is a setting of [Middleware], [SQL], [Wrap], [Leased] and redisonce.Middleware.
type Option func(*options)

type options struct {
	createTables bool
	poison       *poisonQueue
	dead         onDead
	retry        message.HandlerMiddleware
	publisher    message.Publisher
	ttl          time.Duration
	problems     []error
}

// onDead is the treatment of a dead event's message. Zero: not set by an option.
type onDead uint8

const (
	toPoison onDead = iota + 1
	ackDead
	returnDead
)

func newOptions(opts []Option) *options {
	o := &options{}
	for _, set := range opts {
		if set == nil {
			o.bad("an Option is nil")
			continue
		}
		set(o)
	}
	return o
}

func (o *options) bad(format string, args ...any) {
	o.join(fmt.Errorf("inbox: "+format, args...))
}

func (o *options) join(err error) {
	if err != nil {
		o.problems = append(o.problems, err)
	}
}

func (o *options) notLeased() {
	if o.ttl != 0 {
		o.bad("TTL is for Leased")
	}
}

func (o *options) whenDead(what onDead) {
	if o.dead != 0 {
		o.bad("only one of Poison, AckDead and ReturnDead is possible")
	}
	o.dead = what
}

// CreateTables creates the tables of the inbox, or brings them up to date, before the first message
// is processed, as Migrate of a sqlinbox.Store does. Without this option the tables must exist.
func CreateTables() Option { return func(o *options) { o.createTables = true } }

// Poison sends messages that can never be processed (Final of package core/inbox) to a topic, with
// their payload and the metadata of Watermill's PoisonQueue, and acknowledges them. With it,
// messages are given up after MaxAttempts and MinAge of the inbox. A message that cannot be sent
// there is rejected and comes again.
func Poison(pub message.Publisher, topic string) Option {
	return func(o *options) {
		if isNil(pub) || topic == "" {
			o.bad("Poison needs a publisher and a topic")
		}
		o.poison = &poisonQueue{pub: pub, topic: topic}
		o.whenDead(toPoison)
	}
}

// AckDead acknowledges the message of a dead event. The table keeps the event id and the place of
// the message, not its payload. Use it where the broker keeps messages (Kafka), so that a redriven
// event can be read again. A message without a usable event id is in no table: it is rejected.
func AckDead() Option { return func(o *options) { o.whenDead(ackDead) } }

// ReturnDead returns the error of a dead event, which wraps ErrDead of package core/inbox, to a
// poison queue of your own outside of the inbox:
//
//	poison, err := middleware.PoisonQueueWithFilter(publisher, "billing_poison", coreinbox.Final)
//	router.AddMiddleware(poison, inbox.Wrap(in, inbox.ReturnDead()))
//
// Give it Final as its filter, so that an outage of the database does not fill the poison queue.
// Without a poison queue the broker delivers the message again and again. It is not processed, and
// holds up the messages behind it.
func ReturnDead() Option { return func(o *options) { o.whenDead(returnDead) } }

// Retry puts a middleware such as Watermill's Retry between [Poison] and the inbox:
//
//	inbox.Retry(middleware.Retry{
//		MaxRetries: 3, InitialInterval: 100 * time.Millisecond, ResetContextOnRetry: true,
//		ShouldRetry: func(p middleware.RetryParams) bool { return !coreinbox.Final(p.Err) },
//	}.Middleware)
//
// Each of its attempts runs a whole transaction, and counts towards MaxAttempts. The inbox works
// without one: it pauses, and the broker delivers again.
func Retry(m message.HandlerMiddleware) Option {
	return func(o *options) {
		if m == nil {
			o.bad("Retry was given nil")
		}
		o.retry = m
	}
}

// Publisher publishes the messages that handlers return. With a transaction it must write them to
// the outbox, in the transaction of their context: a watermillbridge.OutboxPublisher. Without this
// option a handler that returns messages fails with [ErrProducedNeedsOutbox].
func Publisher(pub message.Publisher) Option {
	return func(o *options) {
		if isNil(pub) {
			o.bad("Publisher was given nil")
		}
		o.publisher = pub
	}
}

// TTL is how long [Leased] remembers events that are done. It must be longer than the broker, its
// poison queue and any replay can deliver a message. Default: 7 days.
func TTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// Metadata of a message in a poison queue that Watermill's PoisonQueue writes too.
const (
	reasonPoisoned     = coreinbox.HeaderParkedReason
	subscriberPoisoned = "subscriber_poisoned"
)

// natsMsgID names a message for a JetStream stream. If the poison queue, or the topic of a released
// message, is in the stream that the message came from, the stream would drop it as a duplicate.
const natsMsgID = "Nats-Msg-Id"

// poisonQueue is Watermill's PoisonQueue with Final as its filter. It sends a copy of the message.
// If the copy cannot be sent, the message itself is unchanged.
type poisonQueue struct {
	pub   message.Publisher
	topic string
}

func (p *poisonQueue) middleware(consumer string, h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		out, err := h(msg)
		if !coreinbox.Final(err) {
			return out, err
		}
		ctx := msg.Context()
		poisoned := msg.Copy()
		poisoned.SetContext(ctx)
		delete(poisoned.Metadata, natsMsgID)
		poisoned.Metadata.Set(reasonPoisoned, err.Error())
		poisoned.Metadata.Set(coreinbox.HeaderParkedTopic, message.SubscribeTopicFromCtx(ctx))
		poisoned.Metadata.Set(coreinbox.HeaderParkedHandler, handlerOf(ctx))
		poisoned.Metadata.Set(subscriberPoisoned, message.SubscriberNameFromCtx(ctx))
		poisoned.Metadata.Set(coreinbox.HeaderParkedConsumer, consumer)
		poisoned.Metadata.Set(coreinbox.HeaderParkedAt, time.Now().UTC().Format(time.RFC3339))
		if perr := p.pub.Publish(p.topic, poisoned); perr != nil {
			return nil, errors.Join(err, fmt.Errorf("inbox: send to the poison queue %q: %w", p.topic, perr))
		}
		return nil, nil
	}
}
