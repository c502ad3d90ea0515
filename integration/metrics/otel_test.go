package metrics_test

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
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// source is what both modules have.
type source interface {
	Outbox() *core.Observer
	Inbox() *inbox.Observer
	Keys() *once.Observer
	HTTP() *httpkey.Observer
	Effects() func(command.ExecInfo)
	Watch(outbox promoutbox.Backlogger)
}

type table struct{}

func (table) Backlog(context.Context) (core.Backlog, error) {
	return core.Backlog{Pending: 7, Dead: 2, BlockedKeys: 1, OldestAge: 90 * time.Second}, nil
}

// feed tells every observer of s something.
func feed(s source) {
	s.Watch(table{})
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
	s.HTTP().Handled(httpkey.Info{Route: "POST /pay", Answer: httpkey.Executed, Duration: time.Second})
	s.Effects()(command.ExecInfo{Channel: "mail", Result: command.Executed, Duration: time.Second})
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

// The exporter of OpenTelemetry for Prometheus has the same series as promoutbox, so that one
// dashboard serves both. Only histograms that nothing was told are missing there: OpenTelemetry has
// no way to begin one at zero.
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
		func(source) {}, // all series that are there from the start
		func(s source) { feed(s) },
	} {
		tell(direct)
		tell(through)
		want, got := series(t, plain), series(t, exported)
		if len(want) < 30 {
			t.Fatalf("step %d: promoutbox has only %d series", step, len(want))
		}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("step %d: OpenTelemetry has no\n%s", step, line)
			}
		}
		for _, line := range got {
			if !slices.Contains(want, line) {
				t.Errorf("step %d: promoutbox has no\n%s", step, line)
			}
		}
	}
}
