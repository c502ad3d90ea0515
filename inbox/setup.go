package inbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	engine "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Middleware makes the handlers of a Router idempotent, in one statement:
//
//	router.AddMiddleware(inbox.Middleware(gormoutbox.Transactor(db), "billing", inbox.CreateTables()))
//
// t is the Transactor of the ORM: gormoutbox.Transactor(db), bunoutbox.Transactor(db),
// entoutbox.Transactor(client.Tx). For database/sql there is SQL. consumer is Config.Consumer:
// choose it once. Settings without an option have the defaults of Config, with three differences.
// Without Poison no message is given up: a message that keeps failing is tried again until it
// succeeds. The logger is slog.Default(). Middleware builds the chain itself:
// Poison(Retry(Inbox(handler))).
//
// Middleware returns without a query. While the database cannot be reached, or its tables cannot be
// created, messages fail, the reason is logged, and they are tried again. Like Router.AddHandler it
// panics when an argument is wrong: an empty consumer, a nil Transactor, options that contradict
// each other. New and Chain return errors instead.
func Middleware(t core.Transactor, consumer string, opts ...Option) message.HandlerMiddleware {
	o := newOptions(opts)
	if o.ttl != 0 {
		o.bad("TTL is for Leased")
	}
	lazy := &lazyInbox{t: t, create: o.createTables}
	cfg := Config{Consumer: consumer, Publisher: o.publisher, Logger: slog.Default()}
	cfg.Transactor, cfg.Store = lazy, lazy
	if err := core.CheckTransactor(t); err != nil {
		o.bad("%w", err)
	}
	for _, set := range o.configure {
		set(&cfg)
	}
	if o.poison == nil && cfg.OnDead == ReturnDead {
		if cfg.MaxAttempts > 0 {
			o.bad("Config.MaxAttempts is %d, and nobody takes what is given up: add Poison, or set Config.OnDead to "+
				"AckDead", cfg.MaxAttempts)
		}
		cfg.MaxAttempts = -1
	}
	in, err := New(cfg)
	o.join(err)
	m := o.chain("Middleware", consumer, in)
	for _, into := range o.into {
		*into = in
	}
	return m
}

// SQL is Middleware for database/sql. The handler finds its transaction by
// sqltx.FromContext(msg.Context()).
//
//	router.AddMiddleware(inbox.SQL(db, "billing", inbox.CreateTables()))
func SQL(db *sql.DB, consumer string, opts ...Option) message.HandlerMiddleware {
	return Middleware(sqltx.NewTransactor(db, ""), consumer, opts...)
}

// Leased is Middleware without a transaction, on a lease in any store of package once: see
// AtLeastOnce. For Redis there is redisonce.Middleware. It does not take the options CreateTables,
// Configure and Into; NewAtLeastOnce has more settings.
func Leased(store once.Store, consumer string, opts ...Option) message.HandlerMiddleware {
	o := newOptions(opts)
	if o.createTables {
		o.bad("CreateTables is for Middleware and SQL")
	}
	if len(o.configure) > 0 {
		o.bad("Configure is for Middleware and SQL: use NewAtLeastOnce and Chain")
	}
	if len(o.into) > 0 {
		o.bad("Into is for Middleware and SQL: a lease has no table")
	}
	o.ttl = cmp.Or(o.ttl, DefaultTTL)
	runner, err := once.New(once.Config{Store: store, TTL: o.ttl})
	o.join(err)
	cfg := AtLeastOnceConfig{Consumer: consumer, Runner: runner, Publisher: o.publisher, Logger: slog.Default()}
	if o.poison == nil {
		cfg.MaxAttempts = -1
	}
	a, err := NewAtLeastOnce(cfg)
	o.join(err)
	return o.chain("Leased", consumer, a)
}

// DefaultTTL is how long Leased remembers events that are done.
const DefaultTTL = 7 * 24 * time.Hour

// Option is a setting of Middleware, SQL, Leased and redisonce.Middleware.
type Option func(*options)

type options struct {
	createTables bool
	poison       *poisonQueue
	retry        message.HandlerMiddleware
	publisher    message.Publisher
	ttl          time.Duration
	configure    []func(*Config)
	into         []**Inbox
	problems     []error
}

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

// chain builds the middleware, or panics with all problems.
func (o *options) chain(name, consumer string, d Deduplicator) message.HandlerMiddleware {
	if err := errors.Join(o.problems...); err != nil {
		//nolint:forbidigo // it panics at the start of the program, like Router.AddHandler; New returns an error
		panic(fmt.Sprintf("inbox.%s: %v", name, err))
	}
	c := ChainConfig{Inbox: d, Retry: o.retry}
	if o.poison != nil {
		o.poison.consumer = consumer
		c.Poison = o.poison.middleware
	}
	return c.chain
}

// CreateTables creates the tables of the inbox, or brings them up to date, before the first message
// is processed, as Migrate of a sqlinbox.Store does. Without this option the tables must exist.
func CreateTables() Option { return func(o *options) { o.createTables = true } }

// Poison sends messages that can never be processed (Final) to a topic, with their payload and the
// metadata of Watermill's PoisonQueue, and acknowledges them. With it, messages are given up after
// Config.MaxAttempts and Config.MinAge. A message that cannot be sent there is rejected and comes
// again.
func Poison(pub message.Publisher, topic string) Option {
	return func(o *options) {
		if isNil(pub) || topic == "" {
			o.bad("Poison needs a publisher and a topic")
			return
		}
		o.poison = &poisonQueue{pub: pub, topic: topic}
	}
}

// Retry puts a middleware such as Watermill's Retry between Poison and the inbox. The inbox works
// without one: it pauses, and the broker delivers again.
func Retry(m message.HandlerMiddleware) Option {
	return func(o *options) {
		if m == nil {
			o.bad("Retry was given nil")
		}
		o.retry = m
	}
}

// Publisher publishes the messages that handlers return: Config.Publisher, or the one of
// AtLeastOnceConfig.
func Publisher(pub message.Publisher) Option { return func(o *options) { o.publisher = pub } }

// TTL is how long Leased remembers events that are done. It must be longer than the broker, its
// poison queue and any replay can deliver a message. Default: DefaultTTL.
func TTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// Configure changes any setting in the Config of Middleware and SQL, before the Config is checked.
func Configure(set func(*Config)) Option {
	return func(o *options) {
		if set == nil {
			o.bad("Configure was given nil")
			return
		}
		o.configure = append(o.configure, set)
	}
}

// Into stores the Inbox of Middleware or SQL in *in, which lists, redrives, discards and releases
// events, and cleans up:
//
//	var in *inbox.Inbox
//	router.AddMiddleware(inbox.Middleware(t, "billing", inbox.Into(&in)))
//	dead, err := in.ListDead(ctx, inbox.DeadQuery{})
func Into(in **Inbox) Option {
	return func(o *options) {
		if in == nil {
			o.bad("Into was given nil")
			return
		}
		o.into = append(o.into, in)
	}
}

// lazyInbox is a Transactor and its Store. It learns the dialect of the database from the first
// transaction.
type lazyInbox struct {
	t      core.Transactor
	create bool

	mu    sync.Mutex
	store *sqlinbox.Store
}

var _ Store = (*lazyInbox)(nil)

var errProbe = errors.New("inbox: nothing to commit")

// ready returns the store. One caller at a time makes it. If that fails, the next caller tries
// again.
func (l *lazyInbox) ready(ctx context.Context) (*sqlinbox.Store, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.store != nil {
		return l.store, nil
	}
	var d core.Dialect
	err := l.t.RunInTx(ctx, func(_ context.Context, tx core.Tx) error {
		d = tx.Dialect()
		return errProbe
	})
	if err != nil && !errors.Is(err, errProbe) {
		return nil, err
	}
	store, err := sqlinbox.On(l.t, sqlinbox.Config{Dialect: d})
	if err != nil {
		return nil, err
	}
	if l.create {
		// The time of one message may be too short for it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := store.Migrate(ctx); err != nil {
			return nil, fmt.Errorf("inbox: create tables: %w", err)
		}
	}
	l.store = store
	return store, nil
}

// RunInTx implements core.Transactor.
func (l *lazyInbox) RunInTx(ctx context.Context, fn func(context.Context, core.Tx) error) error {
	if _, err := l.ready(ctx); err != nil {
		return err
	}
	return l.t.RunInTx(ctx, fn)
}

// Register implements Store.
func (l *lazyInbox) Register(ctx context.Context, r engine.Registration) ([]engine.Registration, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return nil, err
	}
	return s.Register(ctx, r)
}

// Begin implements Store. RunInTx has made the store ready.
func (l *lazyInbox) Begin(ctx context.Context, tx core.Tx, e Event) (engine.State, int, error) {
	return l.made().Begin(ctx, tx, e)
}

// BeginBatch implements Store.
func (l *lazyInbox) BeginBatch(ctx context.Context, tx core.Tx, events []Event) ([]engine.State, error) {
	return l.made().BeginBatch(ctx, tx, events)
}

// Advance implements Store.
func (l *lazyInbox) Advance(ctx context.Context, tx core.Tx, e Event) (newer bool, err error) {
	return l.made().Advance(ctx, tx, e)
}

// Fail implements Store.
func (l *lazyInbox) Fail(ctx context.Context, f engine.Failure) (engine.State, int, error) {
	return l.made().Fail(ctx, f)
}

// ListDead implements Store.
func (l *lazyInbox) ListDead(ctx context.Context, q engine.DeadQuery) ([]DeadEvent, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return nil, err
	}
	return s.ListDead(ctx, q)
}

// Redrive implements Store.
func (l *lazyInbox) Redrive(ctx context.Context, keys []Key, actor, reason string) (int, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return 0, err
	}
	return s.Redrive(ctx, keys, actor, reason)
}

// Discard implements Store.
func (l *lazyInbox) Discard(ctx context.Context, keys []Key, actor, reason string) (int, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return 0, err
	}
	return s.Discard(ctx, keys, actor, reason)
}

// Cleanup implements Store.
func (l *lazyInbox) Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (int, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return 0, err
	}
	return s.Cleanup(ctx, consumer, keep, limit)
}

// Archive implements Archiver.
func (l *lazyInbox) Archive(ctx context.Context, consumer string, keep time.Duration, limit int,
	fn func(ctx context.Context, events []ArchivedEvent) error,
) (int, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return 0, err
	}
	return s.Archive(ctx, consumer, keep, limit, fn)
}

// CleanupKeys implements Store.
func (l *lazyInbox) CleanupKeys(ctx context.Context, consumer string, keep time.Duration, limit int) (int, error) {
	s, err := l.ready(ctx)
	if err != nil {
		return 0, err
	}
	return s.CleanupKeys(ctx, consumer, keep, limit)
}

// made returns the store. RunInTx has set it before its transaction begins.
func (l *lazyInbox) made() *sqlinbox.Store {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.store
}
