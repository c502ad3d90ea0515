package monitoring

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// dashboard is the part of dashboard.json that the tests look at.
type dashboard struct {
	SchemaVersion int     `json:"schemaVersion"`
	UID           string  `json:"uid"`
	Panels        []panel `json:"panels"`
	Templating    struct {
		List []struct {
			Name  string          `json:"name"`
			Type  string          `json:"type"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  datasource `json:"datasource"`
	Grid        struct {
		H, W, X, Y int
	} `json:"gridPos"`
	Field struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr       string     `json:"expr"`
		Legend     string     `json:"legendFormat"`
		Datasource datasource `json:"datasource"`
	} `json:"targets"`
}

type datasource struct {
	UID string `json:"uid"`
}

func loadDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	fixture.NoError(t, json.Unmarshal(read(t, file(t, "dashboard.json")), &d))
	fixture.Must(t, len(d.Panels) != 0, "the dashboard has no panels")
	return d
}

// grafana replaces Grafana's variables with values.
var grafana = strings.NewReplacer("$__rate_interval", "1m", "$namespace", "prod", "$job", "shop")

// legend is a label in a legend.
var legend = regexp.MustCompile(`{{(\w+)}}`)

// Every query of the dashboard finds its series in the scrape of a running relay, and every metric
// of docs/metrics.md is on the dashboard.
func TestDashboardShowsSeriesThatExist(t *testing.T) {
	t.Parallel()
	s, shown := scrape(t), map[string]bool{}
	for _, p := range loadDashboard(t).Panels {
		for _, target := range p.Targets {
			query := grafana.Replace(target.Expr)
			if strings.Contains(query, "$") {
				t.Errorf("%s: a variable that the dashboard does not have: %s", p.Title, query)
			}
			for _, name := range s.check(t, p.Title, query) {
				shown[strings.TrimSuffix(name, "_bucket")] = true
				shown[strings.TrimSuffix(name, "_sum")] = true
			}
			for _, l := range legend.FindAllStringSubmatch(target.Legend, -1) {
				if !regexp.MustCompile(`by \([^)]*\b` + l[1] + `\b`).MatchString(query) {
					t.Errorf("%s: the legend has label %s, the query does not keep it: %s", p.Title, l[1], query)
				}
			}
		}
	}
	table := string(read(t, filepath.Join(fixture.Root(t), "docs", "metrics.md")))
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (?:counter|gauge|histogram) \\|").FindAllStringSubmatch(table, -1)
	fixture.Must(t, len(rows) != 0, "docs/metrics.md has no table")
	for _, row := range rows {
		if !shown[row[1]] {
			t.Errorf("the dashboard does not show %s", row[1])
		}
	}
}

// Every process reports the same backlog and the same audit rows, those of the table. So a sum over
// processes would count each event several times.
func TestFleetGaugesAreNotSummed(t *testing.T) {
	t.Parallel()
	summed := regexp.MustCompile(`(sum|avg)( by \([^)]*\))? ?\(((rate|increase)\()?` +
		`(outbox_backlog_messages|outbox_backlog_oldest_age_seconds|outbox_blocked_keys|outbox_audit_rows_total|` +
		`outbox_log_)`)
	queries := map[string]string{}
	for _, r := range rules(t) {
		queries[r.Alert] = r.Expr
	}
	for _, p := range loadDashboard(t).Panels {
		for i, target := range p.Targets {
			queries[fmt.Sprint(p.Title, i)] = target.Expr
		}
	}
	for where, query := range queries {
		fixture.Check(t, !summed.MatchString(query), "%s: use max: %s", where, query)
	}
}

// Every panel says what it shows and in which unit, reads the chosen data source, and has a place.
func TestPanels(t *testing.T) {
	t.Parallel()
	d := loadDashboard(t)
	fixture.Check(t, d.SchemaVersion >= 39 && d.UID != "", "schema version %d, uid %q", d.SchemaVersion, d.UID)
	var rows []string
	ids, titles, taken := map[int]bool{}, map[string]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		fixture.Check(t, !ids[p.ID] && !titles[p.Title] && p.Title != "",
			"panel %d %q exists twice, or has no title", p.ID, p.Title)
		ids[p.ID], titles[p.Title] = true, true
		if p.Grid.X+p.Grid.W > 24 {
			t.Errorf("%s is wider than the dashboard", p.Title)
		}
		for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
			for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Description == "" || p.Field.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s lacks a description, a unit or a query", p.Title)
		}
		sources := []datasource{p.Datasource}
		for _, target := range p.Targets {
			sources = append(sources, target.Datasource)
		}
		if slices.ContainsFunc(sources, func(s datasource) bool { return s.UID != "${datasource}" }) {
			t.Errorf("%s does not read the chosen data source", p.Title)
		}
	}
	want := []string{
		"At a glance", "Outbox: producers and backlog", "Relay", "Destinations", "Reader of the log", "Inbox",
		"Idempotency keys and HTTP", "Effects",
	}
	fixture.Check(t, slices.Equal(rows, want), "rows %q", rows)
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	if want := []string{"datasource datasource", "namespace query", "job query"}; !slices.Equal(variables, want) {
		t.Errorf("variables %q", variables)
	}
	// Panels and alerts name each other.
	page := string(read(t, filepath.Join(fixture.Root(t), "docs", "monitoring.md")))
	quoted := regexp.MustCompile(`[Pp]anels? ((?:"[^"]+"(?:, | and )?)+)`)
	found := 0
	for _, m := range quoted.FindAllStringSubmatch(strings.Join(strings.Fields(page), " "), -1) {
		for _, title := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(m[1], -1) {
			if found++; !titles[title[1]] {
				t.Errorf("docs/monitoring.md names panel %q, which the dashboard does not have", title[1])
			}
		}
	}
	fixture.Check(t, found != 0, "docs/monitoring.md names no panel")
	alerts := map[string]bool{}
	for _, r := range rules(t) {
		alerts[r.Alert] = true
	}
	for _, p := range d.Panels {
		name := regexp.MustCompile(`\b(Outbox|Inbox|Idempotency|Effects)[A-Z]\w+`)
		for _, name := range name.FindAllString(p.Description, -1) {
			if !alerts[name] {
				t.Errorf("%s names alert %s, which does not exist", p.Title, name)
			}
		}
	}
}
