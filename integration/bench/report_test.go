package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// sample is a table with two competitors and three rounds.
func sample() *Table {
	t := &Table{Title: "relay", Columns: []Column{
		{"events/s", Count},
		{"÷ base", Ratio},
		{"p50 µs", Micros},
		{"done", Percent},
	}}
	for name, rates := range map[string][]float64{"base": {1000, 2000, 3000}, "other": {500, 3000, 1500}} {
		r := t.row(name, 3)
		for round, rate := range rates {
			t.set(r, round, "events/s", rate)
			t.set(r, round, "done", 100)
		}
	}
	if t.Rows[0].Name != "base" {
		t.Rows[0], t.Rows[1] = t.Rows[1], t.Rows[0]
	}
	t.set(t.Rows[1], 0, "p50 µs", 12345.6)
	t.divide("÷ base", "events/s", func(*Row) *Row { return t.find("base") })
	t.summarize()
	return t
}

// A ratio is the median of the ratios within a round (0.5, 1.5, 0.5), not the ratio of the medians
// (0.75).
func TestTableMedians(t *testing.T) {
	table := sample()
	if v := table.value("other", "events/s"); v != 1500 {
		t.Errorf("median %v", v)
	}
	if v := table.value("other", "÷ base"); v != 0.5 {
		t.Errorf("ratio %v", v)
	}
	if v := medianRatio(table, "events/s", "base", "other"); v != 2 {
		t.Errorf("ratio %v", v)
	}
	if v := table.value("nobody", "events/s"); !v.isNone() {
		t.Errorf("a missing row has %v", v)
	}
}

func TestTableText(t *testing.T) {
	var b bytes.Buffer
	sample().text(&b)
	want := `  relay   events/s   ÷ base   p50 µs    done
  ------------------------------------------
  base       2,000     1.00        –   100 %
  other      1,500     0.50   12,346   100 %
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	md := `| relay | events/s | ÷ base | p50 µs | done |
|---|--:|--:|--:|--:|
| base | 2,000 | 1.00 | – | 100 % |
| other | 1,500 | 0.50 | 12,346 | 100 % |
`
	if got := sample().markdown(); got != md {
		t.Errorf("got\n%s\nwant\n%s", got, md)
	}
}

func TestReportJSON(t *testing.T) {
	s := &Section{Name: "x", Title: "X", Tables: []*Table{sample()}}
	s.atLeast(0.7, 0.8, "at least %.1f", 0.8)
	s.atLeast(none, 0.8, "nobody")
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Section
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if len(back.Aims) != 1 || back.Aims[0].Met || back.Aims[0].Got != "0.70" {
		t.Errorf("aims %+v", back.Aims)
	}
	if v := back.Tables[0].Rows[0].Values[2]; !v.isNone() {
		t.Errorf("a missing figure became %v", v)
	}
	if v := back.Tables[0].value("other", "÷ base"); v != 0.5 {
		t.Errorf("ratio %v", v)
	}
}

func TestUpdateNeedsMarkers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(file, []byte("# no markers\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := updateFile(file, "text"); err == nil || !strings.Contains(err.Error(), markerBegin) {
		t.Errorf("got %v", err)
	}
}

// A run of some sections leaves the others as they are, and a run of all replaces everything.
func TestUpdateKeepsOtherSections(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.md")
	page := func(text string) string {
		return "# page\n\n" + markerBegin + "\n\n" + text + "\n" + markerEnd + "\n\nend\n"
	}
	if err := os.WriteFile(file, []byte(page("Monday.\n\n### A\n\n1\n\n### B\n\n2\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ run, want string }{
		{"Tuesday.\n\n### B\n\n3\n", "Monday.\n\n### A\n\n1\n\n### B\n\nFrom a run of its own, Tuesday.\n\n3\n"},
		{
			"Wednesday.\n\n### C\n\n4\n", "Monday.\n\n### A\n\n1\n\n### B\n\nFrom a run of its own, Tuesday.\n\n3\n" +
				"\n### C\n\nFrom a run of its own, Wednesday.\n\n4\n",
		},
		{"Friday.\n\n### A\n\n5\n\n### B\n\n6\n\n### C\n\n7\n", "Friday.\n\n### A\n\n5\n\n### B\n\n6\n\n### C\n\n7\n"},
	} {
		if err := updateFile(file, step.run); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != page(step.want) {
			t.Errorf("after %q the page is\n%s\nwant\n%s", step.run, got, page(step.want))
		}
	}
}

func TestLedger(t *testing.T) {
	l := newLedger()
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
	l = newLedger()
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
	for p, want := range map[float64]float64{50: 50, 99: 99, 100: 100} {
		if got := percentile(all, p); math.Abs(got-want) > want/1000 { // three significant figures
			t.Errorf("p%v: %v, want %v", p, got, want)
		}
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("nothing: %v", got)
	}
}

// When there are as many rounds as competitors, each competitor begins one round. Each competitor
// takes part in every round.
func TestInterleave(t *testing.T) {
	first := map[int]bool{}
	count := make([]int, 3)
	last := -1
	_ = interleave(3, 3, func(round, i int) error {
		if round != last {
			first[i], last = true, round
		}
		count[i]++
		return nil
	})
	if len(first) != 3 || count[0] != 3 || count[1] != 3 || count[2] != 3 {
		t.Errorf("first %v, count %v", first, count)
	}
}

func TestSectionText(t *testing.T) {
	s := &Section{
		Title: "A question", Seconds: 2, Notes: []string{strings.Repeat("word ", 30)},
		Tables: []*Table{sample()},
	}
	s.atLeast(0.7, 0.8, "fast enough")
	var b bytes.Buffer
	s.text(&b)
	for _, want := range []string{
		"\nA question (2 s)\n================\n- word ", "\n  word ",
		"\n  aim missed  0.70   fast enough\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > 112 {
			t.Errorf("a line has %d bytes: %s", len(line), line)
		}
	}
}
