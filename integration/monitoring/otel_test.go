package monitoring

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/metrics"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// source has the methods that both modules have.
type source interface {
	Outbox() *core.Observer
	Inbox() *inbox.Observer
	Keys() *once.Observer
	HTTP() func(httpkey.Info)
	Effects() func(command.ExecInfo)
	Watch(outbox metrics.Backlogger)
	WatchInbox(backlog func(context.Context) ([]inbox.Backlog, error))
	WatchEffects(backlog func(context.Context) ([]command.Backlog, error))
	WatchLog(backlogs ...func(context.Context) (core.LogBacklog, error))
}

type table struct{}

func (table) Backlog(context.Context) (core.Backlog, error) {
	return core.Backlog{Pending: 7, Dead: 2, BlockedKeys: 1, OldestAge: 90 * time.Second}, nil
}

func (table) Pauses(context.Context) ([]core.Pause, error) {
	return []core.Pause{{All: true}, {Topic: "a"}, {Topic: "b"}}, nil
}

func (table) Rates(context.Context) ([]core.Rate, error) { return []core.Rate{{Topic: "a"}}, nil }

func (table) UnrelayedTopics(context.Context) ([]string, error) { return []string{"x", "y"}, nil }

func (table) ListAudit(context.Context, core.AuditQuery) ([]core.AuditRecord, error) { return nil, nil }

func (table) CountAudit(context.Context, int64, int64) (map[string]int64, error) { return nil, nil }

// effects has more channels than labels are allowed.
type effects struct{}

func (effects) Backlog(context.Context) (all []command.Backlog, err error) {
	for n, channel := range []string{"mail", "sms", "push", "fax"} {
		all = append(all, command.Backlog{
			Channel: channel, Pending: int64(n), Dead: 1, OldestAge: time.Duration(n) * time.Second,
		})
	}
	return all, nil
}

// handlers has more handlers than labels are allowed.
type handlers struct{}

func (handlers) Backlog(context.Context) (all []inbox.Backlog, err error) {
	for n, handler := range []string{"invoice", "mail", "index", "suggest"} {
		all = append(all, inbox.Backlog{
			Consumer: "billing", Handler: handler, Failed: n, Dead: 1, Oldest: time.Duration(n) * time.Second,
		})
	}
	return all, nil
}

// slot reports the backlog of a reader of the log.
type slot string

func (s slot) LogBacklog(context.Context) (core.LogBacklog, error) {
	return core.LogBacklog{
		Slot: string(s), Known: true, Behind: 10, Kept: 20, Safe: 30, Bounded: true, Active: true, Repairing: true,
		Leading: true, SpilledKeys: 4,
	}, nil
}

// feed calls every observer of s.
func feed(s source) {
	s.Watch(table{})
	s.WatchInbox(handlers{}.Backlog)
	s.WatchEffects(effects{}.Backlog)
	s.WatchLog(slot("orders").LogBacklog, slot("mail").LogBacklog)
	down := errors.New("down")
	o := s.Outbox()
	for _, topic := range []string{"orders", "mail"} {
		o.Inserted(topic, true)
		o.FellBack(topic, core.FallbackFull)
		for _, path := range []core.Path{core.PathHot, core.PathCold} {
			o.Published(core.PublishInfo{
				Topic: topic, Path: path, Result: core.PublishDone, Duration: time.Second, Lag: time.Minute,
			})
		}
		o.Stuck(topic, 2)
		o.BreakerChanged(topic, true, down)
		o.ProbeFailed(core.ProbeInfo{Topic: topic})
	}
	o.Untracked(2)
	for _, ordered := range []bool{true, false} {
		o.Claimed(core.ClaimInfo{Ordered: ordered, Rows: 7, Duration: time.Millisecond})
		o.Claimed(core.ClaimInfo{Ordered: ordered, Err: down})
	}
	o.Marked(5, time.Millisecond, nil)
	o.Marked(5, time.Millisecond, down)
	o.Fenced("retry", 3)
	o.LateAcks(4)
	o.Cleaned("event", 9)

	i := s.Inbox()
	info := inbox.Info{
		Event:    inbox.Event{Key: inbox.Key{Consumer: "billing", Handler: "invoice"}},
		Duration: time.Second, OccurredAt: time.Now().Add(-20 * time.Second),
	}
	for _, told := range []func(inbox.Info){i.Processed, i.Duplicate, i.Stale, i.InProgress, i.Failed, i.Dead} {
		told(info)
	}
	i.Produced(info, 3)
	i.Cached(info, true)
	i.Cleaned(6, down)

	k := s.Keys()
	key := once.Key{Scope: "pay"}
	k.Decided(once.DecideInfo{Key: key, State: once.Fresh, TakenOver: true, Waited: time.Second})
	k.Ran(once.RunInfo{Key: key, Duration: time.Second})
	k.LeaseLost(key, down)
	k.Retried(key, down)
	k.Cleaned(2, down)
	s.HTTP()(httpkey.Info{Route: "POST /pay", Answer: "executed", Duration: time.Second})
	s.Effects()(command.ExecInfo{Channel: "mail", Result: "executed", Duration: time.Second})
}

// series describes what a registry has: names, kinds, labels, values, and bounds of buckets. The
// sum of a histogram is left out, because the age of an event is measured when it is told.
func series(t *testing.T, r *prometheus.Registry) (lines []string) {
	t.Helper()
	families, err := r.Gather()
	fixture.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			line := fmt.Sprintf("%s{%s} %s %q ", f.GetName(), strings.Join(labels, ","), f.GetType(), f.GetHelp())
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				line += fmt.Sprint(m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				line += fmt.Sprint(m.GetGauge().GetValue())
			default:
				h := m.GetHistogram()
				if h.GetSampleCount() == 0 {
					continue // see TestOTelHasTheNamesOfPrometheus
				}
				for _, b := range h.GetBucket() {
					line += fmt.Sprintf("le %v: %d, ", b.GetUpperBound(), b.GetCumulativeCount())
				}
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// The exporter of OpenTelemetry for Prometheus has the same series as promoutbox, so one dashboard
// serves both. Only histograms without a value are missing there, because OpenTelemetry cannot
// begin a histogram at zero.
func TestOTelHasTheNamesOfPrometheus(t *testing.T) {
	t.Parallel()
	plain, exported := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	direct := promoutbox.New(promoutbox.Config{Topics: []string{"orders", "idle"}, MaxLabels: 2})
	plain.MustRegister(direct)

	exporter, err := otelprom.New(otelprom.WithRegisterer(exported), otelprom.WithoutScopeInfo(),
		otelprom.WithoutTargetInfo())
	fixture.NoError(t, err)
	provider := sdk.NewMeterProvider(sdk.WithReader(exporter))
	through := oteloutbox.NewMetrics(oteloutbox.MetricsConfig{
		MeterProvider: provider, Topics: []string{"orders", "idle"}, MaxLabels: 2,
	})

	for step, tell := range []func(source){
		func(source) {}, // the series that exist from the start
		func(s source) { feed(s) },
	} {
		tell(direct)
		tell(through)
		want, got := series(t, plain), series(t, exported)
		fixture.Must(t, len(want) >= 30, "step %d: promoutbox has only %d series", step, len(want))
		for _, line := range want {
			fixture.Check(t, slices.Contains(got, line), "step %d: OpenTelemetry has no\n%s", step, line)
		}
		for _, line := range got {
			fixture.Check(t, slices.Contains(want, line), "step %d: promoutbox has no\n%s", step, line)
		}
	}
}

// MetricsConfig.Messaging adds the standard metrics of a client of a broker, with bounded
// destinations.
func TestStandardMessagingMetrics(t *testing.T) {
	t.Parallel()
	read := sdk.NewManualReader()
	m := oteloutbox.NewMetrics(oteloutbox.MetricsConfig{
		MeterProvider: sdk.NewMeterProvider(sdk.WithReader(read)), Topics: []string{"orders"}, MaxLabels: 1,
		Messaging: true, System: "kafka", Systems: map[string]string{"mail": "rabbitmq"},
	})
	o := m.Outbox()
	for _, topic := range []string{"orders", "orders", "mail", "push", "sms"} {
		o.Published(core.PublishInfo{Topic: topic, Path: core.PathHot, Result: core.PublishDone, Duration: time.Second})
	}
	o.Published(core.PublishInfo{
		Topic: "orders", Path: core.PathCold, Result: core.PublishRetry, Duration: time.Second,
		Err: core.Transient(errors.New("no")),
	})
	i := m.Inbox()
	info := inbox.Info{Event: inbox.Event{Key: inbox.Key{Consumer: "billing"}}, Duration: 2 * time.Second}
	i.Processed(info)
	i.Duplicate(info)
	info.Err = core.Permanent(errors.New("bad"))
	i.Dead(info)

	var all metricdata.ResourceMetrics
	fixture.NoError(t, read.Collect(t.Context(), &all))
	var got []string
	for _, scope := range all.ScopeMetrics {
		for _, metric := range scope.Metrics {
			if !strings.HasPrefix(metric.Name, "messaging.") {
				continue
			}
			line := func(set attribute.Set, value any) {
				got = append(got, fmt.Sprintf("%s [%s] %s: %v", metric.Name, metric.Unit,
					set.Encoded(attribute.DefaultEncoder()), value))
			}
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					line(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					line(p.Attributes, fmt.Sprint(p.Count, " in ", p.Sum))
				}
			}
		}
	}
	slices.Sort(got)
	const (
		send    = "messaging.operation.name=send,"
		typed   = send + "messaging.operation.type=send,"
		process = "messaging.consumer.group.name=billing,messaging.operation.name=process,messaging.system=kafka"
	)
	want := []string{
		"messaging.client.consumed.messages [{message}] " + process + ": 2",
		"messaging.client.consumed.messages [{message}] error.type=permanent," + process + ": 1",
		"messaging.client.operation.duration [s] error.type=transient,messaging.destination.name=orders," + typed +
			"messaging.system=kafka: 1 in 1",
		"messaging.client.operation.duration [s] messaging.destination.name=_other," + typed +
			"messaging.system=kafka: 2 in 2",
		"messaging.client.operation.duration [s] messaging.destination.name=mail," + typed +
			"messaging.system=rabbitmq: 1 in 1",
		"messaging.client.operation.duration [s] messaging.destination.name=orders," + typed +
			"messaging.system=kafka: 2 in 2",
		"messaging.client.sent.messages [{message}] error.type=transient,messaging.destination.name=orders," + send +
			"messaging.system=kafka: 1",
		"messaging.client.sent.messages [{message}] messaging.destination.name=_other," + send +
			"messaging.system=kafka: 2",
		"messaging.client.sent.messages [{message}] messaging.destination.name=mail," + send +
			"messaging.system=rabbitmq: 1",
		"messaging.client.sent.messages [{message}] messaging.destination.name=orders," + send +
			"messaging.system=kafka: 2",
		"messaging.process.duration [s] " + process + ": 1 in 2",
		"messaging.process.duration [s] error.type=permanent," + process + ": 1 in 2",
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
