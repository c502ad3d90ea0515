package inbox_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// One statement makes a plain Router an idempotent consumer, with every ORM on every database. Its
// tables are created, also by several processes at once. The effect happens once. A failed handler
// is rolled back. A message that can never be processed goes to the poison queue. Produced messages
// go to the outbox.
func TestInboxMiddleware(t *testing.T) {
	t.Parallel()
	orms := map[string]func(t *testing.T, db testdb.DB) inboxORM{
		"tracked sql": func(t *testing.T, db testdb.DB) inboxORM {
			t.Helper()
			db.Wrap = func(c driver.Connector) driver.Connector { return sqltx.Connector(c, db.Dialect) }
			return inboxSQL(db.Open(t), db.Dialect)
		},
	}
	maps.Copy(orms, inboxORMs)
	for name, open := range orms {
		t.Run(name, func(t *testing.T) {
			each := testdb.Every
			if name == adapters.NativePGX {
				each = testdb.EachPostgres
			}
			each(t, func(t *testing.T, db testdb.DB) {
				if db.Dialect == core.SQLite {
					db.DSN += "&_pragma=foreign_keys(1)"
				}
				w := &inboxWorld{t: t, db: db, pool: db.Open(t), orm: open(t, db), heard: map[string]int{}}
				fixture.MustExec(t, w.pool, inboxTables)
				_, outbox := w.inboxOutbox()
				var dlt deadLetters
				processes := make([]message.HandlerMiddleware, 3)
				for n := range processes {
					store, err := sqlinbox.On(w.orm.transactor, sqlinbox.Config{AutoCreate: true})
					fixture.NoError(t, err)
					in, err := coreinbox.New(coreinbox.Config{
						Consumer: "billing", Store: store, MaxAttempts: 2, MinAge: -1, RetryPause: -1,
					})
					fixture.NoError(t, err)
					processes[n] = inbox.Wrap(in, inbox.Poison(&dlt, "poison"), inbox.Publisher(outbox))
				}
				var failed atomic.Bool
				h := func(msg *message.Message) ([]*message.Message, error) {
					if err := w.apply(msg, "handled"); err != nil {
						return nil, err
					}
					switch id := msg.Metadata.Get(core.HeaderEventID); {
					case id == "bad":
						return nil, errors.New("always")
					case id == "once" && failed.CompareAndSwap(false, true):
						return nil, errors.New("the first time")
					}
					return message.Messages{inboxMessage("01926b3c-7a5e-7000-8000-00000000000" +
						msg.Metadata.Get("n"))}, nil
				}
				pubsubs := make([]*gochannel.GoChannel, len(processes))
				for n, m := range processes {
					pubsubs[n] = inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
						r.AddMiddleware(m)
						r.AddHandler("handler", "orders", ps, "invoices", refusingPublisher{t}, h)
					})
				}
				var wg sync.WaitGroup
				for _, ps := range pubsubs { // all processes get their first messages at once
					wg.Go(func() {
						for n, id := range []string{"good", "once", "bad"} {
							if err := ps.Publish("orders", inboxMessage(id, "n", fmt.Sprint(n))); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				w.wantEffects(map[string]int{"good handled": 1, "once handled": 1})
				if got := dlt.ids(); got != "bad bad bad" {
					t.Errorf("in the poison queue: %q", got)
				}
				dead := dlt.msgs[0].Metadata
				if dead[middleware.PoisonedTopicKey] != "orders" || dead[middleware.PoisonedHandlerKey] != "handler" ||
					!strings.Contains(dead[middleware.ReasonForPoisonedKey], "dead") {
					t.Errorf("metadata %v", dead)
				}
				if ids, err := adapters.StoredEvents(w.pool)(t.Context()); err != nil || len(ids) != 2 {
					t.Errorf("events in the outbox: %v, %v", ids, err)
				}
				// The middleware has created the same tables as Migrate.
				store, err := sqlinbox.New(w.pool, sqlinbox.Config{Dialect: db.Dialect})
				fixture.NoError(t, err)
				fixture.NoError(t, store.Check(t.Context()))
				fixture.NoError(t, store.Migrate(t.Context()))
				if status, attempts := w.status("bad"); status != 4 || attempts < 2 {
					t.Errorf("the bad one: status %d after %d attempts", status, attempts)
				}
			})
		})
	}
}

// The error of each message and every line of the log name the missing tables. When the tables
// exist, the messages are processed.
func TestInboxMiddlewareWithoutTables(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w := &inboxWorld{t: t, db: db, pool: db.Open(t), orm: inboxSQL(db.Open(t), db.Dialect), heard: map[string]int{}}
		fixture.MustExec(t, w.pool, inboxTables)
		store, err := sqlinbox.On(sqltx.NewTransactor(w.pool, ""), sqlinbox.Config{})
		fixture.NoError(t, err)
		in, err := coreinbox.New(coreinbox.Config{
			Consumer: "billing", Handler: "h", Store: store, MinAge: -1, RetryPause: -1,
		})
		fixture.NoError(t, err)
		h := inbox.Wrap(in, inbox.ReturnDead())(w.handler)
		if _, err := h(inboxMessage("e")); err == nil ||
			!strings.Contains(err.Error(), "with Migrate of the sqlinbox.Store") || coreinbox.Final(err) {
			t.Errorf("without tables: %v", err)
		}
		fixture.NewInboxStore(t, w.pool, sqlinbox.Config{Dialect: db.Dialect})
		for range 2 {
			_, err := h(inboxMessage("e"))
			fixture.NoError(t, err)
		}
		w.wantEffects(map[string]int{"e handled": 1})
	})
}

// The one statement works for Redis too.
func TestRedisMiddleware(t *testing.T) {
	t.Parallel()
	client, _ := fixture.RedisClient(t)
	consumer := fmt.Sprintf("billing-%d", time.Now().UnixNano())
	var dlt deadLetters
	var runs atomic.Int64
	ps := inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
		r.AddMiddleware(redisonce.Middleware(client, consumer, inbox.Poison(&dlt, "poison"), inbox.TTL(time.Minute)))
		r.AddConsumerHandler("handler", "orders", ps, func(msg *message.Message) error {
			if runs.Add(1); msg.Metadata.Get(core.HeaderEventID) == "bad" {
				return core.Permanent(errOnce)
			}
			return nil
		})
	})
	for range 3 {
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
	}
	fixture.NoError(t, ps.Publish("orders", inboxMessage("bad")))
	if runs.Load() != 2 || dlt.ids() != "bad" {
		t.Errorf("%d runs, poison queue %q", runs.Load(), dlt.ids())
	}
}

// Watermill's Deduplicator works on Redis. If many callers come at once with a key, one of them is
// told that the key is new. The key is forgotten at the end of the window.
func TestRedisExpiringKeys(t *testing.T) {
	t.Parallel()
	client, prefix := fixture.RedisClient(t)
	var keys middleware.ExpiringKeyRepository
	keys, err := redisonce.NewExpiringKeys(client, time.Hour, prefix)
	fixture.NoError(t, err)
	var fresh atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			duplicate, err := keys.IsDuplicate(t.Context(), "k{1}")
			if err != nil {
				t.Error(err)
			}
			if !duplicate {
				fresh.Add(1)
			}
		})
	}
	wg.Wait()
	if fresh.Load() != 1 {
		t.Errorf("%d callers were told that the key is new", fresh.Load())
	}
	if duplicate, err := keys.IsDuplicate(t.Context(), "k%7B1%7D"); duplicate || err != nil {
		t.Errorf("another key: %t, %v", duplicate, err)
	}
	brief, err := redisonce.NewExpiringKeys(client, 500*time.Millisecond, prefix)
	fixture.NoError(t, err)
	if duplicate, err := brief.IsDuplicate(t.Context(), "brief"); duplicate || err != nil {
		t.Errorf("a new key: %t, %v", duplicate, err)
	}
	fixture.Eventually(t.Context(), t, "the end of the window", func() bool {
		duplicate, err := brief.IsDuplicate(t.Context(), "brief")
		return err == nil && !duplicate
	})
	for _, bad := range []struct {
		window time.Duration
		prefix string
	}{{0, ""}, {time.Second, "{"}} {
		if _, err := redisonce.NewExpiringKeys(client, bad.window, bad.prefix); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}
