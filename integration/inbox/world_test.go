package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// wired is an inbox for a Router.
type wired struct {
	*coreinbox.Inbox
	opts []inbox.Option
}

func (w *wired) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return inbox.Wrap(w.Inbox, w.opts...)(h)
}

func (w *wired) ProcessBatch(ctx context.Context, msgs []*message.Message,
	fn func(ctx context.Context, fresh []*message.Message) error,
) []error {
	return inbox.ProcessBatch(ctx, w.Inbox, msgs, fn)
}

// inboxWorld is a database with an inbox and a table of effects, in which each effect of each event
// is one row.
type inboxWorld struct {
	t    *testing.T
	db   testdb.DB
	pool *sql.DB
	orm  inboxORM
	in   *wired

	mu    sync.Mutex
	heard map[string]int
}

// inboxORM is an ORM as handlers use it: its transactions, and SQL in the transaction of a context.
type inboxORM struct {
	transactor core.Transactor
	exec       func(ctx context.Context, query string) error
}

func inboxSQL(pool *sql.DB, d core.Dialect) inboxORM {
	return inboxORM{
		transactor: sqltx.NewTransactor(pool, d),
		exec: func(ctx context.Context, query string) error {
			tx, err := sqltx.FromContext(ctx)
			if err != nil {
				return err
			}
			_, err = tx.ExecContext(ctx, query)
			return err
		},
	}
}

// eachInbox runs fn on each database, over database/sql.
func eachInbox(t *testing.T, fn func(t *testing.T, w *inboxWorld), set ...func(*coreinbox.Config)) {
	t.Helper()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		fn(t, newInboxWorld(t, db, inboxSQL(db.Open(t), db.Dialect), set...))
	})
}

const inboxTables = "CREATE TABLE effects (event_id VARCHAR(255), what VARCHAR(64))"

func newInboxWorld(t *testing.T, db testdb.DB, orm inboxORM, set ...func(*coreinbox.Config)) *inboxWorld {
	t.Helper()
	w := &inboxWorld{t: t, db: db, pool: db.Open(t), orm: orm, heard: map[string]int{}}
	fixture.MustExec(t, w.pool, inboxTables)
	fixture.NewInboxStore(t, w.pool, sqlinbox.Config{Dialect: db.Dialect})
	w.in = w.another(set...)
	return w
}

// another makes an inbox of the same consumer, as a second process has it.
func (w *inboxWorld) another(set ...func(*coreinbox.Config)) *wired {
	w.t.Helper()
	store, err := sqlinbox.New(w.pool, sqlinbox.Config{Dialect: w.db.Dialect})
	fixture.NoError(w.t, err)
	hear := func(name string) func(coreinbox.Info) {
		return func(coreinbox.Info) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.heard[name]++
		}
	}
	cfg := coreinbox.Config{
		Consumer: "billing", Transactor: w.orm.transactor, Store: store, MinAge: -1,
		RetryPause: time.Millisecond, MaxRetryPause: time.Millisecond,
		Observer: &coreinbox.Observer{
			Processed: hear("processed"), Duplicate: hear("duplicate"), Stale: hear("stale"), Failed: hear("failed"),
			Dead: hear("dead"), InProgress: hear("in progress"),
		},
	}
	for _, fn := range set {
		fn(&cfg)
	}
	in, err := coreinbox.New(cfg)
	fixture.NoError(w.t, err)
	return &wired{in, []inbox.Option{inbox.ReturnDead()}}
}

// apply writes an effect of the message in its transaction.
func (w *inboxWorld) apply(msg *message.Message, what string) error {
	return w.orm.exec(msg.Context(), fmt.Sprintf("INSERT INTO effects VALUES ('%s', '%s')",
		msg.Metadata.Get(core.HeaderEventID), what))
}

func (w *inboxWorld) handler(msg *message.Message) ([]*message.Message, error) {
	return nil, w.apply(msg, "handled")
}

// effects returns how often each event had each effect.
func (w *inboxWorld) effects() map[string]int {
	w.t.Helper()
	rows, err := w.pool.QueryContext(w.t.Context(), "SELECT event_id, what, COUNT(*) FROM effects GROUP BY "+
		"event_id, what")
	fixture.NoError(w.t, err)
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var id, what string
		var n int
		fixture.NoError(w.t, rows.Scan(&id, &what, &n))
		found[id+" "+what] = n
	}
	fixture.NoError(w.t, rows.Err())
	return found
}

func (w *inboxWorld) wantEffects(want map[string]int) {
	w.t.Helper()
	if got := w.effects(); !maps.Equal(got, want) {
		w.t.Errorf("effects are %v, want %v", got, want)
	}
}

func (w *inboxWorld) hears(name string, want int) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := w.heard[name]; got != want {
		w.t.Errorf("%s %d times, want %d (all: %v)", name, got, want, w.heard)
	}
}

// status returns the status and attempts of an event in the tables: 2 for an event that was
// processed, or -1 if no handler has seen the event.
func (w *inboxWorld) status(id string) (status, attempts int) {
	w.t.Helper()
	err := w.pool.QueryRowContext(w.t.Context(), "SELECT CASE WHEN s.processed_at IS NULL THEN f.status "+
		"ELSE 2 END, COALESCE(f.attempts, s.attempts) FROM inbox_seen s LEFT JOIN inbox_failure f "+
		"ON f.event_id = s.event_id WHERE s.event_id = '"+id+"'").Scan(&status, &attempts)
	if errors.Is(err, sql.ErrNoRows) {
		return -1, 0
	}
	fixture.NoError(w.t, err)
	return status, attempts
}

// park lets an event fail until it is dead. On a slow machine a failure may not be recorded, and
// the message then comes again.
func park(t *testing.T, in *wired, reason error, id string, metadata ...string) {
	t.Helper()
	h := in.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, core.Permanent(reason) })
	fixture.Await(t, "the event is dead", func() bool {
		_, err := h(inboxMessage(id, metadata...))
		return errors.Is(err, coreinbox.ErrDead)
	})
}

func inboxMessage(id string, metadata ...string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), nil)
	msg.Metadata.Set(core.HeaderEventID, id)
	for i := 0; i < len(metadata); i += 2 {
		msg.Metadata.Set(metadata[i], metadata[i+1])
	}
	return msg
}

// inboxRouter runs a Router on a Go channel, whose Publish returns when the message was
// acknowledged.
func inboxRouter(t *testing.T, add func(r *message.Router, ps *gochannel.GoChannel)) *gochannel.GoChannel {
	t.Helper()
	ps := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	fixture.NoError(t, err)
	add(r, ps)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	<-r.Running()
	t.Cleanup(func() {
		fixture.NoError(t, r.Close())
		fixture.NoError(t, <-ended)
		_ = ps.Close()
	})
	return ps
}

// consume registers a handler of "orders" behind middleware.
func consume(h message.HandlerFunc, m ...message.HandlerMiddleware) func(*message.Router, *gochannel.GoChannel) {
	return func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(m...)
		r.AddConsumerHandler("handler", "orders", ps, func(msg *message.Message) error {
			_, err := h(msg)
			return err
		})
	}
}

// deadLetters is a poison queue.
type deadLetters struct {
	mu   sync.Mutex
	msgs []*message.Message
}

func (d *deadLetters) Publish(_ string, msgs ...*message.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range msgs {
		d.msgs = append(d.msgs, m.Copy())
	}
	return nil
}

func (*deadLetters) Close() error { return nil }

func (d *deadLetters) ids() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for _, m := range d.msgs {
		ids = append(ids, m.Metadata.Get(core.HeaderEventID))
	}
	return strings.Join(ids, " ")
}

func (d *deadLetters) poison(t *testing.T) message.HandlerMiddleware {
	t.Helper()
	m, err := middleware.PoisonQueueWithFilter(d, "poison", coreinbox.Final)
	fixture.NoError(t, err)
	return m
}

var fastRetry = middleware.Retry{
	MaxRetries: 3, InitialInterval: time.Millisecond, Multiplier: 1, ResetContextOnRetry: true,
	ShouldRetry: func(p middleware.RetryParams) bool { return !coreinbox.Final(p.Err) },
}

// chain is Poison(Retry(Inbox)) with the middleware of Watermill.
func (w *inboxWorld) chain(d *deadLetters) message.HandlerMiddleware {
	w.t.Helper()
	poison := d.poison(w.t)
	return func(h message.HandlerFunc) message.HandlerFunc {
		return poison(fastRetry.Middleware(w.in.Middleware(h)))
	}
}

// inboxDeadlock is the error with which a database says that a transaction is the victim of a
// deadlock.
func inboxDeadlock(d core.Dialect) error {
	switch d {
	case core.Postgres:
		return &pgconn.PgError{Code: "40P01", Message: "deadlock detected"}
	case core.MySQL:
		return &mysql.MySQLError{Number: 1213, Message: "Deadlock found when trying to get lock"}
	case core.SQLite:
	}
	return fmt.Errorf("%w: database is locked", core.ErrTxAborted)
}

// inboxOutbox returns an outbox in the world's database, and the publisher for the messages that
// handlers produce.
func (w *inboxWorld) inboxOutbox() (*core.Outbox, *watermillbridge.OutboxPublisher) {
	w.t.Helper()
	ob := fixture.NewOutbox(
		w.t,
		w.db,
		core.Config{
			Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error { return nil }),
			Relay:     relay.Config{},
		},
	)
	p, err := watermillbridge.NewOutboxPublisher(ob, watermillbridge.OutboxConfig{})
	fixture.NoError(w.t, err)
	return ob, p
}

// inboxCounted counts the calls of a handler.
func inboxCounted(n *atomic.Int64, h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		n.Add(1)
		return h(msg)
	}
}
