package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// reporter gets the progress, from one goroutine.
type reporter interface {
	list(mutants []mutant)
	begin(mutants, packages, parallel int)
	baseline(b baseline)
	result(r result, tried, of int, since time.Duration)
	end(mutants, missed int, since time.Duration)
}

// text writes for people.
type text struct {
	w      io.Writer
	missed []result
}

func (t *text) list(mutants []mutant) {
	for i := range mutants {
		m := &mutants[i]
		fmt.Fprintf(t.w, "%s\n  breaks:    %s\n  promise:   %s\n", m.name, m.breaks, m.promise)
		for _, test := range m.tests {
			fmt.Fprintf(t.w, "  caught by: %s\n", test)
		}
	}
	fmt.Fprintf(t.w, "%d mutants\n", len(mutants))
}

func (t *text) begin(mutants, packages, parallel int) {
	fmt.Fprintf(t.w, "%d mutants, tests of %d packages, %d at a time\n\nthe tests as the code is:\n",
		mutants, packages, parallel)
}

func (t *text) baseline(b baseline) {
	verdict := "passed"
	if b.red > 0 {
		verdict = fmt.Sprintf("%d DID NOT PASS", b.red)
	}
	fmt.Fprintf(t.w, "  %-28s %3d tests, %s  (%.1f s)\n", b.pkg, b.tests, verdict, b.took.Seconds())
}

func (t *text) result(r result, tried, of int, since time.Duration) {
	if tried == 1 {
		fmt.Fprintln(t.w, "\nthe tests with each mutant:")
	}
	verdict := string(r.verdict)
	if r.verdict != caught {
		verdict = strings.ToUpper(verdict)
		t.missed = append(t.missed, r)
	}
	fmt.Fprintf(t.w, "%3d/%d %s  %-48s %s\n", tried, of, clock(since), r.name, verdict)
	fmt.Fprintf(t.w, "              %s\n", shorten(r.detail, 150))
}

func (t *text) end(mutants, missed int, since time.Duration) {
	for _, r := range t.missed {
		fmt.Fprintf(t.w, "\n%s: %s\n  breaks:  %s\n  promise: %s\n  %s\n",
			r.file, strings.ToUpper(string(r.verdict)), r.breaks, r.promise, r.detail)
		for line := range strings.Lines(lastLines(r.output, 40)) {
			fmt.Fprintf(t.w, "  | %s", line)
		}
	}
	fmt.Fprintf(t.w, "\n%d mutants, %d caught, %d not, in %s\n", mutants, mutants-missed, missed, clock(since))
}

func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// shorten cuts a text after most characters.
func shorten(s string, most int) string {
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most-1]) + "…"
}

// lastLines returns at most so many of the last lines of a text, with a line break at the end.
func lastLines(s string, most int) string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return ""
	}
	all := strings.Split(s, "\n")
	return strings.Join(all[max(0, len(all)-most):], "\n") + "\n"
}

// lines writes one JSON object per line, for programs.
type lines struct{ w io.Writer }

type line struct {
	Action  string   `json:"action"` // mutant, baseline, result, end
	Name    string   `json:"name,omitempty"`
	File    string   `json:"file,omitempty"`
	Breaks  string   `json:"breaks,omitempty"`
	Promise string   `json:"promise,omitempty"`
	Tests   []string `json:"tests,omitempty"`
	Verdict verdict  `json:"verdict,omitempty"`
	Detail  string   `json:"detail,omitempty"`
	Output  string   `json:"output,omitempty"`
	Seconds float64  `json:"seconds,omitempty"`
	Mutants int      `json:"mutants,omitempty"`
	Missed  *int     `json:"missed,omitempty"`
}

func (l *lines) write(v line) { _ = json.NewEncoder(l.w).Encode(v) }

func lineOf(action string, m *mutant) line {
	v := line{Action: action, Name: m.name, File: m.file, Breaks: m.breaks, Promise: m.promise}
	for _, t := range m.tests {
		v.Tests = append(v.Tests, t.String())
	}
	return v
}

func (l *lines) list(mutants []mutant) {
	for i := range mutants {
		l.write(lineOf("mutant", &mutants[i]))
	}
}

func (l *lines) begin(int, int, int) {}

func (l *lines) baseline(b baseline) {
	l.write(line{Action: "baseline", Name: b.pkg, Missed: &b.red, Seconds: b.took.Seconds()})
}

func (l *lines) result(r result, _, _ int, _ time.Duration) {
	v := lineOf("result", r.mutant)
	v.Verdict, v.Detail, v.Output, v.Seconds = r.verdict, r.detail, r.output, r.took.Seconds()
	l.write(v)
}

func (l *lines) end(mutants, missed int, since time.Duration) {
	l.write(line{Action: "end", Mutants: mutants, Missed: &missed, Seconds: since.Seconds()})
}
