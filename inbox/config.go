package inbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// OnDead says what the inbox does with a message whose event is dead.
type OnDead uint8

const (
	// ReturnDead returns an error wrapping ErrDead, so that a poison queue outside of the inbox
	// takes the message with its payload. Without a poison queue the broker delivers the message
	// again and again. The message is not processed, and holds up those behind it.
	ReturnDead OnDead = iota
	// AckDead acknowledges the message. The table keeps the event id and the place of the message,
	// not its payload. Use it where the broker keeps messages (Kafka), so that a redriven event can
	// be read again.
	AckDead
)

// Config configures an Inbox. Consumer, Transactor and Store are required.
type Config struct {
	// Consumer names this consumer in the table, at most 128 bytes. Choose it once: a consumer with
	// another name has processed nothing yet.
	Consumer string
	// Transactor opens the transaction of each message: that of the ORM the handlers use.
	Transactor core.Transactor
	// Store is the table of the inbox, in the same database: a sqlinbox.Store.
	Store Store
	// Publisher writes the messages that a handler returns to the outbox, in the transaction of
	// their context: a watermillbridge.OutboxPublisher. Nil: a handler that returns messages fails
	// with ErrProducedNeedsOutbox.
	Publisher message.Publisher

	// Handler names the handler of a message, at most 128 bytes. Default: the name in the Router.
	// Outside of a Router it is required.
	Handler func(msg *message.Message) string
	// EventID returns the identity of the event. Default: metadata event_id. Without it, the
	// identity of CloudEvents is taken: source and id, joined by a blank, in binary mode (ce_id,
	// cloudEvents_id, cloudEvents:id, ce-id) and in structured mode (metadata content-type is
	// application/cloudevents+json). Without either it is the UUID of the message. Some
	// subscribers make up a UUID for a message that has none, and then each delivery counts as a
	// new event.
	EventID func(msg *message.Message) (string, error)
	// Tenant returns the tenant. Default: metadata tenant_id.
	Tenant func(msg *message.Message) string
	// Source returns where the message came from, for the table. Default: the topic of the Router,
	// with the partition and offset of metadata outbox_source, which the subscriber of kafkabridge
	// sets. With another subscriber of Kafka:
	//
	//	func(msg *message.Message) inbox.Source {
	//		p, ok := kafka.MessagePartitionFromCtx(msg.Context())
	//		o, _ := kafka.MessagePartitionOffsetFromCtx(msg.Context())
	//		topic := message.SubscribeTopicFromCtx(msg.Context())
	//		return inbox.Source{Topic: topic, Partition: p, Offset: o, Located: ok}
	//	}
	Source func(msg *message.Message) Source

	// MaxAttempts is how often a handler may fail with an event before the event is dead. MinAge is
	// how long ago its first failure must be. Both conditions must hold, so that a short
	// disturbance makes no event dead. Failures that are not the event's fault spend no attempt:
	// core.Retryable, core.Unavailable and errors that Classifier judges so, a commit without an
	// answer, a canceled context. Defaults: 10, 5 minutes; negative: without limit, at any age. An
	// error that is core.Permanent gives the event up at once.
	MaxAttempts int
	MinAge      time.Duration
	// Classifier judges unmarked errors of handlers. ClassUnavailable is an outage of the database
	// or of another service, which spends no attempt; ClassPermanent gives the event up. Default:
	// core.DefaultClassifier, but io.EOF and io.ErrUnexpectedEOF, which a decoder returns too,
	// spend attempts unless they came from an HTTP request.
	Classifier func(error) core.Class
	// RetryPause is how long Middleware and ProcessBatch hold a message after its first failure
	// before they return, because most brokers deliver a rejected message again at once. The pause
	// doubles with each further failure up to MaxRetryPause, and a random part of up to half is
	// taken off. It ends with the message's context. Defaults: 100 ms, 10 s. Negative: no pause.
	// MaxRetryPause must be shorter than the time that the broker waits for an acknowledgement.
	RetryPause    time.Duration
	MaxRetryPause time.Duration
	// OnDead says what the inbox does with the message of a dead event. Default: ReturnDead.
	OnDead OnDead
	// OnlyNewer names handlers that skip an event that is older than one they have processed of the
	// same tenant, topic and key, because each event has the whole state. A skipped event stays
	// skipped when it is delivered again. An event that failed, and was overtaken by a newer one
	// before it was processed, is skipped too. The order is that of the metadata partition_key and
	// key_seq of a watermillbridge; events without them are processed. An event that the outbox
	// published late, because a person redrove it under policy SkipDead, counts by the key_seq that
	// it had at first.
	OnlyNewer []string
	// Cache is asked before the table. Default: none.
	Cache Cache

	// Retention is how long processed events are remembered. It must be longer than BrokerRetention
	// and ReplayWindow: a message that is delivered after its id was deleted is processed again.
	// Default: 30 days, or twice as long as BrokerRetention and ReplayWindow if that is more.
	// Negative: for ever. Events that failed or are dead are remembered until they are processed or
	// discarded.
	Retention time.Duration
	// BrokerRetention is how long the broker, its dead-letter and poison queues included, can
	// deliver a message. Required with a Retention of your own.
	BrokerRetention time.Duration
	// ReplayWindow is how far back a person can replay events, from the outbox or by resetting a
	// consumer group. Default: BrokerRetention.
	ReplayWindow time.Duration
	// CleanupInterval is how often rows that are older than Retention are deleted, by Run, and
	// without Run beside the messages that are processed. Default: 10 minutes.
	CleanupInterval time.Duration
	// Archive gets processed and discarded events before Cleanup deletes them, at most
	// ArchiveEvents at once. If it returns an error or panics, they stay, Cleanup returns the
	// error, and the next cleanup begins with them. Events may come again: after a crash, and if
	// two processes clean up at once. An archive must recognise them by their Key. It must return
	// when ctx ends, a minute after the call at the latest. A call that has not returned a second
	// later is abandoned, and no other call begins until it returns. Every process that cleans up
	// needs the same Archive. The keys of OnlyNewer are not archived. Store must be an Archiver, as
	// a sqlinbox.Store is. Default: none.
	Archive func(ctx context.Context, events []ArchivedEvent) error

	// Observer has callbacks for metrics, one for each kind of result. Default: none.
	Observer *Observer
	// Tracer has callbacks for traces, those of module oteloutbox for example. Default: none.
	Tracer *Tracer
	// Logger gets a line for each failed and each dead event. The level is Debug where the
	// message's context was canceled because the consumer stops. Default: core.DefaultLogger,
	// warnings and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

// Source says where a message was read.
type Source struct {
	Topic     string
	Partition int32
	Offset    int64
	Located   bool // Partition and Offset are known
}

// Validate reports every problem of c at once.
func (c Config) Validate() error {
	var problems []error
	if c.Publisher != nil && isNil(c.Publisher) {
		problems = append(problems, errors.New("inbox: Config.Publisher is a nil pointer"))
	}
	if c.OnDead > AckDead {
		problems = append(problems, fmt.Errorf("inbox: Config.OnDead is %d", c.OnDead))
	}
	return errors.Join(c.engine(translation{}).Validate(), errors.Join(problems...))
}

// engine returns the settings for core/inbox, which are about events.
func (c Config) engine(from translation) engine.Config {
	return engine.Config{
		Consumer: c.Consumer, Transactor: c.Transactor, Store: c.Store, EventID: from.id, Tenant: from.tenantOf,
		MaxAttempts: c.MaxAttempts, MinAge: c.MinAge, Classifier: c.Classifier,
		RetryPause: c.RetryPause, MaxRetryPause: c.MaxRetryPause, OnlyNewer: c.OnlyNewer, Cache: c.Cache,
		Retention: c.Retention, BrokerRetention: c.BrokerRetention, ReplayWindow: c.ReplayWindow,
		CleanupInterval: c.CleanupInterval, Archive: c.Archive,
		Observer: c.Observer, Tracer: c.Tracer, Logger: c.Logger,
	}
}

// translation returns the settings that are about messages.
func (c Config) translation() translation {
	return translation{handler: c.Handler, eventID: c.EventID, tenant: c.Tenant, source: c.Source}.withDefaults()
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
