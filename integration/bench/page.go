package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// offPage has the tables, columns and rows that docs/benchmarks.md leaves out. The terminal and
// -json have them.
var offPage = []string{
	"SQLite, unordered", "SQLite, ordered", "commit to a consumer of Kafka",
	"aim", "÷ polling", "backlog at end", "fast path", "finished",
	"PostgreSQL, polled", "PostgreSQL, pgxoutbox, polled", "MariaDB, polled", "SQLite, polled",
	"watermill-sql forwarder, defaults", "River, defaults",
}

// forPage returns the section without what offPage names.
func (s *Section) forPage() *Section {
	page := &Section{Name: s.Name}
	off := func(name string) bool { return slices.Contains(offPage, name) }
	for _, t := range s.Tables {
		if off(t.Title) {
			continue
		}
		if s.Name == "produce" {
			page.Tables = append(page.Tables, t.byClient())
			continue
		}
		shown := *t
		shown.Columns = slices.DeleteFunc(slices.Clone(t.Columns), off)
		shown.Rows = slices.DeleteFunc(slices.Clone(t.Rows), func(r *Row) bool { return off(r.Name) })
		page.Tables = append(page.Tables, &shown)
	}
	return page
}

// byClient returns a table of section produce with one row for each client: the rate of the second
// row, and the ratio of each other row to it.
func (t *Table) byClient() *Table {
	const rate = "second row, tx/s"
	page := &Table{Title: fmt.Sprintf("%s, ÷ second row", t.Title), Columns: []string{rate}, ratios: true}
	for _, r := range t.Rows {
		client := clientOf(r.Name)
		if page.row(client) == nil {
			page.Rows = append(page.Rows, &Row{Name: client, Medians: figures{}})
		}
		if r.Name == client+rowSecond {
			page.row(client).Medians[rate] = r.Medians[rateAt(mainLoad)]
			continue
		}
		column := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(r.Name, client), " +"))
		if !slices.Contains(page.Columns, column) {
			page.Columns = append(page.Columns, column)
		}
		page.row(client).Medians[column] = r.Medians[ratioAt(mainLoad)]
	}
	return page
}

// writePage writes the tables of each section between the section's markers.
func (r *Report) writePage(file string) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := string(page)
	for _, s := range r.Sections {
		begin, end := "<!-- begin: "+s.Name+" -->\n", "<!-- end: "+s.Name+" -->"
		head, rest, found := strings.Cut(text, begin)
		_, tail, ended := strings.Cut(rest, end)
		if !found || !ended {
			return fmt.Errorf("%s lacks the markers of section %s", file, s.Name)
		}
		text = head + begin + "\n" + r.line(s.How) + "\n\n" + s.forPage().markdown() + "\n" + end + tail
	}
	return os.WriteFile(file, []byte(text), 0o644)
}
