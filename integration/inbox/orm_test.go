package inbox_test

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// inboxORMs open each ORM on a database.
var inboxORMs = map[string]func(t *testing.T, db testdb.DB) inboxORM{
	"sql": func(t *testing.T, db testdb.DB) inboxORM { t.Helper(); return inboxSQL(db.Open(t), db.Dialect) },
	"gorm": func(t *testing.T, db testdb.DB) inboxORM {
		t.Helper()
		g, err := gorm.Open(adapters.GORMDialector(db, db.Open(t)), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		return inboxORM{transactor: gormoutbox.Transactor(g), exec: func(ctx context.Context, query string) error {
			tx, err := gormoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			return tx.Exec(query).Error
		}}
	},
	adapters.NativePGX: func(t *testing.T, db testdb.DB) inboxORM {
		t.Helper()
		pool := adapters.OpenPGX(t, db, nil)
		return inboxORM{transactor: pgxoutbox.Transactor(pool), exec: func(ctx context.Context, query string) error {
			tx, err := pgxoutbox.FromContext(ctx)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, query)
			return err
		}}
	},
	"bun": func(t *testing.T, db testdb.DB) inboxORM {
		t.Helper()
		return inboxBun(adapters.OpenBun(t, db, adapters.BunWay{}))
	},
	"ent": func(t *testing.T, db testdb.DB) inboxORM {
		t.Helper()
		var drv dialect.Driver = entsql.OpenDB(adapters.EntDialect(db), db.Open(t))
		ob, err := entoutbox.New(drv, entoutbox.Config{Outbox: fixture.NewOutbox(t, db, core.Config{})})
		fixture.NoError(t, err)
		client := entclient.NewClient(entclient.Driver(ob.Driver()))
		return inboxORM{
			transactor: entoutbox.Transactor(client.Tx),
			exec: func(ctx context.Context, query string) error {
				tx, err := entoutbox.FromContext[*entclient.Tx](ctx)
				if err != nil {
					return err
				}
				_, err = tx.ExecContext(ctx, query)
				return err
			},
		}
	},
}

// With every ORM on every database, the inbox row, the effects in the handler's transaction and the
// produced event commit together or not at all, once.
func TestInboxWithEveryORM(t *testing.T) {
	t.Parallel()
	for name, open := range inboxORMs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapters.EachDatabase(t, name, func(t *testing.T, db testdb.DB) {
				if db.Dialect == core.SQLite {
					db.DSN += "&_pragma=foreign_keys(1)" // Ent requires it
				}
				w := newInboxWorld(t, db, open(t, db))
				_, outbox := w.inboxOutbox()
				w.in.opts = append(w.in.opts, inbox.Publisher(outbox))
				calls := 0
				ps := inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
					r.AddMiddleware(w.in.Middleware)
					r.AddHandler("handler", "orders", ps, "invoices", refusingPublisher{t},
						func(msg *message.Message) ([]*message.Message, error) {
							if calls++; calls == 2 {
								return nil, errors.New("before anything")
							}
							if err := w.apply(msg, "handled"); err != nil {
								return nil, err
							}
							if calls == 1 {
								return nil, errors.New("after the effect")
							}
							return message.Messages{inboxMessage("01926b3c-7a5e-7000-8000-00000000000" +
								msg.Metadata.Get("n"))}, nil
						})
				})
				for range 3 {
					fixture.NoError(t, ps.Publish("orders", inboxMessage("e", "n", "1")))
				}
				fixture.NoError(t, ps.Publish("orders", inboxMessage("f", "n", "2")))
				w.wantEffects(map[string]int{"e handled": 1, "f handled": 1})
				w.hears("failed", 2)
				w.hears("duplicate", 2)
				ids, err := adapters.StoredEvents(w.pool)(t.Context())
				fixture.Check(t, err == nil && len(ids) == 2, "events in the outbox: %v, %v", ids, err)
				if status, attempts := w.status("e"); status != 2 || attempts != 3 {
					t.Errorf("status %d after %d attempts", status, attempts)
				}
			})
		})
	}
}

// refusingPublisher is the Router's publisher. It must not get a message.
type refusingPublisher struct{ t *testing.T }

func (p refusingPublisher) Publish(topic string, _ ...*message.Message) error {
	p.t.Errorf("the Router published to %s", topic)
	return nil
}

func (refusingPublisher) Close() error { return nil }

// If the outbox refuses a produced event, the handler's writes are rolled back.
func TestInboxProducedEventIsRefused(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		_, outbox := w.inboxOutbox()
		w.in = w.another(func(c *coreinbox.Config) { c.MaxAttempts = 1 })
		w.in.opts = []inbox.Option{inbox.Publisher(outbox), inbox.AckDead()}
		ps := inboxRouter(t, func(r *message.Router, ps *gochannel.GoChannel) {
			r.AddMiddleware(w.in.Middleware)
			r.AddHandler("handler", "orders", ps, "invoices", refusingPublisher{t},
				func(msg *message.Message) ([]*message.Message, error) {
					return message.Messages{inboxMessage("not an id of an event")}, w.apply(msg, "handled")
				})
		})
		fixture.NoError(t, ps.Publish("orders", inboxMessage("e")))
		w.wantEffects(map[string]int{})
		if status, _ := w.status("e"); status != 4 {
			t.Errorf("status %d", status)
		}
	})
}

// A batch works through every ORM. It also works through Bun's own driver, to which it sends arrays
// on PostgreSQL.
func TestInboxBatchWithEveryORM(t *testing.T) {
	t.Parallel()
	orms := maps.Clone(inboxORMs)
	orms["bun and pgdriver"] = func(t *testing.T, db testdb.DB) inboxORM {
		t.Helper()
		return inboxBun(adapters.OpenBun(t, db, adapters.BunWay{PGDriver: db.Dialect == core.Postgres}))
	}
	for name, open := range orms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapters.EachDatabase(t, name, func(t *testing.T, db testdb.DB) {
				if db.Dialect == core.SQLite {
					db.DSN += "&_pragma=foreign_keys(1)"
				}
				w := newInboxWorld(t, db, open(t, db), named)
				fn := func(_ context.Context, fresh []*message.Message) error {
					for _, msg := range fresh {
						if err := w.apply(msg, "batch"); err != nil {
							return err
						}
					}
					return nil
				}
				for _, ids := range [][]string{{"b", "a", `"{`, "a"}, {"a", "c", `"{`}} {
					var msgs []*message.Message
					for n, id := range ids {
						msgs = append(msgs, inboxMessage(id, "key_seq", "7", "partition_key", id, "schema_version",
							strconv.Itoa(n)))
					}
					for _, err := range w.in.ProcessBatch(t.Context(), msgs, fn) {
						fixture.NoError(t, err)
					}
				}
				w.wantEffects(map[string]int{"a batch": 1, "b batch": 1, "c batch": 1, `"{ batch`: 1})
			})
		})
	}
}

func inboxBun(db *bun.DB) inboxORM {
	return inboxORM{transactor: bunoutbox.Transactor(db), exec: func(ctx context.Context, query string) error {
		tx, err := bunoutbox.FromContext(ctx)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, query)
		return err
	}}
}
