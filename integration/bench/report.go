package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"
)

// Report has all results of a run. -json writes it.
type Report struct {
	Started  time.Time  `json:"started"`
	Seconds  float64    `json:"seconds"`
	Machine  Machine    `json:"machine"`
	Options  Shown      `json:"options"`
	Sections []*Section `json:"sections"`
}

// Machine describes the machine and the server of the figures.
type Machine struct {
	Go       string `json:"go"`
	Platform string `json:"platform"`
	CPUs     int    `json:"cpus"`
	Postgres string `json:"postgres"`
	Settings string `json:"settings"` // the settings of PostgreSQL that change the figures
	Durable  bool   `json:"durable"`  // every commit is synced
}

// Section is one question, with its tables and the aims for their figures.
type Section struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Seconds float64  `json:"seconds"`
	Notes   []string `json:"notes,omitempty"`
	Tables  []*Table `json:"tables"`
	Aims    []Aim    `json:"aims,omitempty"`
}

func (s *Section) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// Table has one row for each competitor.
type Table struct {
	Title   string   `json:"title"`
	Columns []Column `json:"columns"`
	Rows    []*Row   `json:"rows"`
}

// Column is the name and the kind of a figure.
type Column struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind"`
}

// Kind says how a figure is shown.
type Kind string

// Kinds of figures.
const (
	Count   Kind = "count"   // 12,345
	Ratio   Kind = "ratio"   // 0.97
	Micros  Kind = "micros"  // microseconds, 12.3 or 4,567
	Percent Kind = "percent" // 100 %
)

// Row is one competitor: each figure in each round, and the medians.
type Row struct {
	Name   string    `json:"name"`
	Values []Value   `json:"values"`
	Rounds [][]Value `json:"rounds"`
}

// Value is a figure, or none (NaN), which is null in JSON.
type Value float64

var none = Value(math.NaN())

func (v Value) isNone() bool { return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.isNone() {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(float64(v)*1000) / 1000)
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	*v = none
	if string(b) == "null" {
		return nil
	}
	return json.Unmarshal(b, (*float64)(v))
}

// Aim is the value that a figure should reach. A missed aim is reported and is never an error.
type Aim struct {
	Text string `json:"text"`
	Got  string `json:"got"`
	Met  bool   `json:"met"`
}

// aim adds an aim, unless its figure is missing because a competitor was left out.
func (s *Section) aim(got Value, met bool, shown, format string, args ...any) {
	if got.isNone() {
		return
	}
	s.Aims = append(s.Aims, Aim{Text: fmt.Sprintf(format, args...), Got: shown, Met: met})
}

// atLeast adds the aim that a ratio is at least want.
func (s *Section) atLeast(got Value, want float64, format string, args ...any) {
	s.aim(got, float64(got) >= want, Ratio.text(got), format, args...)
}

// table adds a table.
func (s *Section) table(title string, columns ...Column) *Table {
	t := &Table{Title: title, Columns: columns}
	s.Tables = append(s.Tables, t)
	return t
}

// row adds a competitor, with room for its rounds.
func (t *Table) row(name string, rounds int) *Row {
	r := &Row{Name: name, Rounds: make([][]Value, rounds)}
	for i := range r.Rounds {
		r.Rounds[i] = make([]Value, len(t.Columns))
		for c := range r.Rounds[i] {
			r.Rounds[i][c] = none
		}
	}
	t.Rows = append(t.Rows, r)
	return r
}

func (t *Table) column(name string) int {
	for i, c := range t.Columns {
		if c.Name == name {
			return i
		}
	}
	return -1
}

// find returns the row of that name, or nil.
func (t *Table) find(name string) *Row {
	for _, r := range t.Rows {
		if r.Name == name {
			return r
		}
	}
	return nil
}

// set stores a figure of a round.
func (t *Table) set(r *Row, round int, column string, v float64) {
	r.Rounds[round][t.column(column)] = Value(v)
}

// divide fills the column to. Its value in a row and round is the row's column from, divided by
// column from of the row that base returns.
func (t *Table) divide(to, from string, base func(r *Row) *Row) {
	c, f := t.column(to), t.column(from)
	for _, r := range t.Rows {
		b := base(r)
		if b == nil {
			continue
		}
		for i := range r.Rounds {
			r.Rounds[i][c] = r.Rounds[i][f] / b.Rounds[i][f]
		}
	}
}

// summarize computes the medians.
func (t *Table) summarize() {
	for _, r := range t.Rows {
		r.Values = make([]Value, len(t.Columns))
		for c := range t.Columns {
			var all []float64
			for _, round := range r.Rounds {
				if !round[c].isNone() {
					all = append(all, float64(round[c]))
				}
			}
			r.Values[c] = Value(median(all))
		}
	}
}

// value returns a median. It returns no value if the row was left out.
func (t *Table) value(row, column string) Value {
	r := t.find(row)
	if r == nil {
		return none
	}
	return r.Values[t.column(column)]
}

// save writes the files that were asked for.
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
	for _, page := range []string{o.markdown, o.update} {
		if page == "" {
			continue
		}
		if err := r.savePlots(page); err != nil {
			return err
		}
	}
	if o.markdown != "" {
		if err := os.WriteFile(o.markdown, []byte(r.markdown()), 0o644); err != nil {
			return err
		}
	}
	if o.update != "" {
		return updateFile(o.update, r.markdown())
	}
	return nil
}
