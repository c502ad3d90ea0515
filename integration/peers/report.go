package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// report prints a table for people, and below it what differs.
func report(w io.Writer, results []result) {
	if len(results) == 0 {
		return
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "suite\tdatabase\twith\ttests\tsubtests\tplain\tpassed\ttold\tdiffering\texcepted")
	for _, r := range results {
		for _, m := range r.pair.suite.modes {
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", r.pair.suite.name, r.pair.database.name, m,
				r.tests, r.subtests, r.plain, r.with[m].passed, r.with[m].told, in(r.differing, m), in(r.excepted, m))
		}
	}
	_ = table.Flush()
	for _, r := range results {
		for _, d := range r.differing {
			fmt.Fprintf(w, "%s: %s differs (%s)\n    see %s\n", r.pair, d.test, d, d.log)
		}
		for _, d := range r.excepted {
			fmt.Fprintf(w, "%s: %s is excepted: %s\n", r.pair, d.test, d.reason)
		}
		if len(r.unstable) > 0 {
			fmt.Fprintf(w, "%s: differed, but not each time: %s\n", r.pair, strings.Join(r.unstable, ", "))
		}
	}
}

// in counts the differences of a mode.
func in(differences []difference, m mode) int {
	n := 0
	for _, d := range differences {
		if slices.Contains(d.modes, m) {
			n++
		}
	}
	return n
}

func (d difference) String() string {
	modes := make([]string, len(d.modes))
	for i, m := range d.modes {
		modes[i] = string(m)
	}
	verdict := d.verdict
	if verdict == "" {
		verdict = "did not run"
	}
	return strings.Join(modes, ", ") + ": " + verdict
}
