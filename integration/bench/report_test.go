package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sample is a table with two competitors and three rounds.
func sample() *Section {
	t := &Table{Title: "relay", Columns: []string{"events/s", "÷ base", "aim", "p50 µs", "finished"}}
	for _, c := range []struct {
		name  string
		rates []float64
	}{{"base", []float64{1000, 2000, 3000}}, {"other", []float64{500, 3000, 1500}}} {
		r := &Row{Name: c.name}
		for _, rate := range c.rates {
			r.Rounds = append(r.Rounds, figures{"events/s": rate, "finished": 100})
		}
		t.Rows = append(t.Rows, r)
	}
	t.Rows[1].Rounds[0]["p50 µs"] = 12345.6
	t.divideBy("÷ base", "events/s", "base")
	t.aim("other", 0.8)
	t.aim("nobody", 0.8)
	return &Section{Name: "drain", Tables: []*Table{t}}
}

// A ratio is the median of the ratios within a round (0.5, 1.5, 0.5), not the ratio of the medians
// (0.75).
func TestTable(t *testing.T) {
	const want = `| relay | events/s | ÷ base |  aim | p50 µs | finished |
|-------|---------:|-------:|-----:|-------:|---------:|
| base  |    2,000 |   1.00 |    – |      – |    100 % |
| other |    1,500 |   0.50 | 0.80 | 12,346 |    100 % |
`
	if got := sample().markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// When there are as many rounds as competitors, each competitor begins one round. Each competitor
// takes part in every round.
func TestCompete(t *testing.T) {
	args := []string{"-rounds", "3", "-only", "^[abc]$"}
	opts, err := parseOptions(args, func(string) string { return "x" }, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	var progress strings.Builder
	e := &env{opts: opts, section: &Section{Name: "x"}, progress: &progress}
	var turns []string
	var all []competitor
	for _, name := range []string{"a", "b", "left out", "c"} {
		all = append(all, competitor{name, func(context.Context) (figures, error) {
			turns = append(turns, name)
			return figures{"turn": float64(len(turns))}, nil
		}})
	}
	table := e.table("turns", "turn")
	if err := e.compete(t.Context(), table, all); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(turns, ""); got != "abcbcacab" {
		t.Errorf("the turns were %s", got)
	}
	if len(table.Rows) != 3 || table.Rows[0].Medians["turn"] != 6 {
		t.Errorf("%d rows, and the first has a median of %v", len(table.Rows), table.Rows[0].Medians)
	}
}

// The page has fewer tables, columns and rows than the terminal.
func TestPageLeavesOut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(
		file,
		[]byte("# Page\n<!-- begin: drain -->\nold\n<!-- end: drain -->\n"),
		0o600,
	); err != nil {
		t.Fatal(err)
	}
	s := sample()
	s.Tables = append(s.Tables, &Table{Title: "SQLite, ordered", Rows: s.Tables[0].Rows})
	s.Tables[0].Rows = append(s.Tables[0].Rows, &Row{Name: "SQLite, polled", Medians: figures{"events/s": 1}})
	r := &Report{Date: "2026-11-30", Machine: "a machine", Rounds: 3, Sections: []*Section{s}}
	if err := r.save(options{page: file}); err != nil {
		t.Fatal(err)
	}
	const want = `# Page
<!-- begin: drain -->

2026-11-30, a machine; medians of 3 rounds.

| relay | events/s | ÷ base | p50 µs |
|-------|---------:|-------:|-------:|
| base  |    2,000 |   1.00 |      – |
| other |    1,500 |   0.50 | 12,346 |

<!-- end: drain -->
`
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

// The page has one row of ratios for each client of section produce.
func TestPageByClient(t *testing.T) {
	table := &Table{Title: "database near", Columns: columnsOf(nearLoads)}
	for name, ratio := range map[string]float64{rowAlone: 1.5, rowSecond: 1, rowOrdered: 0.8} {
		table.Rows = append(table.Rows, &Row{Name: "GORM" + name, Medians: figures{
			rateAt(mainLoad): 4000 * ratio, ratioAt(mainLoad): ratio,
		}})
	}
	slices.SortFunc(table.Rows, func(a, b *Row) int { return strings.Compare(a.Name, b.Name) })
	const want = `| database near, ÷ second row | second row, tx/s | ordered event | alone |
|-----------------------------|-----------------:|--------------:|------:|
| GORM                        |            4,000 |          0.80 |  1.50 |
`
	if got := (&Section{Name: "produce", Tables: []*Table{table}}).forPage().markdown(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPageNeedsMarkers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("# no markers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &Report{Sections: []*Section{sample()}}
	if err := r.save(options{page: file}); err == nil || !strings.Contains(err.Error(), "drain") {
		t.Errorf("got %v", err)
	}
}

func TestLedger(t *testing.T) {
	l := &ledger{}
	for n := range 3 {
		p := newPayload(n)
		if len(p) != payloadSize || !json.Valid(p) {
			t.Fatalf("payload %q", p)
		}
		l.see(payloadNumber(p))
	}
	if err := l.check(3); err != nil {
		t.Error(err)
	}
	if err := l.check(4); err == nil {
		t.Error("a lost event went unnoticed")
	}
	if err := l.check(2); err == nil {
		t.Error("an event that was not committed went unnoticed")
	}
	l.see(1)
	if err := l.check(3); err == nil {
		t.Error("a duplicate went unnoticed")
	}
	l = newOrderedLedger(2)
	for _, n := range []int{0, 1, 4, 2, 3} { // 2 comes after 4, which has the same key
		l.see(n)
	}
	if err := l.check(5); err == nil {
		t.Error("a wrong order went unnoticed")
	}
	l = &ledger{}
	l.see(payloadNumber([]byte(`{"other":"payload"}`)))
	if err := l.checkPart(1); err == nil {
		t.Error("a changed event went unnoticed")
	}
}

func TestPercentile(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Microsecond)
	}
	for p, want := range map[float64]float64{1: 1, 50: 50, 99: 99, 100: 100} {
		if got := percentile(all, p); got != want {
			t.Errorf("p%v: %v, want %v", p, got, want)
		}
	}
}

// A ratio is the median of the ratios within the rounds. Figures without a partner are left out.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	for name, values := range map[string][]float64{"before": {100, 200, 50}, "present": {102, 100, 51}} {
		for n, v := range values {
			table := &Table{Title: "Ordered", Columns: []string{"events/s", "÷ base", "lag"}}
			table.Rows = []*Row{{Name: "ours", Rounds: []figures{{"events/s": v, "÷ base": v}}}}
			if name == "present" {
				table.Rows = append(table.Rows, &Row{Name: "new", Rounds: []figures{{"events/s": v}}})
			}
			table.summarize()
			text, err := json.Marshal(Report{Sections: []*Section{{Name: "drain", Tables: []*Table{table}}}})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.json", name, n)), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var out strings.Builder
	if err := compare(dir, &out); err != nil {
		t.Fatal(err)
	}
	want := "present / before, median of 3 rounds:\n   1.020  drain: Ordered: ours: events/s\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if err := compare(t.TempDir(), &out); err == nil {
		t.Error("an empty folder was compared")
	}
}
