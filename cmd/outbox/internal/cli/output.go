package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// print writes v as JSON with --json, and calls people otherwise.
func (a *app) print(v any, people func()) error {
	if !a.json {
		people()
		return nil
	}
	e := json.NewEncoder(a.Out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// listing is the output of a command that lists all there is: the rows, in a field named after
// them.
type listing map[string]any

// paging ends what a command that lists prints with --json. The rows are in a field with the name
// of the things.
type paging struct {
	More bool   `json:"more"`           // there may be more
	Next string `json:"next,omitempty"` // the next page, for --after; empty: there is none, or no such flag
}

// pageAfter is the paging behind rows, of which a page has at most limit. id returns a row's id.
func pageAfter[R any](rows []R, limit int, id func(R) string) (p paging) {
	if p.More = len(rows) >= limit; p.More {
		p.Next = id(rows[len(rows)-1])
	}
	return p
}

// notePaging prints how to get the rest.
func (a *app) notePaging(p paging) {
	switch {
	case p.Next != "":
		a.note("there may be more: --after %s", shellWord(p.Next))
	case p.More:
		a.note("there may be more: raise --limit, or give a filter")
	}
}

// table is a table for people: its columns are as wide as they need to be.
type table struct {
	rows [][]string
}

// newTable returns a table with heads, which are separated by |.
func newTable(heads string) *table { return &table{rows: [][]string{strings.Split(heads, "|")}} }

// add adds a row of texts, each in one line.
func (t *table) add(cells ...any) {
	t.rows = append(t.rows, converted(cells, func(cell any) string { return fmt.Sprint(shown(cell)) }))
}

func (t *table) write(w io.Writer) {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(cell))
		}
	}
	for _, row := range t.rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			b.WriteString(strings.Repeat(" ", widths[i]-width(cell)+2))
		}
		_, _ = fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// printRows prints a table with a row for each thing, or the text none. The heads are separated by |.
func printRows[T any](a *app, none, heads string, things []T, add func(t *table, thing T)) {
	if len(things) == 0 {
		a.sayf("%s\n", none)
		return
	}
	t := newTable(heads)
	for _, thing := range things {
		add(t, thing)
	}
	t.write(a.Out)
}

// width is the number of characters that a terminal shows of a cell.
func width(cell string) int {
	n := utf8.RuneCountInString(cell)
	for _, code := range []string{red, green, yellow, bold, plain} {
		n -= strings.Count(cell, code) * len(code)
	}
	return n
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	bold   = "\x1b[1m"
	plain  = "\x1b[0m"
)

// moment is a time as people read it.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// many is a number of things: 1 event, 2 events.
func many(n int, thing string) string { return strconv.Itoa(n) + " " + plural(n, thing) }

// counted is a number of things that were counted up to a limit: there may be more.
func counted(n int64, capped bool) string {
	if capped {
		return strconv.FormatInt(n, 10) + "+"
	}
	return strconv.FormatInt(n, 10)
}

// inRed is a text in red if it is about something.
func (a *app) inRed(something bool, text string) painted {
	if something {
		return a.paint(red, text)
	}
	return a.paint("", text)
}

// plural is the word for n things.
func plural(n int, thing string) string {
	if n == 1 {
		return thing
	}
	return thing + "s"
}

// orDash is a cell that is not empty.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// age is a duration as people read it.
func age(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + age(-d)
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return strings.TrimSuffix(d.Round(time.Second).String(), "m0s") + minutes(d.Round(time.Second))
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// minutes completes a duration of whole minutes, which has lost its seconds.
func minutes(d time.Duration) string {
	if d >= time.Minute && d%time.Minute == 0 {
		return "m"
	}
	return ""
}
