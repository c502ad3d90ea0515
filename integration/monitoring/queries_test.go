package monitoring

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/httpkey"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// scraped has series by name, as Prometheus stores them.
type scraped map[string][]map[string]string

// mails is a queue of effects with one channel.
type mails struct{}

func (mails) Backlog(context.Context) ([]command.Backlog, error) {
	return []command.Backlog{{Channel: "mail", Pending: 3, Dead: 1, OldestAge: time.Minute}}, nil
}

// billing is the inbox of a consumer.
type billing struct{}

func (billing) Backlog(context.Context) ([]inbox.Backlog, error) {
	return []inbox.Backlog{{Consumer: "billing", Handler: "invoice", Dead: 1, Oldest: time.Minute}}, nil
}

// scrape runs a relay until it has published an event, and scrapes it.
func scrape(t *testing.T) scraped {
	t.Helper()
	m := promoutbox.New(promoutbox.Config{ConstLabels: prometheus.Labels{"outbox": "shop"}})
	p := fixture.NewProcess(t, testdb.SQLite(t), core.Config{Observer: m.Outbox()})
	m.Watch(p.Outbox)
	m.WatchTypes(p.Outbox.TypeBacklog)
	m.WatchInbox(billing{}.Backlog)
	m.WatchEffects(mails{}.Backlog)
	m.WatchLog(readLog(t).LogBacklog)
	p.Run()
	p.Publish(core.Event{Type: "order.placed", Topic: "orders"})
	p.AwaitDone(1)
	// All series of a handler, scope, route or channel begin with its first event.
	m.Inbox().Processed(inbox.Info{Event: inbox.Event{Key: inbox.Key{Consumer: "billing", Handler: "invoice"}}})
	m.Keys().Decided(once.DecideInfo{Key: once.Key{Scope: "http POST /orders"}})
	m.HTTP()(httpkey.Info{Route: "/orders", Answer: "executed"})
	m.Effects()(command.ExecInfo{Channel: "mail", Result: "executed", Duration: time.Second})

	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	res, err := http.Get(server.URL)
	fixture.NoError(t, err)
	defer res.Body.Close()
	parse := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parse.TextToMetricFamilies(res.Body)
	fixture.NoError(t, err)

	// The metrics of `outbox relay`; integration/cli scrapes them.
	of := map[string]string{"job": "shop", "instance": "a:9090", "namespace": "prod", "outbox": "shop"}
	all := scraped{"outbox_relay_up": {of}, "outbox_config_refused": {of}}
	for name, f := range families {
		for _, series := range f.GetMetric() {
			// Prometheus adds job and instance, and Kubernetes adds namespace.
			of := map[string]string{"job": "shop", "instance": "a:9090", "namespace": "prod"}
			for _, l := range series.GetLabel() {
				of[l.GetName()] = l.GetValue()
			}
			if f.GetType() != dto.MetricType_HISTOGRAM {
				all[name] = append(all[name], of)
				continue
			}
			all[name+"_sum"] = append(all[name+"_sum"], of)
			all[name+"_count"] = append(all[name+"_count"], of)
			bucket := maps.Clone(of)
			bucket["le"] = "+Inf"
			all[name+"_bucket"] = append(all[name+"_bucket"], bucket)
		}
	}
	return all
}

// readLog runs a relay that reads the log of PostgreSQL, on a server with max_slot_wal_keep_size.
func readLog(t *testing.T) *walrelay.Relay {
	t.Helper()
	db := testdb.Postgres(t)
	fixture.NewProcess(
		t,
		db,
		core.Config{RelayedByLog: true, Relay: relay.Config{DisableJanitor: true}},
	) // makes the tables
	cfg, err := pgxpool.ParseConfig(db.DSN)
	fixture.NoError(t, err)
	cfg.MaxConns = 6
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	fixture.NoError(t, err)
	t.Cleanup(pool.Close)
	relay, err := walrelay.New(walrelay.Config{
		Pool: pool, Slot: "monitoring_" + strings.ReplaceAll(core.NewEventID(), "-", "_"), Create: true,
		Outbox: core.Config{Publisher: &outboxtest.Publisher{}, Relay: relay.Config{DisableJanitor: true}},
	})
	fixture.NoError(t, err)
	fixture.RunRelay(t, relay)
	fixture.Await(t, "the relay reads the log", func() bool {
		b, err := relay.LogBacklog(t.Context())
		return err == nil && b.Active && b.Leading
	})
	return relay
}

// check parses a query. It reports selectors that find no series, and labels in a grouping that the
// series do not have. It returns the names of the metrics.
func (s scraped) check(t *testing.T, where, query string) (names []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v\n%s", where, err, query)
		return nil
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			fixture.Check(t, len(s.find(n)) != 0, "%s: the scrape has no series %s", where, n)
			names = append(names, n.Name)
		case *parser.AggregateExpr:
			fixture.Check(t, !n.Without, "%s: `without` depends on labels that others add: %s", where, n)
			s.have(t, where, n.Expr, n.Grouping)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				s.have(t, where, n, n.VectorMatching.MatchingLabels)
			}
		}
		return nil
	})
	return names
}

// have requires that all series below a node have these labels.
func (s scraped) have(t *testing.T, where string, below parser.Node, names []string) {
	t.Helper()
	parser.Inspect(below, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		for _, of := range s.find(selector) {
			for _, name := range names {
				if _, ok := of[name]; !ok {
					t.Errorf("%s: %s has no label %s", where, selector, name)
				}
			}
		}
		return nil
	})
}

// find returns the series that a selector finds. A matcher of a label that no series has would be a
// mistake here, so it finds none.
func (s scraped) find(selector *parser.VectorSelector) (found []map[string]string) {
	for _, of := range s[selector.Name] {
		if !slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool {
			value, ok := of[m.Name]
			return m.Name != model.MetricNameLabel && (!ok || !m.Matches(value))
		}) {
			found = append(found, of)
		}
	}
	return found
}

// Every metric, label and value that an alert names is in the scrape of a running relay.
func TestAlertsAreAboutSeriesThatExist(t *testing.T) {
	t.Parallel()
	s := scrape(t)
	for _, r := range rules(t) {
		fixture.Check(t, len(s.check(t, r.Alert, r.Expr)) != 0, "%s names no metric", r.Alert)
	}
}
