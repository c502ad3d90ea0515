package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// causeService is a service that uses an ORM: an outbox and an inbox in a database of its own.
type causeService struct {
	t          *testing.T
	transactor core.Transactor
	outbox     *core.Outbox
	// save stores a model in the transaction of in, in a statement with the context at. The model
	// has recorded the event "recorded", if the ORM's models record, and On derives "derived".
	save   func(in, at context.Context) error
	events int // of save

	in     *inbox.Inbox
	api    *ops.API
	broker *outboxtest.Publisher
	sent   int // of the deliveries to the broker that were handed on
}

type gCauseOrder struct {
	ID            int64
	Name          string
	core.Recorder `gorm:"-" json:"-"`
}

type bCauseOrder struct {
	bun.BaseModel `bun:"table:cause_orders"`

	ID            int64 `bun:",pk,autoincrement"`
	Name          string
	core.Recorder `bun:"-" json:"-"`
}

// causeORMs open a service with each ORM.
var causeORMs = map[string]func(t *testing.T, db testdb.DB, s *causeService){
	"gorm": func(t *testing.T, db testdb.DB, s *causeService) {
		t.Helper()
		g, err := gorm.Open(adapters.GORMDialector(db, db.Open(t)), &gorm.Config{Logger: logger.Discard})
		fixture.NoError(t, err)
		fixture.NoError(t, g.AutoMigrate(&gCauseOrder{}))
		ob := gormoutbox.Plugin(gormoutbox.Config{Publisher: s.broker, AutoCreate: true})
		fixture.NoError(t, g.Use(ob))
		gormoutbox.On(ob, func(core.Op, *gCauseOrder) []core.Event { return []core.Event{{Type: "derived"}} })
		s.transactor, s.outbox, s.events = gormoutbox.Transactor(g), ob.Outbox(), 2
		s.save = func(in, at context.Context) error {
			tx, err := gormoutbox.FromContext(in)
			if err != nil {
				return err
			}
			o := &gCauseOrder{Name: "a"}
			o.Record(core.Event{Type: "recorded"})
			return tx.WithContext(at).Create(o).Error
		}
	},
	"bun": func(t *testing.T, db testdb.DB, s *causeService) {
		t.Helper()
		b := adapters.OpenBun(t, db, adapters.BunWay{})
		_, err := b.NewCreateTable().Model((*bCauseOrder)(nil)).Exec(t.Context())
		fixture.NoError(t, err)
		ob, err := bunoutbox.New(b, bunoutbox.Config{Publisher: s.broker, AutoCreate: true})
		fixture.NoError(t, err)
		b = b.WithQueryHook(ob.Hook())
		bunoutbox.On(ob, func(core.Op, *bCauseOrder) []core.Event { return []core.Event{{Type: "derived"}} })
		s.transactor, s.outbox, s.events = bunoutbox.Transactor(b), ob.Outbox(), 2
		s.save = func(in, at context.Context) error {
			tx, err := bunoutbox.FromContext(in)
			if err != nil {
				return err
			}
			o := &bCauseOrder{Name: "a"}
			o.Record(core.Event{Type: "recorded"})
			_, err = tx.NewInsert().Model(o).Exec(at)
			return err
		}
	},
	// Its events wait and are sent together with COMMIT.
	adapters.NativePGX: func(t *testing.T, db testdb.DB, s *causeService) {
		t.Helper()
		pool := adapters.OpenPGX(t, db, nil)
		s.transactor, s.events = pgxoutbox.Transactor(pool), 2
		s.outbox = adapters.PGXOutbox(t, pool, core.Config{Publisher: s.broker, Relay: relay.Config{}})
		s.save = func(in, at context.Context) error {
			tx, ok := core.TxFromContext(in)
			if !ok {
				return core.ErrNoTransaction
			}
			for _, typ := range []string{"recorded", "derived"} {
				if _, err := s.outbox.Publish(at, tx, core.Event{Type: typ}); err != nil {
					return err
				}
			}
			return nil
		}
	},
	"ent": func(t *testing.T, db testdb.DB, s *causeService) {
		t.Helper()
		ob, err := entoutbox.New(entsql.OpenDB(adapters.EntDialect(db), db.Open(t)),
			entoutbox.Config{Publisher: s.broker, AutoCreate: true})
		fixture.NoError(t, err)
		entoutbox.On(ob, func(core.Op, *entclient.Order) []core.Event { return []core.Event{{Type: "derived"}} })
		client := entclient.NewClient(entclient.Driver(ob.Driver()))
		client.Use(ob.Hook())
		causeEnt <- struct{}{}
		err = client.Schema.Create(t.Context())
		<-causeEnt
		fixture.NoError(t, err)
		s.transactor, s.outbox, s.events = entoutbox.Transactor(client.Tx), ob.Outbox(), 1
		s.save = func(in, at context.Context) error {
			tx, err := entoutbox.FromContext[*entclient.Tx](in)
			if err != nil {
				return err
			}
			return tx.Order.Create().SetName(core.NewEventID()).Exec(at)
		}
	},
}

// causeEnt has room for one migration of Ent, which completes the generated tables. These are
// global.
var causeEnt = make(chan struct{}, 1)

func newCauseService(t *testing.T, db testdb.DB, open func(*testing.T, testdb.DB, *causeService)) *causeService {
	t.Helper()
	if db.Dialect == core.SQLite {
		db.DSN += "&_pragma=foreign_keys(1)" // Ent requires it
	}
	s := &causeService{t: t, broker: &outboxtest.Publisher{}}
	open(t, db, s)
	var err error
	s.in, err = inbox.New(inbox.Config{
		Consumer: "c", Handler: "h", Transactor: s.transactor, MinAge: -1,
		Store: fixture.NewInboxStore(t, db.Open(t), sqlinbox.Config{}),
	})
	fixture.NoError(t, err)
	s.api, err = sqlops.New(s.outbox)
	fixture.NoError(t, err)
	return s
}

// publish publishes an event in a transaction, by the outbox of the ORM.
func (s *causeService) publish(ctx context.Context) {
	s.t.Helper()
	fixture.NoError(s.t, s.transactor.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := s.outbox.Publish(ctx, tx, core.Event{Type: "began"})
		return err
	}))
}

// relay publishes what waits, and returns what the broker got.
func (s *causeService) relay() []core.Delivery {
	s.t.Helper()
	fixture.NoError(s.t, s.outbox.Drain(s.t.Context()))
	all := s.broker.Accepted()
	next := all[s.sent:]
	s.sent = len(all)
	return slices.Clone(next)
}

// handle gives a message to the inbox until it is acknowledged.
func (s *causeService) handle(d core.Delivery, h inbox.Handler) {
	s.t.Helper()
	var r inbox.Result
	for range 3 {
		r = s.in.Process(s.t.Context(), inbox.Message{Topic: d.Topic, Headers: d.Metadata(), Payload: d.Payload}, h)
		if r.Action == inbox.Ack {
			return
		}
	}
	s.t.Fatalf("the message of %s is not acknowledged: %v", d.ID, r.Err)
}

// wants fails the test unless the broker got n events with this cause and chain.
func wantCause(t *testing.T, got []core.Delivery, n int, cause, chain string) {
	t.Helper()
	fixture.Must(t, len(got) == n, "the broker got %d events, want %d", len(got), n)
	for _, d := range got {
		md := d.Metadata()
		fixture.Check(t, md[core.HeaderCausationID] == cause && md[core.HeaderCorrelationID] == chain,
			"%s was published by %q of %q, want %q of %q", d.Type, md[core.HeaderCausationID],
			md[core.HeaderCorrelationID], cause, chain)
	}
}

// A chain of three events runs through two services with two databases: an event outside of a
// handler, what its handler saves, and what the handler of that saves in the first service. No
// handler writes a line for it.
func TestCauseThroughTwoServices(t *testing.T) {
	t.Parallel()
	for name, open := range causeORMs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			adapters.EachDatabase(t, name, func(t *testing.T, db testdb.DB) {
				shop, billing := newCauseService(t, db, open), newCauseService(t, db.Another(t), open)
				shop.publish(t.Context())
				first := shop.relay()
				wantCause(t, first, 1, "", "")
				began := first[0].ID

				failures := 1 // the handler fails at first: a retry has the same cause
				billing.handle(first[0], func(ctx context.Context, _ core.Tx, _ inbox.Message) error {
					if err := billing.save(ctx, ctx); err != nil || failures == 0 {
						return err
					}
					failures--
					return errors.New("not yet")
				})
				second := billing.relay()
				wantCause(t, second, billing.events, began, began)

				shop.handle(second[0], func(ctx context.Context, _ core.Tx, _ inbox.Message) error {
					return shop.save(ctx, ctx)
				})
				third := shop.relay()
				wantCause(t, third, shop.events, second[0].ID, began)

				// A handler that lost its context causes nothing, in the same transaction.
				billing.handle(third[0], func(ctx context.Context, _ core.Tx, _ inbox.Message) error {
					return billing.save(ctx, context.WithoutCancel(t.Context()))
				})
				wantCause(t, billing.relay(), billing.events, "", "")

				walk(t, shop, billing, began, second, third)
				replayByCause(t, billing, began, second)
			})
		})
	}
}

// walk reads the chain in both databases, each of which ends where the other one goes on.
func walk(t *testing.T, shop, billing *causeService, began string, second, third []core.Delivery) {
	t.Helper()
	for _, c := range []struct {
		of             *causeService
		id             string
		causes, caused int
		text           []string
	}{
		{billing, second[0].ID, 0, 0, []string{"ends at " + began, "nothing that " + second[0].ID}},
		{shop, third[0].ID, 0, 0, []string{"ends at " + second[0].ID, "nothing that " + third[0].ID}},
	} {
		all, err := c.of.api.Explain(t.Context(), c.id)
		fixture.Must(t, err == nil && len(all) == 1 && all[0].Chain != nil, "%+v %v", all, err)
		chain := all[0].Chain
		fixture.Check(t, len(chain.Causes) == c.causes && len(chain.Caused) == c.caused, "the chain is %+v", chain)
		for _, part := range c.text {
			fixture.Check(t, strings.Contains(chain.Text, part), "%q is not in %s", part, chain.Text)
		}
	}
	all, err := shop.api.Explain(t.Context(), began)
	fixture.Check(t, err == nil && len(all) == 1 && all[0].Chain == nil, "an event of no chain here: %+v %v", all, err)
	chain, err := billing.api.Chain(t.Context(), began)
	ends := strings.Contains(chain.Text, "ends at "+began)
	fixture.Check(t, err == nil && len(chain.Caused) == billing.events && ends, "the chain is %+v, %v", chain, err)
}

// replayByCause sends the outputs of one input again: its consumer skips the input.
func replayByCause(t *testing.T, s *causeService, cause string, lost []core.Delivery) {
	t.Helper()
	p, err := s.api.PlanReplay(t.Context(), ops.Filter{Cause: cause}, ops.ReplayOptions{DedupWindow: time.Hour})
	fixture.Must(t, err == nil && len(p.IDs) == len(lost), "planned %+v, %v", p, err)
	stored, err := s.api.StorePlan(t.Context(), p, "ada", "outputs lost")
	fixture.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := s.api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ada"})
		ended <- err
	}()
	var again []core.Delivery
	for err = context.Canceled; errors.Is(err, context.Canceled); {
		select {
		case err = <-ended:
		default:
		}
		again = append(again, s.relay()...)
	}
	fixture.NoError(t, err)
	ids := func(all []core.Delivery) (ids []string) {
		for _, d := range all {
			ids = append(ids, fmt.Sprint(d.ID, d.Headers[core.HeaderCausationID]))
		}
		slices.Sort(ids)
		return ids
	}
	fixture.Check(t, slices.Equal(ids(again), ids(lost)), "sent again %s, want %s", ids(again), ids(lost))
}
