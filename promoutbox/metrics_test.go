package promoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// value returns the value of a series, the count of a histogram, and whether the series is there.
func value(t *testing.T, m *promoutbox.Metrics, name string, labels ...string) (float64, bool) {
	t.Helper()
	for _, f := range gather(t, m) {
		if f.GetName() != name {
			continue
		}
		for _, series := range f.GetMetric() {
			var got []string
			for _, l := range series.GetLabel() {
				got = append(got, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(got)
			if want := slices.Sorted(slices.Values(labels)); !slices.Equal(got, want) {
				continue
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				return series.GetCounter().GetValue(), true
			case dto.MetricType_GAUGE:
				return series.GetGauge().GetValue(), true
			default:
				return float64(series.GetHistogram().GetSampleCount()), true
			}
		}
	}
	return 0, false
}

func want(t *testing.T, m *promoutbox.Metrics, v float64, name string, labels ...string) {
	t.Helper()
	got, ok := value(t, m, name, labels...)
	if !ok || got != v {
		t.Errorf("%s%v is %v (there: %t), want %v", name, labels, got, ok, v)
	}
}

func gather(t *testing.T, m *promoutbox.Metrics) []*dto.MetricFamily {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestOutboxIsCounted(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{})
	o := m.Outbox()
	o.Inserted("orders", true)
	o.Inserted("orders", false)
	o.Inserted("orders", false)
	o.Untracked(2)
	o.FellBack("orders", core.FallbackFull)
	published := func(path core.Path, result core.PublishResult) {
		o.Published(core.PublishInfo{
			Topic: "orders", Type: "order.placed", Path: path, Result: result, Duration: time.Second, Lag: time.Minute,
		})
	}
	published(core.PathHot, core.PublishDone)
	published(core.PathCold, core.PublishDone)
	published(core.PathCold, core.PublishRetry)
	published(core.PathCold, core.PublishDead)
	published(core.PathCold, core.PublishUnavailable)
	o.Claimed(core.ClaimInfo{Ordered: true, Rows: 7, Duration: time.Millisecond})
	o.Claimed(core.ClaimInfo{Err: errors.New("no")})
	o.Marked(5, time.Millisecond, nil)
	o.Marked(5, time.Millisecond, errors.New("no"))
	o.Fenced("retry", 3)
	o.LateAcks(4)
	o.Stuck("orders", 2)
	o.BreakerChanged("orders", true, errors.New("down"))
	o.ProbeFailed(core.ProbeInfo{Topic: "orders"})
	o.Cleaned("event", 9)

	const topic = "destination=orders"
	want(t, m, 1, "outbox_enqueue_messages_total", topic, "path=hot")
	want(t, m, 2, "outbox_enqueue_messages_total", topic, "path=cold")
	want(t, m, 2, "outbox_enqueue_untracked_total")
	want(t, m, 1, "outbox_fastpath_messages_total", topic, "outcome=full")
	want(t, m, 1, "outbox_fastpath_messages_total", topic, "outcome=sent")
	want(t, m, 0, "outbox_fastpath_messages_total", topic, "outcome=lost")
	want(t, m, 1, "outbox_relay_messages_total", topic, "path=hot", "outcome=published")
	for _, outcome := range []string{"published", "retried", "dead", "unavailable"} {
		want(t, m, 1, "outbox_relay_messages_total", topic, "path=cold", "outcome="+outcome)
	}
	want(t, m, 2, "outbox_relay_type_messages_total", "event_type=order.placed", "outcome=published")
	want(t, m, 1, "outbox_relay_type_messages_total", "event_type=order.placed", "outcome=dead")
	want(t, m, 5, "outbox_relay_publish_duration_seconds", topic)
	want(t, m, 1, "outbox_delivery_lag_seconds", topic, "path=hot")
	want(t, m, 1, "outbox_delivery_lag_seconds", topic, "path=cold")
	want(t, m, 1, "outbox_relay_claim_size", "ordered=true")
	want(t, m, 0, "outbox_relay_claim_size", "ordered=false")
	want(t, m, 1, "outbox_relay_claim_duration_seconds", "ordered=true")
	want(t, m, 1, "outbox_relay_claim_errors_total", "ordered=false")
	want(t, m, 5, "outbox_relay_marked_total")
	want(t, m, 1, "outbox_relay_mark_duration_seconds")
	want(t, m, 1, "outbox_relay_mark_errors_total")
	want(t, m, 3, "outbox_relay_lease_conflicts_total", "transition=retry")
	want(t, m, 4, "outbox_relay_late_acks_total")
	want(t, m, 2, "outbox_relay_stuck_publishes", topic)
	want(t, m, 1, "outbox_relay_paused", topic)
	want(t, m, 1, "outbox_relay_probe_failures_total", topic)
	want(t, m, 9, "outbox_cleanup_deleted_total", "table=event")

	o.BreakerChanged("orders", false, nil)
	want(t, m, 0, "outbox_relay_paused", topic)
}

func TestInboxKeysHTTPAndEffectsAreCounted(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{})

	i := m.Inbox()
	info := inbox.Info{
		Event:    inbox.Event{Key: inbox.Key{Consumer: "billing", Handler: "invoice"}},
		Duration: time.Second, OccurredAt: time.Now(),
	}
	for _, fn := range []func(inbox.Info){i.Processed, i.Duplicate, i.Stale, i.InProgress, i.Failed, i.Dead} {
		fn(info)
	}
	i.Produced(info, 3)
	i.Cached(info, true)
	i.Cached(info, false)
	i.Cached(info, false)
	i.Cleaned(8, errors.New("no"))
	handler := []string{"consumer=billing", "handler=invoice"}
	labels := func(more ...string) []string { return append(slices.Clone(handler), more...) }
	for _, outcome := range []string{"processed", "duplicate", "stale", "in_progress", "failed", "dead"} {
		want(t, m, 1, "inbox_messages_total", labels("outcome="+outcome)...)
	}
	want(t, m, 1, "inbox_process_duration_seconds", handler...)
	want(t, m, 1, "inbox_event_age_seconds", handler...)
	want(t, m, 3, "inbox_produced_messages_total", handler...)
	want(t, m, 1, "inbox_cache_requests_total", labels("outcome=hit")...)
	want(t, m, 2, "inbox_cache_requests_total", labels("outcome=miss")...)
	want(t, m, 8, "inbox_cleanup_deleted_total")
	want(t, m, 1, "inbox_cleanup_errors_total")

	k := m.Keys()
	key := once.Key{Scope: "POST /orders", ID: "secret"}
	k.Decided(once.DecideInfo{Key: key, State: once.Fresh, TakenOver: true})
	k.Decided(once.DecideInfo{Key: key, Err: errors.New("no")})
	k.Ran(once.RunInfo{Key: key})
	k.Ran(once.RunInfo{Key: key, Err: errors.New("no")})
	k.LeaseLost(key, errors.New("no"))
	k.Retried(key, errors.New("no"))
	k.Cleaned(6, errors.New("no"))
	const scope = "scope=POST /orders"
	want(t, m, 1, "idempotency_keys_total", scope, "state=fresh")
	want(t, m, 1, "idempotency_keys_total", scope, "state=error")
	want(t, m, 0, "idempotency_keys_total", scope, "state=mismatch")
	want(t, m, 1, "idempotency_keys_taken_over_total", scope)
	want(t, m, 2, "idempotency_store_duration_seconds", scope)
	want(t, m, 1, "idempotency_runs_total", scope, "outcome=done")
	want(t, m, 1, "idempotency_runs_total", scope, "outcome=failed")
	want(t, m, 2, "idempotency_run_duration_seconds", scope)
	want(t, m, 1, "idempotency_leases_lost_total", scope)
	want(t, m, 1, "idempotency_transaction_retries_total", scope)
	want(t, m, 6, "idempotency_cleanup_deleted_total")
	want(t, m, 1, "idempotency_cleanup_errors_total")

	m.HTTP()(httpkey.Info{Route: "/orders", Answer: "replayed", Key: key, Duration: time.Second})
	want(t, m, 1, "idempotency_requests_total", "route=/orders", "outcome=replayed")
	want(t, m, 0, "idempotency_requests_total", "route=/orders", "outcome=executed")
	want(t, m, 1, "idempotency_request_duration_seconds", "route=/orders")

	m.Effects()(command.ExecInfo{Channel: "mail", Result: "executed", Duration: time.Second})
	m.Effects()(command.ExecInfo{Channel: "mail", Result: "skipped"})
	want(t, m, 1, "effect_executions_total", "channel=mail", "outcome=executed")
	want(t, m, 1, "effect_executions_total", "channel=mail", "outcome=skipped")
	want(t, m, 1, "effect_execution_duration_seconds", "channel=mail")

	for _, f := range gather(t, m) {
		if strings.Contains(f.String(), "secret") {
			t.Errorf("a key became a label: %s", f)
		}
	}
}

// An observer without one of its callbacks would count nothing and say nothing.
func TestEveryCallbackIsSet(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{})
	for _, o := range []any{*m.Outbox(), *m.Inbox(), *m.Keys()} {
		v := reflect.ValueOf(o)
		for i := range v.NumField() {
			if v.Field(i).IsNil() {
				t.Errorf("%s.%s is nil", v.Type(), v.Type().Field(i).Name)
			}
		}
	}
}

// Every result, reason and answer that the packages know has a series of its own.
func TestEveryValueHasASeries(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{})
	count := func() (n float64) {
		for _, f := range gather(t, m) {
			for _, series := range f.GetMetric() {
				n += series.GetCounter().GetValue()
			}
		}
		return n
	}
	for _, file := range []struct {
		path, constant string
		series         float64 // that count a value
		tell           func(value string)
	}{
		{"../core/observer.go", "Fallback", 1, func(v string) { m.Outbox().FellBack("t", core.FallbackReason(v)) }},
		{"../core/observer.go", "Publish", 2, func(v string) {
			m.Outbox().Published(core.PublishInfo{Path: core.PathCold, Result: core.PublishResult(v)})
		}},
		{"../core/once/httpkey/observer.go", "", 1, func(v string) {
			m.HTTP()(httpkey.Info{Answer: v})
		}},
		{"../core/once/command/worker.go", "result", 1, func(v string) {
			m.Effects()(command.ExecInfo{Result: v})
		}},
	} {
		source, err := os.ReadFile(file.path)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`(?m)^\t`+file.constant+
			`\w+ +(?:\w+ +)?= "(\w+)"`).FindAllStringSubmatch(string(source), -1)
		if len(found) < 4 {
			t.Fatalf("%s: found %v", file.path, found)
		}
		for _, value := range found {
			before := count()
			if file.tell(value[1]); count() != before+file.series {
				t.Errorf("%s: %q is not counted", file.path, value[1])
			}
		}
	}
}

func TestLabelsAreBounded(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{MaxLabels: 3})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			m.Outbox().Inserted(fmt.Sprint("topic", i), true)
			m.Outbox().Published(core.PublishInfo{
				Topic: fmt.Sprint("topic", i), Type: fmt.Sprint("type", i), Path: core.PathHot,
				Result: core.PublishDone,
			})
			m.Inbox().Duplicate(inbox.Info{Event: inbox.Event{Key: inbox.Key{Consumer: "c", Handler: fmt.Sprint(i)}}})
			m.HTTP()(httpkey.Info{Route: fmt.Sprint("/", i), Answer: "executed"})
		})
	}
	wg.Wait()
	for _, f := range gather(t, m) {
		for _, label := range []string{"destination", "event_type", "handler", "route"} {
			values := map[string]bool{}
			for _, series := range f.GetMetric() {
				for _, l := range series.GetLabel() {
					if l.GetName() == label {
						values[l.GetValue()] = true
					}
				}
			}
			if len(values) > 4 {
				t.Errorf("%s has %d values of %s", f.GetName(), len(values), label)
			}
		}
	}
	want(t, m, 47, "outbox_enqueue_messages_total", "destination=_other", "path=hot")
	want(t, m, 47, "inbox_messages_total", "consumer=_other", "handler=_other", "outcome=duplicate")
	want(t, m, 47, "idempotency_requests_total", "route=_other", "outcome=executed")
}

// table answers like an outbox, and counts how often it was asked.
type table struct {
	asked int
	b     core.Backlog
	err   error
	wait  time.Duration
}

func (b *table) Backlog(ctx context.Context) (core.Backlog, error) {
	b.asked++
	if b.wait > 0 {
		select {
		case <-ctx.Done():
			return core.Backlog{}, ctx.Err()
		case <-time.After(b.wait):
		}
	}
	return b.b, b.err
}

func TestBacklogIsAskedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promoutbox.New(promoutbox.Config{})
		if _, there := value(t, m, "outbox_backlog_messages", "state=dead"); there {
			t.Error("there is a backlog without an outbox")
		}
		b := &table{b: core.Backlog{Pending: 12, Dead: 3, BlockedKeys: 2, OldestAge: time.Minute}}
		m.Watch(b)
		for range 5 {
			want(t, m, 12, "outbox_backlog_messages", "state=pending")
			want(t, m, 3, "outbox_backlog_messages", "state=dead")
			want(t, m, 60, "outbox_backlog_oldest_age_seconds")
			want(t, m, 2, "outbox_blocked_keys")
		}
		if b.asked != 1 {
			t.Errorf("the table was asked %d times", b.asked)
		}
		b.b.Pending = 13
		time.Sleep(15 * time.Second)
		want(t, m, 13, "outbox_backlog_messages", "state=pending")

		// An old figure would hide an outage.
		b.err = errors.New("down")
		time.Sleep(15 * time.Second)
		want(t, m, 1, "outbox_backlog_errors_total")
		if _, there := value(t, m, "outbox_backlog_messages", "state=pending"); there {
			t.Error("an old backlog is shown while the database is down")
		}
		b.err, b.wait = nil, time.Hour
		time.Sleep(15 * time.Second)
		start := time.Now()
		gather(t, m)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("a scrape waited %s for a table that does not answer", took)
		}
		b.wait = 0
		time.Sleep(15 * time.Second)
		want(t, m, 13, "outbox_backlog_messages", "state=pending")
		want(t, m, 2, "outbox_backlog_errors_total")
	})
}

// types is a table that counts by event type.
type types struct {
	list  []core.TypeBacklog
	err   error
	asked int
}

func (b *types) TypeBacklog(context.Context) ([]core.TypeBacklog, error) {
	b.asked++
	return b.list, b.err
}

// The backlog by type has the types of the configuration and the sum of the others, and the
// database is asked for it less often than for the rest.
func TestBacklogOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promoutbox.New(promoutbox.Config{Types: []string{"paid", "sent"}})
		if _, there := value(t, m, "outbox_type_backlog_messages", "event_type=paid", "state=new"); there {
			t.Error("there is a backlog without an outbox")
		}
		b := &types{list: []core.TypeBacklog{
			{Type: "paid", New: 5, Retry: 2, Dead: 1}, {Type: "a", New: 3}, {Type: "b", New: 1, Dead: 2},
		}}
		m.WatchTypes(b.TypeBacklog)
		check := func(name string, fresh, retry, dead float64) {
			t.Helper()
			want(t, m, fresh, "outbox_type_backlog_messages", "event_type="+name, "state=new")
			want(t, m, retry, "outbox_type_backlog_messages", "event_type="+name, "state=retry")
			want(t, m, dead, "outbox_type_backlog_messages", "event_type="+name, "state=dead")
		}
		check("paid", 5, 2, 1)
		check("sent", 0, 0, 0)
		check("_other", 4, 0, 2)
		time.Sleep(59 * time.Second)
		check("paid", 5, 2, 1)
		if b.asked != 1 {
			t.Errorf("the table was asked %d times in a minute", b.asked)
		}
		b.err = errors.New("down")
		time.Sleep(time.Second)
		want(t, m, 1, "outbox_backlog_errors_total")
		if _, there := value(t, m, "outbox_type_backlog_messages", "event_type=paid", "state=new"); there {
			t.Error("an old backlog is shown while the database is down")
		}
	})
}

// logReader is a reader of the log.
type logReader struct {
	b   core.LogBacklog
	err error
}

func (l *logReader) LogBacklog(context.Context) (core.LogBacklog, error) { return l.b, l.err }

// Each slot has only those gauges whose values are known. While a relay cannot be asked, its gauges
// are missing, and the gauges of another slot are there.
func TestGaugesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promoutbox.New(promoutbox.Config{})
		read := &logReader{b: core.LogBacklog{
			Slot: "read", Known: true, Behind: 5000, Kept: 9000, Safe: -7, Bounded: true, Active: true, Leading: true,
			SpilledKeys: 3, Repairing: true,
		}}
		gone := &logReader{b: core.LogBacklog{Slot: "gone", Lost: true}}
		m.WatchLog(read.LogBacklog, gone.LogBacklog)
		for name, v := range map[string][2]float64{ // values of the slots read and gone; -1 if the gauge is missing
			"outbox_log_behind_bytes": {5000, -1}, "outbox_log_kept_bytes": {9000, -1},
			"outbox_log_safe_bytes": {-7, -1}, "outbox_log_spilled_keys": {3, -1},
			"outbox_log_slot_active": {1, 0}, "outbox_log_slot_lost": {0, 1}, "outbox_log_repairing": {1, 0},
		} {
			want(t, m, v[0], name, "slot=read")
			switch _, there := value(t, m, name, "slot=gone"); {
			case v[1] >= 0:
				want(t, m, v[1], name, "slot=gone")
			case there:
				t.Errorf("there is a value of %s", name)
			}
		}

		// An old figure would hide an outage.
		read.err = errors.New("down")
		time.Sleep(15 * time.Second)
		want(t, m, 1, "outbox_backlog_errors_total")
		if _, there := value(t, m, "outbox_log_behind_bytes", "slot=read"); there {
			t.Error("an old position is shown while the database is down")
		}
		want(t, m, 1, "outbox_log_slot_lost", "slot=gone")

		// Two slots of one name would fail the whole scrape.
		read.err, gone.b.Slot = nil, "read"
		time.Sleep(15 * time.Second)
		want(t, m, 0, "outbox_log_slot_lost", "slot=read")
		want(t, m, 2, "outbox_backlog_errors_total")
		m.WatchLog(gone.LogBacklog)
		want(t, m, 1, "outbox_log_slot_lost", "slot=read")
		m.WatchLog()
		if _, there := value(t, m, "outbox_log_slot_lost", "slot=read"); there {
			t.Error("a relay that is not watched any more has gauges")
		}
	})
}

// Changes that people make from this process are counted, from zero on.
func TestOperatorsAreCounted(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{})
	want(t, m, 0, "outbox_operator_events_total", "action=replay")
	want(t, m, 0, "outbox_operator_duration_seconds", "action=replay")
	redrive := core.OperatedInfo{Action: core.OperatorRedrive, Rows: 6, Duration: time.Second}
	m.Outbox().Operated(redrive)
	redrive.Rows = 1
	m.Outbox().Operated(redrive)
	m.Outbox().Operated(core.OperatedInfo{Action: core.OperatorDiscard, Rows: 2})
	want(t, m, 7, "outbox_operator_events_total", "action=redrive")
	want(t, m, 2, "outbox_operator_events_total", "action=discard")
	want(t, m, 2, "outbox_operator_duration_seconds", "action=redrive")
	want(t, m, 1, "outbox_operator_duration_seconds", "action=discard")
}

// slow is a table whose backlog takes a while to count.
type slow struct {
	takes time.Duration
	asked int
}

func (s *slow) Backlog(ctx context.Context) (core.Backlog, error) {
	s.asked++
	select {
	case <-time.After(s.takes):
		return core.Backlog{}, nil
	case <-ctx.Done():
		return core.Backlog{}, ctx.Err()
	}
}

// A query that takes long costs at most one percent of the time of the database, unless the
// configuration says how often it is asked.
func TestSlowQueriesAreAskedSeldom(t *testing.T) {
	for _, c := range []struct {
		name  string
		takes time.Duration
		every time.Duration
		least int // questions in an hour of scrapes
		most  int
	}{
		{"fast", 100 * time.Millisecond, 0, 230, 240},
		{"slow", time.Second, 0, 30, 36},
		{"as configured", time.Second, 15 * time.Second, 220, 240},
		{"too slow", time.Minute, 0, 200, 240}, // each fails after two seconds
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := promoutbox.New(promoutbox.Config{BacklogEvery: c.every})
				s := &slow{takes: c.takes}
				m.Watch(s)
				for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) {
					gather(t, m)
				}
				if s.asked < c.least || s.asked > c.most {
					t.Errorf("asked %d times, want %d to %d", s.asked, c.least, c.most)
				}
			})
		})
	}
}

// audit is a table with audit rows, each with its number.
type audit struct {
	table
	rows map[int64]string // actions
	err  error
}

func (a *audit) ListAudit(context.Context, core.AuditQuery) (newest []core.AuditRecord, err error) {
	for no := range a.rows {
		if len(newest) == 0 || no > newest[0].No {
			newest = []core.AuditRecord{{No: no}}
		}
	}
	return newest, a.err
}

func (a *audit) CountAudit(_ context.Context, after, upTo int64) (map[string]int64, error) {
	n := map[string]int64{}
	for no, action := range a.rows {
		if no > after && no <= upTo {
			n[action]++
		}
	}
	return n, a.err
}

// Changes by other processes, such as the command line, are counted from the table. Each row that
// was added since the process watches the table is counted once, also if it commits after a row
// with a higher number.
func TestAuditRowsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promoutbox.New(promoutbox.Config{BacklogEvery: time.Second})
		a := &audit{rows: map[int64]string{1: "redrive", 2: "redrive", 3: "pause"}}
		m.Watch(a)
		look := func(redrive, discard, other float64) {
			t.Helper()
			time.Sleep(time.Second)
			gather(t, m)
			want(t, m, redrive, "outbox_audit_rows_total", "action=redrive")
			want(t, m, discard, "outbox_audit_rows_total", "action=discard")
			want(t, m, other, "outbox_audit_rows_total", "action=_other")
			want(t, m, 0, "outbox_audit_rows_total", "action=pause")
		}
		look(0, 0, 0)
		a.rows[4], a.rows[6] = "redrive", "discard"
		look(1, 1, 0)
		look(1, 1, 0)
		a.rows[8], a.rows[9] = "of a later version", "redrive"
		look(2, 1, 1)
		a.rows[5], a.rows[7] = "discard", "redrive" // 5 is older than the look before the last one
		look(3, 1, 1)
		look(3, 1, 1)
		a.err = errors.New("down")
		a.rows[10] = "redrive"
		look(3, 1, 1)
		want(t, m, 1, "outbox_backlog_errors_total")
		a.err = nil
		look(4, 1, 1)
	})
}

// hung is a table that answers nothing.
type hung struct{}

func answer[T any](ctx context.Context) (none T, err error) {
	<-ctx.Done()
	return none, ctx.Err()
}

func (hung) Backlog(ctx context.Context) (core.Backlog, error) { return answer[core.Backlog](ctx) }

func (hung) Pauses(ctx context.Context) ([]core.Pause, error) { return answer[[]core.Pause](ctx) }

func (hung) Rates(ctx context.Context) ([]core.Rate, error)        { return answer[[]core.Rate](ctx) }
func (hung) UnrelayedTopics(ctx context.Context) ([]string, error) { return answer[[]string](ctx) }
func (hung) TypeBacklog(ctx context.Context) ([]core.TypeBacklog, error) {
	return answer[[]core.TypeBacklog](ctx)
}

func (hung) ListAudit(ctx context.Context, _ core.AuditQuery) ([]core.AuditRecord, error) {
	return answer[[]core.AuditRecord](ctx)
}

func (hung) CountAudit(ctx context.Context, _, _ int64) (map[string]int64, error) {
	return answer[map[string]int64](ctx)
}

// A database that hangs holds a scrape up for four seconds, however many questions there are: a
// scrape that Prometheus gives up has none of the other metrics.
func TestScrapeOfADatabaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promoutbox.New(promoutbox.Config{})
		m.Watch(hung{})
		m.WatchTypes(hung{}.TypeBacklog)
		began := time.Now()
		gather(t, m)
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the scrape took %s", took)
		}
		want(t, m, 6, "outbox_backlog_errors_total")
		want(t, m, 0, "outbox_relay_mark_errors_total")
	})
}

func TestTwoOutboxesOfOneProcess(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	for _, name := range []string{"orders", "billing"} {
		m := promoutbox.New(promoutbox.Config{ConstLabels: prometheus.Labels{"outbox": name}})
		m.Watch(&table{})
		if err := r.Register(m); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := testutil.GatherAndCount(r, "outbox_blocked_keys"); n != 2 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

// Names follow the rules of Prometheus, and docs/metrics.md has each of them with its labels.
func TestNames(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{Topics: []string{"t"}, Types: []string{"t"}})
	m.Watch(&operated{})
	m.WatchTypes((&types{}).TypeBacklog)
	m.WatchLog((&logReader{b: core.LogBacklog{Slot: "outbox", Known: true, Bounded: true, Leading: true}}).LogBacklog)
	m.WatchInbox(handlers{{}}.Backlog)
	m.WatchEffects(channels{{Channel: "mail"}}.Backlog)
	m.Inbox().Dead(inbox.Info{})
	m.Keys().Decided(once.DecideInfo{})
	m.HTTP()(httpkey.Info{})
	m.Effects()(command.ExecInfo{})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(m)
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}

	var have []string
	for _, f := range gather(t, m) {
		labels := map[string]bool{}
		for _, series := range f.GetMetric() {
			for _, l := range series.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		have = append(have, fmt.Sprintf("| `%s` | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()),
			strings.Join(slices.Sorted(maps.Keys(labels)), ", ")))
	}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for line := range strings.SplitSeq(string(page), "\n") {
		if cells := strings.Split(line, "|"); len(cells) == 6 && strings.HasPrefix(cells[1], " `") {
			told = append(told, strings.Join(cells[:4], "|")+"|")
		}
	}
	slices.Sort(have)
	slices.Sort(told)
	if !slices.Equal(have, told) {
		t.Errorf("docs/metrics.md should have\n%s\nand has\n%s", strings.Join(have, "\n"), strings.Join(told, "\n"))
	}
}

// operated is a table that operators work on.
type operated struct {
	table
	pauses []core.Pause
	err    error
	asked  int
}

func (o *operated) Pauses(context.Context) ([]core.Pause, error) { return o.pauses, o.err }
func (o *operated) Rates(context.Context) ([]core.Rate, error) {
	return []core.Rate{{Topic: "a"}}, o.err
}

func (o *operated) UnrelayedTopics(context.Context) ([]string, error) {
	o.asked++
	return []string{"x", "y"}, o.err
}

type channels []command.Backlog

func (c channels) Backlog(context.Context) ([]command.Backlog, error) { return c, nil }

type handlers []inbox.Backlog

func (h handlers) Backlog(context.Context) ([]inbox.Backlog, error) { return h, nil }

// What handlers have failed with is a gauge, also of a handler that has failed with nothing.
func TestGaugesOfInbox(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{MaxLabels: 2})
	m.WatchInbox(handlers{
		{Consumer: "billing", Handler: "invoice", Failed: 3, Dead: 2, Redriven: 1, Oldest: time.Minute},
		{Consumer: "billing", Handler: "mail"},
		{Consumer: "search", Handler: "index", Dead: 4, Oldest: time.Second},
		{Consumer: "search", Handler: "suggest", Dead: 5, Failed: 6, Oldest: time.Hour},
	}.Backlog)
	for state, n := range map[string]float64{"failed": 3, "dead": 2, "redriven": 1} {
		want(t, m, n, "inbox_backlog_messages", "consumer=billing", "handler=invoice", "state="+state)
		want(t, m, 0, "inbox_backlog_messages", "consumer=billing", "handler=mail", "state="+state)
	}
	want(t, m, 60, "inbox_backlog_oldest_age_seconds", "consumer=billing", "handler=invoice")
	want(t, m, 9, "inbox_backlog_messages", "consumer=_other", "handler=_other", "state=dead")
	want(t, m, 6, "inbox_backlog_messages", "consumer=_other", "handler=_other", "state=failed")
	want(t, m, 3600, "inbox_backlog_oldest_age_seconds", "consumer=_other", "handler=_other")
}

// The pauses and rates of operators, topics without a relay and effects are gauges. A table without
// them is no failure, but a table that cannot be read is one. A failure of one query hides no other
// gauge.
func TestGaugesOfOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := promoutbox.New(promoutbox.Config{MaxLabels: 1})
		o := &operated{}
		m.Watch(o)
		m.WatchEffects(channels{
			{Channel: "mail", Pending: 3, Dead: 1, OldestAge: time.Minute},
			{Channel: "push", Pending: 4, Dead: 2},
			{Channel: "sms", Pending: 5, OldestAge: time.Second},
		}.Backlog)
		want(t, m, 0, "outbox_pauses", "scope=all")
		want(t, m, 0, "outbox_pauses", "scope=topic")
		want(t, m, 1, "outbox_rate_limits")
		want(t, m, 2, "outbox_unrelayed_topics")
		want(t, m, 3, "effect_backlog_messages", "channel=mail", "state=pending")
		want(t, m, 1, "effect_backlog_messages", "channel=mail", "state=dead")
		want(t, m, 60, "effect_backlog_oldest_age_seconds", "channel=mail")
		want(t, m, 9, "effect_backlog_messages", "channel=_other", "state=pending")
		want(t, m, 2, "effect_backlog_messages", "channel=_other", "state=dead")
		want(t, m, 1, "effect_backlog_oldest_age_seconds", "channel=_other")

		o.pauses = []core.Pause{{All: true}, {Topic: "a"}, {Topic: "b"}, {Tenant: "t"}}
		time.Sleep(15 * time.Second)
		want(t, m, 1, "outbox_pauses", "scope=all")
		want(t, m, 2, "outbox_pauses", "scope=topic")
		want(t, m, 1, "outbox_pauses", "scope=tenant")
		if o.asked != 1 {
			t.Errorf("topics were asked for %d times in 15 s, want once in a minute", o.asked)
		}
		for _, c := range []struct {
			err    error
			failed float64
		}{{errors.ErrUnsupported, 0}, {errors.New("down"), 3}} {
			o.err = c.err
			time.Sleep(time.Minute)
			want(t, m, c.failed, "outbox_backlog_errors_total")
			for _, name := range []string{"outbox_rate_limits", "outbox_unrelayed_topics"} {
				if _, there := value(t, m, name); there {
					t.Errorf("%v: there is a value of %s", c.err, name)
				}
			}
			want(t, m, 0, "outbox_blocked_keys")
		}
	})
}
