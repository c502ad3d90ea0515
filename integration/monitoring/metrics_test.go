// Package metrics_test scrapes relays as Prometheus does.
package monitoring

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/promoutbox"
)

// A scrape of a running relay agrees with what was published, on each database.
func TestScrapeAgreesWithTheTable(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		m := promoutbox.New(promoutbox.Config{Topics: []string{"orders", "mail"}, BacklogEvery: 1})
		p := fixture.NewProcess(t, db, core.Config{Observer: m.Outbox()})
		m.Watch(p.Outbox)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		server := httptest.NewServer(promhttp.HandlerFor(registry,
			promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
		t.Cleanup(server.Close)

		broken := errors.New("not readable")
		p.Publisher.FailFor(func(d core.Delivery) error {
			if d.Type == "broken" {
				return core.Permanent(broken)
			}
			return nil
		})
		p.Publish(core.Event{Type: "waits", Topic: "orders"}, core.Event{Type: "waits", Topic: "orders", Key: "k"})
		requireLines(t, getPage(t, server.URL),
			`outbox_backlog_messages{state="pending"} 2`,
			`outbox_backlog_messages{state="dead"} 0`,
			`outbox_relay_messages_total{destination="mail",outcome="dead",path="cold"} 0`,
		)
		p.Run()
		p.Publish(core.Event{Type: "broken", Topic: "mail", Key: "k"})
		p.Publish(core.Event{Type: "behind", Topic: "mail", Key: "k"})
		fixture.Await(t, "two events, and a dead one", func() bool {
			counts := p.Statuses()
			return counts[fixture.StatusDone] == 2 && counts[fixture.StatusDead] == 1
		})
		var page string
		lines := []string{
			`outbox_relay_messages_total{destination="orders",outcome="published",path="cold"} 2`,
			`outbox_delivery_lag_seconds_count{destination="orders",path="cold"} 2`,
			`outbox_relay_publish_duration_seconds_count{destination="orders"} 2`,
			`outbox_backlog_messages{state="pending"} 1`,
			`outbox_backlog_messages{state="dead"} 1`,
			`outbox_blocked_keys 1`,
			`outbox_backlog_errors_total 0`,
			`outbox_relay_paused{destination="orders"} 0`,
		}
		deadOn := func(path string) bool {
			return strings.Contains(page, `{destination="mail",outcome="dead",path="`+path+`"} 1`)
		}
		fixture.Await(t, "the figures", func() bool {
			page = getPage(t, server.URL)
			// The metric is counted after the row has changed.
			return len(missing(page, lines)) == 0 && (deadOn("hot") || deadOn("cold"))
		})
		requireLines(t, page, lines...)
		fixture.Check(t, !deadOn("hot") || !deadOn("cold"), "the dead event is counted on both paths")
	})
}

// A scrape of a relay shows what people have changed with another process, such as the command
// line.
func TestScrapeTellsWhatOtherProcessesChanged(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		m := promoutbox.New(promoutbox.Config{BacklogEvery: 1})
		p := fixture.NewProcess(t, db, core.Config{Observer: m.Outbox()})
		m.Watch(p.Outbox)
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(m)
		server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
		t.Cleanup(server.Close)

		p.Publisher.FailFor(func(core.Delivery) error { return core.Permanent(errors.New("not readable")) })
		p.Publish(core.Event{Type: "e", Topic: "orders"}, core.Event{Type: "e", Topic: "orders"})
		fixture.NoError(t, p.Outbox.Drain(t.Context()))
		requireLines(t, getPage(t, server.URL), `outbox_audit_rows_total{action="redrive"} 0`,
			`outbox_audit_rows_total{action="pause"} 0`)

		other := fixture.JoinProcess(t, db, p.Publisher, core.Config{}).Outbox
		dead, err := other.ListDead(t.Context(), core.DeadQuery{})
		fixture.NoError(t, err)
		var ids []core.RowID
		for _, d := range dead {
			ids = append(ids, d.ID)
		}
		n, err := other.Redrive(t.Context(), core.AdminRequest{IDs: ids, Actor: "ada", Reason: "schema registered"})
		if err != nil || n != 2 {
			t.Fatal(n, err)
		}
		pause := core.PauseRequest{Topic: "orders", Actor: "ada", Reason: "upgrade"}
		fixture.NoError(t, other.Pause(t.Context(), pause))
		requireLines(t, getPage(t, server.URL), `outbox_audit_rows_total{action="redrive"} 2`,
			`outbox_audit_rows_total{action="pause"} 1`, `outbox_operator_events_total{action="redrive"} 0`,
			`outbox_backlog_errors_total 0`)
	})
}

func getPage(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	fixture.NoError(t, err)
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	fixture.NoError(t, err)
	fixture.Must(t, res.StatusCode == http.StatusOK, "%s: %s", res.Status, page)
	return string(page)
}

// missing returns the lines that are not on the page.
func missing(page string, lines []string) (not []string) {
	for _, line := range lines {
		if !strings.Contains("\n"+page, "\n"+line+"\n") {
			not = append(not, line)
		}
	}
	return not
}

func requireLines(t *testing.T, page string, lines ...string) {
	t.Helper()
	for _, line := range missing(page, lines) {
		name, _, _ := strings.Cut(line, "{")
		var have []string
		for l := range strings.Lines(page) {
			if strings.HasPrefix(l, name) {
				have = append(have, l)
			}
		}
		t.Errorf("no line %s, but\n%s", line, strings.Join(have, ""))
	}
}
