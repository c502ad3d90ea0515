package contracts_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// The numbers in the columns status, from rows that were brought there.
func TestStatuses(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	var p page
	p.section("outbox_event")
	outboxStatuses(t, &p, db)
	pool := db.Open(t)
	p.section("inbox_failure")
	inboxStatuses(t, &p, pool)
	p.section("idempotency_key")
	keyStatuses(t, &p, pool)
	p.section("side_effect_command") // discarded is stored as completed, with a code
	for s := range command.StatusDiscarded {
		p.field(s.String(), int(s))
	}
	compare(t, "statuses", p.String())
}

func outboxStatuses(t *testing.T, p *page, db testdb.DB) {
	t.Helper()
	process := fixture.NewProcess(t, db, core.Config{})
	process.Publisher.FailFor(func(d core.Delivery) error {
		return map[string]error{
			"retry": core.Transient(errors.New("later")), "dead": core.Permanent(errors.New("never")),
			"discarded": core.Permanent(errors.New("never")),
		}[d.Type]
	})
	publish := func(e core.Event) {
		fixture.NoError(t, process.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := process.Outbox.Publish(ctx, tx, e)
			return err
		}))
	}
	publish(core.Event{Type: "new", Delay: time.Hour})
	for _, typ := range []string{"done", "retry", "dead", "discarded"} {
		publish(core.Event{Type: typ})
	}
	drained := process.Outbox.Drain(t.Context())
	dead, err := process.Outbox.ListDead(t.Context(), core.DeadQuery{Topic: "discarded"})
	if err != nil || len(dead) != 1 {
		t.Fatalf("dead events %v, %v, after a drain with %v", dead, err, drained)
	}
	_, err = process.Outbox.Discard(t.Context(),
		core.AdminRequest{IDs: []core.RowID{dead[0].ID}, Actor: "ada", Reason: "a test"})
	fixture.NoError(t, err)
	for _, row := range fixture.Query(t, process.Pool, "SELECT status, event_type FROM outbox_event ORDER BY 1",
		func(r *sql.Rows) (c [2]string, err error) { return c, r.Scan(&c[0], &c[1]) }) {
		p.field(row[1], row[0])
		n, err := strconv.Atoi(row[0])
		if err != nil || ops.Status(n).String() != row[1] {
			t.Errorf("status %s is that of the event %s, and ops calls it %s", row[0], row[1], ops.Status(n))
		}
	}
}

func inboxStatuses(t *testing.T, p *page, pool *sql.DB) {
	t.Helper()
	store := fixture.NewInboxStore(t, pool, sqlinbox.Config{})
	key := func(id string) inbox.Key { return inbox.Key{Consumer: "billing", Handler: "invoice", EventID: id} }
	for _, id := range []string{"failed", "dead", "redriven", "discarded"} {
		_, _, err := store.Fail(t.Context(), inbox.Failure{
			Event: inbox.Event{Key: key(id)}, Code: "error", Text: "no", Dead: id != "failed",
		})
		fixture.NoError(t, err)
	}
	_, err := store.Redrive(t.Context(), []inbox.Key{key("redriven")}, "ada", "a test")
	fixture.NoError(t, err)
	_, err = store.Discard(t.Context(), []inbox.Key{key("discarded")}, "ada", "a test")
	fixture.NoError(t, err)
	for _, row := range fixture.Query(t, pool, "SELECT event_id, status, last_error_code FROM inbox_failure ORDER BY 1",
		func(r *sql.Rows) (c [3]string, err error) { return c, r.Scan(&c[0], &c[1], &c[2]) }) {
		p.field(row[0], row[1]+", code "+row[2])
	}
}

func keyStatuses(t *testing.T, p *page, pool *sql.DB) {
	t.Helper()
	store := fixture.NewOnceStore(t, pool, sqlonce.Config{})
	for _, name := range []string{"held", "failed", "done"} {
		key := once.Key{Scope: "test", ID: name}
		a, err := store.Acquire(t.Context(), once.Request{Key: key, Owner: name, Lease: time.Minute, TTL: time.Hour})
		fixture.NoError(t, err)
		claim := once.Claim{Key: key, Owner: name, Fence: a.Fence}
		switch name {
		case "failed":
			err = store.Release(t.Context(), claim, 1)
		case "done":
			err = store.Complete(t.Context(), claim, once.Result{}, time.Hour)
		}
		fixture.NoError(t, err)
	}
	for _, row := range fixture.Query(t, pool, "SELECT id, status FROM idempotency_key ORDER BY 2",
		func(r *sql.Rows) (c [2]string, err error) { return c, r.Scan(&c[0], &c[1]) }) {
		p.field(row[0], row[1])
	}
}

// The topics that nobody has chosen, and the names that only a consumer or an operator sees.
func TestDefaults(t *testing.T) {
	t.Parallel()
	process := fixture.NewProcess(t, testdb.SQLite(t), core.Config{
		Routes: map[string][]string{"order.routed": {"orders", "audit"}},
	})
	events := []core.Event{
		{Type: "order.placed"},
		{Type: "order.named", Topic: "orders"},
		{Type: "order.routed"},
		{Type: "order.paid", AggregateType: "order", AggregateID: "7"},
		{Type: "order.sent", AggregateID: "7"},
		{Type: "order.noted", AggregateType: "order", AggregateID: "7", Key: "customer/1"},
	}
	fixture.NoError(t, process.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := process.Outbox.Publish(ctx, tx, events...)
		return err
	}))
	var p page
	p.section("topics and keys of events")
	for _, row := range fixture.Query(t, process.Pool,
		"SELECT event_type, topic, COALESCE(partition_key, '') FROM outbox_event ORDER BY 1, 2",
		func(r *sql.Rows) (c [3]string, err error) { return c, r.Scan(&c[0], &c[1], &c[2]) }) {
		p.field(row[0], "topic "+row[1]+", key "+strconv.Quote(row[2]))
	}
	p.section("topic of effects")
	p.field("channel mail", command.Topic("mail"))
	p.section("channel of wake-ups")
	p.field("prefix outbox_", sqloutbox.WakeChannel(""))
	p.section("headers beside those of messages")
	p.field("where a subscriber read a message", core.HeaderSource)
	p.field("place in the key before a redrive or a replay", core.HeaderFirstKeySeq)
	p.field("parts of a Watermill message", core.HeaderMessage)
	p.field("prefix of names that are reserved", core.HeaderReservedPrefix)
	compare(t, "defaults", p.String())
}

// watched has a backlog of each kind.
type watched struct{}

func (watched) Backlog(context.Context) (core.Backlog, error) { return core.Backlog{}, nil }

func (watched) Pauses(context.Context) ([]core.Pause, error) {
	return []core.Pause{{All: true}, {Topic: "t"}, {Tenant: "t"}}, nil
}

func (watched) Rates(context.Context) ([]core.Rate, error) { return []core.Rate{{Topic: "t"}}, nil }

func (watched) UnrelayedTopics(context.Context) ([]string, error) { return []string{"t"}, nil }

func (watched) CountAudit(context.Context, int64, int64) (map[string]int64, error) { return nil, nil }

func (watched) TypeBacklog(context.Context) ([]core.TypeBacklog, error) { return nil, nil }

func (watched) LogBacklog(context.Context) (core.LogBacklog, error) {
	return core.LogBacklog{Slot: "outbox", Known: true, Bounded: true, Leading: true}, nil
}

type effects struct{}

func (effects) Backlog(context.Context) ([]command.Backlog, error) {
	return []command.Backlog{{Channel: "mail"}}, nil
}

type handlers struct{}

func (handlers) Backlog(context.Context) ([]inbox.Backlog, error) { return []inbox.Backlog{{}}, nil }

// The metrics of Prometheus with their types and labels. TestOTelHasTheNamesOfPrometheus compares
// those of OpenTelemetry with them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := promoutbox.New(promoutbox.Config{Topics: []string{"t"}, Types: []string{"t"}})
	m.Watch(watched{})
	m.WatchTypes(watched{}.TypeBacklog)
	m.WatchLog(watched{}.LogBacklog)
	m.WatchInbox(handlers{}.Backlog)
	m.WatchEffects(effects{}.Backlog)
	m.Inbox().Dead(inbox.Info{})
	m.Keys().Decided(once.DecideInfo{})
	m.HTTP()(httpkey.Info{})
	m.Effects()(command.ExecInfo{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	fixture.NoError(t, err)
	var p page
	for _, f := range families {
		labels := map[string]bool{}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				labels[l.GetName()] = true
			}
		}
		p.field(f.GetName(), strings.TrimSpace(strings.ToLower(f.GetType().String())+" "+
			strings.Join(slices.Sorted(maps.Keys(labels)), ", ")))
	}
	compare(t, "metrics", p.String())
}
