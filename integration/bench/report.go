package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Report has all figures of a run. -json writes it.
type Report struct {
	Date     string     `json:"date"`
	Machine  string     `json:"machine"`
	Rounds   int        `json:"rounds"`
	Sections []*Section `json:"sections"`
}

// Section is one question.
type Section struct {
	Name   string   `json:"name"`
	Tables []*Table `json:"tables"`
	How    string   `json:"how,omitempty"` // of a section without rounds
}

// Table has one row for each competitor.
type Table struct {
	Title   string   `json:"title"`
	Columns []string `json:"columns"`
	Rows    []*Row   `json:"rows"`

	// Before are the suffixes of the ratios that stand in the cell of a column before its own.
	Before []string `json:"before,omitempty"`

	ratios bool // all columns after the first have ratios
}

// Row is one competitor: its figures in each round, and their medians.
type Row struct {
	Name    string    `json:"name"`
	Rounds  []figures `json:"rounds"`
	Medians figures   `json:"medians"`
}

// figures has a figure for each column that a competitor fills.
type figures map[string]float64

// competitor is somebody who is measured. run makes one measurement.
type competitor struct {
	name string
	run  func(ctx context.Context) (figures, error)
}

// table adds a table to the section.
func (e *env) table(title string, columns ...string) *Table {
	t := &Table{Title: title, Columns: columns}
	e.section.Tables = append(e.section.Tables, t)
	return t
}

// compete measures the competitors that -only selects in turns, and adds their figures to the rows
// of their names.
func (e *env) compete(ctx context.Context, t *Table, all []competitor) error {
	all = slices.DeleteFunc(slices.Clone(all), func(c competitor) bool { return !e.opts.only.MatchString(c.name) })
	rows := make([]*Row, len(all))
	for i, c := range all {
		if rows[i] = t.row(c.name); rows[i] == nil {
			rows[i] = &Row{Name: c.name, Rounds: make([]figures, e.opts.rounds)}
			t.Rows = append(t.Rows, rows[i])
		}
	}
	for round := range e.opts.rounds {
		fmt.Fprintf(e.progress, "%s, %s: round %d of %d\n", e.section.Name, t.Title, round+1, e.opts.rounds)
		for turn := range all {
			i := (round + turn) % len(all)
			runtime.GC() // frees the memory of the competitor before
			var got figures
			var err error
			pprof.Do(ctx, pprof.Labels("competitor", all[i].name), func(ctx context.Context) {
				got, err = all[i].run(ctx)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			if rows[i].Rounds[round] == nil {
				rows[i].Rounds[round] = figures{}
			}
			maps.Copy(rows[i].Rounds[round], got)
		}
	}
	t.summarize()
	return nil
}

// row returns the row of that name, or nil.
func (t *Table) row(name string) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// divide fills the column to: the column from, divided by the same column of the row that base
// names. A row without a base has no ratio.
func (t *Table) divide(to, from string, base func(row string) string) {
	for _, r := range t.Rows {
		b := t.row(base(r.Name))
		if b == nil {
			continue
		}
		for round, f := range r.Rounds {
			if v, ok := f[from]; ok && b.Rounds[round][from] > 0 {
				f[to] = v / b.Rounds[round][from]
			}
		}
	}
	t.summarize()
}

// divideBy is divide with one base for all rows.
func (t *Table) divideBy(to, from, base string) {
	t.divide(to, from, func(string) string { return base })
}

// aim fills the column "aim", the project's own, of a row that takes part.
func (t *Table) aim(row string, want float64) {
	if r := t.row(row); r != nil {
		for _, f := range r.Rounds {
			f["aim"] = want
		}
		t.summarize()
	}
}

// summarize computes the medians of all figures, also of those that have no column.
func (t *Table) summarize() {
	for _, r := range t.Rows {
		samples := map[string][]float64{}
		for _, f := range r.Rounds {
			for name, v := range f {
				samples[name] = append(samples[name], v)
			}
		}
		r.Medians = figures{}
		for name, all := range samples {
			r.Medians[name] = median(all)
		}
	}
}

// median of a sample that is not empty.
func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// percentile returns the p-th percentile in microseconds, and 0 of nothing.
func percentile(all []time.Duration, p float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	n := min(max(int(math.Ceil(p/100*float64(len(all)))), 1), len(all))
	return float64(all[n-1]) / float64(time.Microsecond)
}

// show formats a figure for people.
func show(column string, v float64) string {
	switch {
	case strings.HasPrefix(column, "÷"), column == "aim", column == "round trips":
		return fmt.Sprintf("%.2f", v)
	case column == "finished", column == "fast path", column == "HOT":
		return fmt.Sprintf("%.0f %%", v)
	case (strings.HasPrefix(column, "p") || strings.Contains(column, "p99 ms")) && v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// markdown returns the tables, for a page and for a terminal.
func (s *Section) markdown() string {
	var b strings.Builder
	for i, t := range s.Tables {
		if len(t.Rows) == 0 {
			continue
		}
		if i > 0 {
			b.WriteString("\n")
		}
		lines := [][]string{append([]string{t.Title}, t.Columns...)}
		for _, r := range t.Rows {
			line := []string{r.Name}
			for _, c := range t.Columns {
				line = append(line, t.cell(r, c))
			}
			lines = append(lines, line)
		}
		width := make([]int, len(lines[0]))
		for _, line := range lines {
			for c, cell := range line {
				width[c] = max(width[c], utf8.RuneCountInString(cell))
			}
		}
		for n, line := range lines {
			for c, cell := range line {
				pad := strings.Repeat(" ", width[c]-utf8.RuneCountInString(cell))
				if c == 0 {
					cell += pad
				} else {
					cell = pad + cell
				}
				b.WriteString("| " + cell + " ")
			}
			b.WriteString("|\n")
			if n == 0 {
				b.WriteString("|" + strings.Repeat("-", width[0]+2))
				for _, w := range width[1:] {
					b.WriteString("|" + strings.Repeat("-", w+1) + ":")
				}
				b.WriteString("|\n")
			}
		}
	}
	return b.String()
}

// cell returns the figures of a column.
func (t *Table) cell(r *Row, column string) string {
	v, ok := r.Medians[column]
	switch {
	case !ok:
		return "–"
	case t.ratios && column != t.Columns[0]:
		return fmt.Sprintf("%.2f", v)
	case t.Before == nil:
		return show(column, v)
	}
	var all []string
	for _, suffix := range t.Before {
		all = append(all, fmt.Sprintf("%.2f", r.Medians[column+suffix]))
	}
	return strings.Join(append(all, fmt.Sprintf("%.2f", v)), " ")
}

// line says when, where and how the figures of a section were measured.
func (r *Report) line(how string) string {
	if how == "" {
		how = fmt.Sprintf("medians of %d rounds.", r.Rounds)
	}
	return fmt.Sprintf("%s, %s; %s", r.Date, r.Machine, how)
}

// save writes the files that the options name.
func (r *Report) save(o options) error {
	if o.json != "" {
		b, err := json.MarshalIndent(r, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if o.page == "" {
		return nil
	}
	return r.writePage(o.page)
}
