package crash

import (
	"fmt"
	"strings"
)

// Verdict is the comparison of the messages that a broker accepted with the committed events.
type Verdict struct {
	Cell       string
	Kills      int
	Committed  int
	Delivered  int // different events
	Lost       int // committed, never accepted
	Ghosts     int // accepted, never committed
	Duplicates int // copies after the first
	Bound      int // upper bound of Duplicates
	Worst      int // the largest number in Repeated
	Violations int // first copies that did not come after all lower places of their key

	// Repeated counts, for each process, the events that it sent and of which another copy came
	// later. The events that its poller had claimed are counted under Poller of the process.
	Repeated map[string]int
	problems []string
}

// Judge compares the records with the truth. The places of events come from the truth, and the
// outbox's own numbers must agree with them.
func Judge(cell string, records []Message, truth Truth) Verdict {
	v := Verdict{Cell: cell, Committed: len(truth.Events)}
	seen := map[string]bool{}
	last := map[string]Message{}
	by := map[string]string{} // the sender of the latest copy, by event
	v.Repeated = map[string]int{}
	counted := map[[2]string]bool{} // sender and event
	for i, m := range records {
		f, ok := truth.Events[m.EventID]
		if !ok {
			v.Ghosts++
			v.problem("ghost: record %d, event %s from %s", i, m.EventID, m.From)
			continue
		}
		if seen[m.EventID] {
			v.Duplicates++
			if pair := [2]string{by[m.EventID], m.EventID}; !counted[pair] {
				counted[pair] = true
				v.Repeated[pair[0]]++
				v.Worst = max(v.Worst, v.Repeated[pair[0]])
			}
			by[m.EventID] = m.by()
			continue
		}
		seen[m.EventID], by[m.EventID] = true, m.by()
		if f.Key == "" {
			continue
		}
		before, any := last[f.Key]
		if any && (truth.Events[before.EventID].N >= f.N || before.KeySeq >= m.KeySeq) {
			v.Violations++
			v.problem("order: record %d, %s place %d (key_seq %d, from %s) after place %d (key_seq %d, from %s)", i,
				f.Key, f.N, m.KeySeq, m.From,
				truth.Events[before.EventID].N, before.KeySeq, before.From)
		}
		last[f.Key] = m
	}
	v.Delivered = len(seen)
	for id, f := range truth.Events {
		if !seen[id] {
			v.Lost++
			v.problem("lost: event %s, %q place %d", id, f.Key, f.N)
		}
	}
	return v
}

// Limit sets how many duplicates there may be in all, and for each process that was killed or
// paused. ended has the names of Repeated.
func (v *Verdict) Limit(all int, ended map[string]int) {
	v.Bound = all
	for name, most := range ended {
		if n := v.Repeated[name]; n > most {
			v.problem("%d events of %s were repeated after it, more than %d", n, name, most)
		}
	}
}

func (v *Verdict) problem(format string, args ...any) {
	if len(v.problems) < 20 {
		v.problems = append(v.problems, fmt.Sprintf(format, args...))
	}
}

// Err returns an error that names each broken promise.
func (v *Verdict) Err() error {
	if v.Duplicates > v.Bound {
		v.problem("%d duplicates, more than %d", v.Duplicates, v.Bound)
	}
	if v.Committed == 0 {
		v.problem("nothing was committed: the run proves nothing")
	}
	if len(v.problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s:\n  %s", v.Cell, strings.Join(v.problems, "\n  "))
}

// Table prints verdicts.
func Table(vs []Verdict) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-52s %5s %9s %9s %4s %6s %10s %6s %5s %10s\n", "cell", "kills", "committed", "delivered",
		"lost", "ghosts", "duplicates", "bound",
		"worst", "violations")
	for _, v := range vs {
		fmt.Fprintf(&b, "%-52s %5d %9d %9d %4d %6d %10d %6d %5d %10d\n", v.Cell, v.Kills, v.Committed, v.Delivered,
			v.Lost, v.Ghosts, v.Duplicates,
			v.Bound, v.Worst, v.Violations)
	}
	return b.String()
}

// Counts prints what verdicts counted, for the report of `make prove`.
func Counts(vs ...Verdict) string {
	var all Verdict
	for _, v := range vs {
		all.Kills += v.Kills
		all.Committed += v.Committed
		all.Delivered += v.Delivered + v.Duplicates
		all.Lost += v.Lost
		all.Ghosts += v.Ghosts
		all.Violations += v.Violations
	}
	return fmt.Sprintf("\ncount: %d kills\ncount: %d events\ncount: %d deliveries\ncount: %d lost\ncount: %d ghosts\n"+
		"count: %d out of order", all.Kills, all.Committed, all.Delivered, all.Lost, all.Ghosts, all.Violations)
}
