package inbox

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// OnDead says what becomes of a message whose event is dead.
type OnDead uint8

const (
	// ReturnDead returns an error wrapping ErrDead, so that a poison queue outside of the inbox
	// takes the message with its payload. Without one the broker delivers it again and again: it is
	// not processed, and holds up what is behind it.
	ReturnDead OnDead = iota
	// AckDead acknowledges the message. The table keeps its id and where it was, not its payload:
	// use it where the broker keeps messages (Kafka), so that a redriven event can be read again.
	AckDead
)

// Config configures an Inbox. Consumer, Transactor and Store are required.
type Config struct {
	// Consumer names this consumer in the table, at most 128 bytes. Choose it once: a consumer with
	// another name has processed nothing yet.
	Consumer string
	// Transactor opens the transaction of each message: that of the ORM the handlers use.
	Transactor core.Transactor
	// Store is the table, in the same database: a sqlinbox.Store.
	Store Store
	// Publisher writes the messages that a handler returns to the outbox, in the transaction of
	// their context: a watermillbridge.OutboxPublisher. Nil: a handler that returns messages fails
	// with ErrProducedNeedsOutbox.
	Publisher message.Publisher

	// Handler names the handler of a message, at most 128 bytes. Default: the name in the Router.
	// Needed outside of a Router.
	Handler func(msg *message.Message) string
	// EventID returns the identity of the event. Default: metadata event_id; else that of
	// CloudEvents, which is ce_source and ce_id (also written ce-id and cloudEvents:id) joined by a
	// blank; else the message's UUID. Note that some subscribers make up a UUID for a message that
	// came without, and then no two deliveries are the same.
	EventID func(msg *message.Message) (string, error)
	// Tenant returns the tenant. Default: metadata tenant_id.
	Tenant func(msg *message.Message) string
	// Source returns where the message came from, for the table. Default: the topic of the Router,
	// without partition and offset, which each Pub/Sub keeps elsewhere. For Kafka:
	//
	//	func(msg *message.Message) inbox.Source {
	//		p, ok := kafka.MessagePartitionFromCtx(msg.Context())
	//		o, _ := kafka.MessagePartitionOffsetFromCtx(msg.Context())
	//		topic := message.SubscribeTopicFromCtx(msg.Context())
	//		return inbox.Source{Topic: topic, Partition: p, Offset: o, Located: ok}
	//	}
	Source func(msg *message.Message) Source

	// MaxAttempts is how often a handler may fail with an event before the event is dead. MinAge is
	// how long ago its first failure must be. Both have to be over, so that a short disturbance
	// makes no event dead. Failures that are not the event's fault spend no attempt:
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
	// before they return, because most brokers deliver a rejected message again at once. It doubles
	// with each further failure up to MaxRetryPause, less up to half at random, and ends with the
	// message's context. Defaults: 100 ms, 10 s. Negative: no pause. MaxRetryPause must be shorter
	// than the broker waits for an acknowledgement.
	RetryPause    time.Duration
	MaxRetryPause time.Duration
	// OnDead says what becomes of the message of an event that was given up. Default: ReturnDead.
	OnDead OnDead
	// OnlyNewer names handlers that want no event that is older than one they have processed of the
	// same tenant, topic and key, because each event has the whole state. Such an event is skipped
	// permanently, also one that was never processed: because it failed, say, and a newer one was
	// faster. It takes the metadata partition_key and key_seq of a watermillbridge; events without
	// are processed. An event that the outbox published late, because a person redrove it under
	// policy SkipDead, counts by the key_seq that it had at first.
	OnlyNewer []string
	// Cache in front of the table. Default: none.
	Cache Cache

	// Retention is how long processed events are remembered. 0: for ever. It must be longer than
	// BrokerRetention and ReplayWindow: a message that is delivered after its id was deleted is
	// processed again.
	Retention time.Duration
	// BrokerRetention is how long the broker, its dead-letter and poison queues included, can
	// deliver a message. Required with Retention.
	BrokerRetention time.Duration
	// ReplayWindow is how far back anybody replays events, from the outbox or by resetting a
	// consumer group. Default: BrokerRetention.
	ReplayWindow time.Duration
	// CleanupInterval is how often Run deletes what is older than Retention. Default 10 minutes.
	CleanupInterval time.Duration

	// Observer is called with everything that happens, for metrics. Default: none.
	Observer *Observer
	// Logger gets a line for each failed and each dead event, at level Debug where the message's
	// context was canceled because the consumer stops. Default: core.DefaultLogger, warnings and
	// errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
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

// engine is the part of c that is about events.
func (c Config) engine(from translation) engine.Config {
	return engine.Config{
		Consumer: c.Consumer, Transactor: c.Transactor, Store: c.Store, EventID: from.id,
		MaxAttempts: c.MaxAttempts, MinAge: c.MinAge, Classifier: c.Classifier,
		RetryPause: c.RetryPause, MaxRetryPause: c.MaxRetryPause, OnlyNewer: c.OnlyNewer, Cache: c.Cache,
		Retention: c.Retention, BrokerRetention: c.BrokerRetention, ReplayWindow: c.ReplayWindow,
		CleanupInterval: c.CleanupInterval, Observer: c.Observer, Logger: c.Logger,
	}
}

// translation is the part of c that is about messages.
func (c Config) translation() translation {
	return translation{handler: c.Handler, eventID: c.EventID, tenant: c.Tenant, source: c.Source}.withDefaults()
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
