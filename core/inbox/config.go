package inbox

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/problems"
	"github.com/ormoutbox/ormoutbox/core/internal/textcheck"
)

const (
	defaultRetryPause    = 100 * time.Millisecond
	defaultMaxRetryPause = 10 * time.Second
	defaultRetention     = 30 * 24 * time.Hour
)

// Config configures an [Inbox]. Consumer, Transactor and Store are required.
type Config struct {
	// Consumer names this consumer in the table, at most 128 bytes. Choose it once: a consumer with
	// another name has processed nothing yet.
	Consumer string
	// Transactor opens the transaction of each message. Use the Transactor of the handlers' ORM.
	// Default: the Store's Transactor. A Store made by sqlinbox.On has one.
	Transactor core.Transactor
	// Store is the table of the inbox, in the same database: a sqlinbox.Store.
	Store Store
	// Handler names the handler of messages that name none, at most 128 bytes. It is enough for a
	// consumer with one handler. Choose it once. Default: none, and then each Message needs one.
	Handler string
	// EventID returns the identity of the event of a message whose ID is empty. Never take it from
	// the data: two equal payments are two payments. Default: [MessageID], which is event_id, else
	// the identity of a CloudEvent.
	EventID func(msg Message) (string, error)
	// Tenant returns the tenant of a message whose Tenant is empty. Its answer is final: "" is no
	// tenant, even if a header has one. Default: the header tenant_id.
	Tenant func(msg Message) string

	// MaxAttempts is how often a handler may fail with an event before the event is dead. MinAge is
	// how long ago its first failure must be. Both conditions must hold, so that a short
	// disturbance makes no event dead. Failures that are not the event's fault spend no attempt:
	// sqltx.Retryable, core.Unavailable, ClassUnavailable by Classifier, a commit without an
	// answer, a canceled context. Defaults: 10, 5 minutes; negative: without limit, at any age. An
	// error that is core.Permanent gives the event up at once.
	MaxAttempts int
	MinAge      time.Duration
	// Classifier judges unmarked errors of handlers. ClassUnavailable is an outage of the database
	// or of another service, which spends no attempt; ClassPermanent gives the event up. Default:
	// core.DefaultClassifier, and ClassUnavailable for a database that cannot be used now.
	// io.EOF and io.ErrUnexpectedEOF, which a decoder returns too, spend attempts unless they came
	// from an HTTP request.
	Classifier func(error) core.Class
	// RetryPause is [Result.After] for a message after its first failure, because most brokers
	// deliver a rejected message again at once. The pause doubles with each further failure up to
	// MaxRetryPause, and a random part of up to half is taken off. Defaults: 100 ms, 10 s.
	// Negative: no pause, except after [ErrInTransaction]. Where messages are held for the pause,
	// MaxRetryPause must be shorter than the time that the broker waits for an acknowledgement.
	RetryPause    time.Duration
	MaxRetryPause time.Duration
	// OnlyNewer names handlers that skip an event that is older than one they have processed of the
	// same tenant, topic and key, because each event has the whole state. A skipped event stays
	// skipped when it is delivered again. An event that failed, and was overtaken by a newer one
	// before it was processed, is skipped too. Events are ordered by KeySeq within a
	// [Message.PartitionKey]; events without the two are processed. An event that the outbox
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
	// CleanupInterval is how often rows that are older than Retention are deleted: by Run, or, if
	// nobody calls Run, while messages are processed. Default: 10 minutes.
	CleanupInterval time.Duration
	// Archive gets processed and discarded events before Cleanup deletes them, at most
	// 100 at once. If it returns an error or panics, they stay, Cleanup returns the
	// error, and the next cleanup begins with them. Events may come again: after a crash, and if
	// two processes clean up at once. An archive must recognise them by their Key. It must return
	// when ctx ends, a minute after the call at the latest. A call that has not returned a second
	// later is abandoned, and no other call begins until it returns. Every process that cleans up
	// needs the same Archive. The keys of OnlyNewer are not archived. Store must be an Archiver, as
	// a sqlinbox.Store is. Default: none.
	Archive func(ctx context.Context, events []ArchivedEvent) error

	// Observer has callbacks for metrics, one for each kind of result. Default: none.
	Observer *Observer
	// Tracer is called around the processing of each message, for traces. Module oteloutbox makes
	// one. Default: none.
	Tracer *Tracer
	// Logger gets a line for each failed and each dead event. The level is Debug where the
	// message's context was canceled because the consumer stops. Default: core.DefaultLogger,
	// warnings and errors to slog.Default(). To silence it: slog.New(slog.DiscardHandler).
	Logger *slog.Logger
}

// Validate reports every problem of c at once.
func (c Config) Validate() error {
	c.Transactor = c.transactor()
	bad := problems.List{Of: "inbox: Config."}
	consumer := Key{Consumer: c.Consumer, Handler: "h", EventID: "e"}.Validate()
	bad.If(c.Consumer == "", "Consumer is empty: choose a name and keep it")
	bad.If(c.Consumer != "" && consumer != nil, "Consumer: %w", consumer)
	transactor := core.CheckTransactor(c.Transactor)
	bad.If(transactor != nil, "Transactor: %w", transactor)
	bad.If(isNil(c.Store), "Store is nil: use sqlinbox.New")
	_, archives := c.Store.(Archiver)
	bad.If(c.Archive != nil && !isNil(c.Store) && !archives,
		"Archive needs a Store that is an Archiver, and a %T is none", c.Store)
	bad.If(slices.Contains(c.OnlyNewer, ""), "OnlyNewer has an empty name")
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"BrokerRetention", c.BrokerRetention},
		{"ReplayWindow", c.ReplayWindow},
		{"CleanupInterval", c.CleanupInterval},
	} {
		bad.If(d.value < 0, "%s %s is negative", d.name, d.value)
	}
	handler := textcheck.NameProblem(c.Handler, 128, false)
	bad.If(handler != "", "Handler %s", handler)
	bad.Add(c.checkPauses("Config"))
	bad.If(c.Retention > 0 && c.BrokerRetention <= 0,
		"BrokerRetention is needed with Retention: how long can the broker deliver a message?")
	bad.If(c.Retention > 0 && c.BrokerRetention > 0 && c.Retention <= max(c.BrokerRetention, c.ReplayWindow),
		"Retention %s is not longer than BrokerRetention %s and ReplayWindow %s: a message would be processed "+
			"again after its id was deleted", c.Retention, c.BrokerRetention, c.ReplayWindow)
	return bad.Err()
}

func (c Config) checkPauses(name string) error {
	switch {
	case c.MaxRetryPause < 0:
		return fmt.Errorf("inbox: %s.MaxRetryPause %s is negative: a negative RetryPause switches pauses off", name,
			c.MaxRetryPause)
	case c.RetryPause > c.MaxRetryPause && c.MaxRetryPause > 0:
		return fmt.Errorf("inbox: %s.RetryPause %s is longer than MaxRetryPause %s", name, c.RetryPause,
			c.MaxRetryPause)
	}
	return nil
}

func (c Config) transactor() core.Transactor {
	if s, ok := c.Store.(interface{ Transactor() core.Transactor }); ok && c.Transactor == nil && !isNil(s) {
		return s.Transactor()
	}
	return c.Transactor
}

func (c Config) withDefaults() Config {
	c.Transactor = c.transactor()
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.MinAge = cmp.Or(c.MinAge, 5*time.Minute)
	if c.Classifier == nil {
		c.Classifier = classify
	}
	c.MaxRetryPause = cmp.Or(c.MaxRetryPause, max(defaultMaxRetryPause, c.RetryPause))
	c.RetryPause = cmp.Or(c.RetryPause, min(defaultRetryPause, c.MaxRetryPause))
	if c.RetryPause < 0 {
		c.RetryPause, c.MaxRetryPause = 0, 0
	}
	if c.Retention == 0 {
		c.Retention = max(defaultRetention, 2*max(c.BrokerRetention, c.ReplayWindow))
	}
	c.CleanupInterval = cmp.Or(c.CleanupInterval, 10*time.Minute)
	if c.EventID == nil {
		c.EventID = MessageID
	}
	if c.Tenant == nil {
		c.Tenant = func(msg Message) string { return msg.Headers[core.HeaderTenantID] }
	}
	c.Logger = cmp.Or(c.Logger, core.DefaultLogger()).With("component", "inbox", "consumer", c.Consumer)
	return c
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
