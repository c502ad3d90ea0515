package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// text formats a figure for people.
func (k Kind) text(v Value) string {
	if v.isNone() {
		return "–"
	}
	f := float64(v)
	switch k {
	case Ratio:
		if math.Abs(f) >= 100 {
			return thousands(f)
		}
		return fmt.Sprintf("%.2f", f)
	case Micros:
		if math.Abs(f) < 100 {
			return fmt.Sprintf("%.1f", f)
		}
	case Percent:
		return fmt.Sprintf("%.0f %%", f)
	case Count:
	}
	return thousands(f)
}

// thousands rounds f and groups its digits.
func thousands(f float64) string {
	s := fmt.Sprintf("%.0f", math.Abs(f))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if f <= -0.5 {
		s = "-" + s
	}
	return s
}

func (r *Report) header(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s\n", r.Machine.line(), r.Options.line())
	if !r.Machine.Durable {
		fmt.Fprintln(w, "WARNING: this server does not sync commits: absolute figures mean nothing, and ratios "+
			"little. Use `make bench`.")
	}
}

func (m Machine) line() string {
	return fmt.Sprintf("%s, %s, %d CPUs shared with the database, %s (%s)", m.Go, m.Platform, m.CPUs, m.Postgres,
		m.Settings)
}

func (s Shown) line() string {
	line := fmt.Sprintf("medians of %d interleaved rounds; ratios are medians of the ratios within a round", s.Rounds)
	if s.Only != "" {
		line += fmt.Sprintf("; only competitors that match %q", s.Only)
	}
	return line
}

func (s *Section) text(w io.Writer) {
	title := fmt.Sprintf("%s (%.0f s)", s.Title, s.Seconds)
	fmt.Fprintf(w, "\n%s\n%s\n", title, strings.Repeat("=", utf8.RuneCountInString(title)))
	for _, note := range s.Notes {
		fmt.Fprintln(w, wrap("- "+note, 110, "  "))
	}
	for _, t := range s.Tables {
		fmt.Fprintln(w)
		t.text(w)
	}
	if len(s.Aims) > 0 {
		fmt.Fprintln(w)
	}
	for _, a := range s.Aims {
		fmt.Fprintln(w, a.line())
	}
}

func (a Aim) line() string {
	word := "missed"
	if a.Met {
		word = "met"
	}
	return fmt.Sprintf("  aim %-7s %-6s %s", word, a.Got, a.Text)
}

func (t *Table) text(w io.Writer) {
	lines := [][]string{{t.Title}}
	for _, c := range t.Columns {
		lines[0] = append(lines[0], c.Name)
	}
	for _, r := range t.Rows {
		line := []string{r.Name}
		for i, v := range r.Values {
			line = append(line, t.Columns[i].Kind.text(v))
		}
		lines = append(lines, line)
	}
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, line := range lines {
		for i, cell := range line {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				fmt.Fprint(w, "  ", cell, pad)
			} else {
				fmt.Fprint(w, "   ", pad, cell)
			}
		}
		fmt.Fprintln(w)
		if n == 0 {
			total := 2
			for _, n := range width {
				total += n + 3
			}
			fmt.Fprintln(w, "  "+strings.Repeat("-", total-5))
		}
	}
}

func (r *Report) summary(w io.Writer) {
	met, all := 0, 0
	for _, s := range r.Sections {
		for _, a := range s.Aims {
			all++
			if a.Met {
				met++
			}
		}
	}
	if all == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d of %d aims met, in %.0f s\n", met, all, r.Seconds)
	for _, s := range r.Sections {
		for _, a := range s.Aims {
			if !a.Met {
				fmt.Fprintf(w, "%s (%s)\n", a.line(), s.Name)
			}
		}
	}
}

// wrap breaks text between words. Lines after the first are indented.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	n := 0
	for i, word := range strings.Fields(text) {
		size := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case n+1+size > width:
			b.WriteString("\n" + indent)
			n = len(indent)
		default:
			b.WriteByte(' ')
			n++
		}
		b.WriteString(word)
		n += size
	}
	return b.String()
}
