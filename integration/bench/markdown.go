package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Markers around the part of a Markdown file that -update replaces.
const (
	markerBegin = "<!-- begin: written by integration/bench -->"
	markerEnd   = "<!-- end: written by integration/bench -->"
)

// markdown returns the tables for docs/benchmarks.md.
func (r *Report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s; %s; %.0f s.\n", r.Started.Format("2006-01-02"), r.Machine.line(), r.Options.line(),
		r.Seconds)
	if !r.Machine.Durable {
		b.WriteString("\n**This server did not sync commits: the figures mean little.**\n")
	}
	for _, s := range r.Sections {
		fmt.Fprintf(&b, "\n### %s\n", s.Title)
		for i, note := range s.Notes {
			if i == 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "- %s\n", note)
		}
		if len(s.Tables) > 0 {
			fmt.Fprintf(&b, "\n![%s](%s)\n", s.Title, s.plotFile())
		}
		for _, t := range s.Tables {
			b.WriteString("\n" + t.markdown())
		}
		if len(s.Aims) > 0 {
			b.WriteString("\n| aim | measured | |\n|---|--:|---|\n")
		}
		for _, a := range s.Aims {
			word := "**missed**"
			if a.Met {
				word = "met"
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", a.Text, a.Got, word)
		}
	}
	return b.String()
}

func (t *Table) markdown() string {
	var b strings.Builder
	b.WriteString("| " + t.Title + " |")
	for _, c := range t.Columns {
		b.WriteString(" " + c.Name + " |")
	}
	b.WriteString("\n|---|" + strings.Repeat("--:|", len(t.Columns)) + "\n")
	for _, r := range t.Rows {
		b.WriteString("| " + r.Name + " |")
		for i, v := range r.Values {
			b.WriteString(" " + t.Columns[i].Kind.text(v) + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// updateFile replaces the text between the markers, see mergeSections.
func updateFile(path, text string) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	head, rest, found := strings.Cut(string(old), markerBegin)
	written, tail, ended := strings.Cut(rest, markerEnd)
	if !found || !ended {
		return fmt.Errorf("%s lacks the markers %q and %q", path, markerBegin, markerEnd)
	}
	text = mergeSections(strings.Trim(written, "\n"), text)
	return os.WriteFile(path, []byte(head+markerBegin+"\n\n"+text+"\n"+markerEnd+tail), 0o644)
}

// mergeSections returns text, which one run has written, with the sections of old that the run has
// not measured. If there are such sections, each section of the run begins with a line about the
// run, and the first line of old stays that of the others.
func mergeSections(old, text string) string {
	const heading = "\n### "
	before, measured := strings.Split(old, heading), strings.Split(text, heading)
	title := func(section string) string {
		first, _, _ := strings.Cut(section, "\n")
		return first
	}
	has := func(all []string, section string) int {
		return slices.IndexFunc(all[1:], func(s string) bool { return title(s) == title(section) })
	}
	if !slices.ContainsFunc(before[1:], func(s string) bool { return has(measured, s) < 0 }) {
		return text
	}
	merged := before
	for _, s := range measured[1:] {
		run, rest := strings.Trim(measured[0], "\n"), strings.TrimPrefix(s, title(s))
		s = title(s) + "\n\nFrom a run of its own, " + run + "\n\n" + strings.Trim(rest, "\n")
		if n := has(before, s); n >= 0 {
			merged[n+1] = s
		} else {
			merged = append(merged, s)
		}
	}
	for i := range merged {
		merged[i] = strings.Trim(merged[i], "\n")
	}
	return strings.Join(merged, "\n"+heading) + "\n"
}
