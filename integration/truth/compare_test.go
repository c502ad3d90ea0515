package truth_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

// written is one statement that wrote: the ORM's operation, and the rows that it changed.
type written struct {
	op      core.Op
	nothing bool // ON CONFLICT DO NOTHING
	until   int  // number of rows in truth after it
	changes []change
}

// told is what an event of an On function, or a row that was changed, says.
type told struct {
	table   string
	op      string
	row     row
	written int // which statement
}

func (t told) id() string {
	of, _ := tableOf(t.table)
	return fmt.Sprintf("%s%q", t.table, of.keyOf(t.row))
}

func (t told) String() string {
	var cells []string
	for _, name := range slices.Sorted(maps.Keys(t.row)) {
		cells = append(cells, name+"="+t.row[name])
	}
	return t.table + "." + t.op + " " + strings.Join(cells, " ")
}

// expected returns what has to be told of the rows that a statement changed: each row once, in its
// last state.
func (w written) expected(n int) (all []told) {
	for _, c := range w.changes {
		if slices.Contains(untold, c.table) {
			continue
		}
		// DO NOTHING of MariaDB and MySQL is an update to equal values.
		if w.nothing && c.op == "UPDATE" && maps.Equal(c.before, c.after) {
			continue
		}
		one := told{table: c.table, op: w.op.String(), row: c.after, written: n}
		if c.op == "DELETE" {
			one.row = c.before
		}
		was := one.id() // another one if this statement has set the key of a row that it wrote before
		if c.op == "UPDATE" {
			was = told{table: c.table, row: c.before}.id()
		}
		all = slices.DeleteFunc(all, func(t told) bool { return t.id() == one.id() || t.id() == was })
		all = append(all, one)
	}
	return all
}

// recording is an event that a step has recorded on a model.
type recording struct {
	typ   string
	table string
	key   func() string // of the model's row; nil: the model has none, so it is the only row that changed
	left  func() int    // how many events the model has still recorded

	out        bool // the event was seen in the outbox
	undone     bool // it was, and was rolled back: it is gone, because it was recorded in the transaction
	rolledBack bool
}

// rollBack notes that the statement was rolled back.
func (r *recording) rollBack() {
	r.undone, r.rolledBack = r.undone || r.out, true
	r.out = false
}

// fault is what is wrong with a program.
type fault struct {
	class string // ghost, loss, stale, op, order, identity, difference, refused, ...
	text  string
}

func faultf(class, format string, args ...any) *fault {
	return &fault{class, fmt.Sprintf(format, args...)}
}

// identities remember which AggregateID belongs to which row. Texts of composite keys are the
// adapter's matter, but no two rows have the same.
type identities struct{ byRow, byID map[string]string }

func (i *identities) check(t told, id string) *fault {
	of, _ := tableOf(t.table)
	if key := of.keyOf(t.row); len(key) == 1 && key[0] != id {
		return faultf("identity", "the AggregateID is %q: %s", id, t)
	}
	if i.byRow == nil {
		i.byRow, i.byID = map[string]string{}, map[string]string{}
	}
	row, id := t.id(), t.table+" "+id
	if was, known := i.byRow[row]; known && was != id {
		return faultf("identity", "the AggregateID of %s is %q, and was %q", row, id, was)
	}
	if was, known := i.byID[id]; known && was != row {
		return faultf("identity", "the AggregateID of %s is %q, that of %s too", row, id, was)
	}
	i.byRow[row], i.byID[id] = id, row
	return nil
}

// compare compares the events of a step with the rows that its statements changed.
func compare(writes []written, events []event, recs []*recording, published []string, ids *identities) *fault {
	want := map[string][]told{}
	for n, w := range writes {
		for _, t := range w.expected(n) {
			want[t.id()] = append(want[t.id()], t)
		}
	}
	got := map[string]int{}
	var losses []string
	at, late := 0, ""
	for _, e := range events {
		if i := slices.IndexFunc(recs, func(r *recording) bool { return r.typ == e.typ }); i >= 0 {
			if f := recs[i].compare(e, want); f != nil {
				return f
			}
			continue
		}
		if i := slices.Index(published, e.typ); i >= 0 {
			published = slices.Delete(slices.Clone(published), i, i+1)
			continue
		}
		t := told{}
		t.table, t.op, _ = strings.Cut(e.typ, ".")
		if _, known := tableOf(t.table); !known {
			return faultf("ghost", "nobody caused %s", e.typ)
		}
		var err error
		if t.row, err = rowOf(e.payload); err != nil {
			return faultf("stale", "%v", err)
		}
		n := got[t.id()]
		got[t.id()]++
		if n >= len(want[t.id()]) {
			return faultf("ghost", "told: %s\nstored: %s", t, stored(writes))
		}
		w := want[t.id()][n]
		switch {
		case !maps.Equal(t.row, w.row):
			return faultf("stale", "told:   %s\nstored: %s", t, w)
		case t.op != w.op:
			return faultf("op", "told:   %s\nstored: %s", t, w)
		}
		if f := ids.check(t, e.aggregate); f != nil {
			return f
		}
		if w.written < at {
			late = t.String()
		}
		at = w.written
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] < len(want[id]) {
			losses = append(losses, fmt.Sprintf("not told: %s", want[id][got[id]]))
		}
	}
	for _, r := range recs {
		if key, changed := r.row(want); changed && !r.out {
			losses = append(losses, "not sent: the recorded event of "+r.table+" "+key)
		}
	}
	for _, typ := range published {
		losses = append(losses, "not there: the published "+typ)
	}
	switch {
	case losses != nil:
		return faultf("loss", "%s", strings.Join(losses, "\n"))
	case late != "":
		return faultf("order", "told after rows that were changed later: %s\nstored: %s", late, stored(writes))
	}
	return nil
}

// row returns the key of the model's row, and whether it is among those that changed.
func (r *recording) row(want map[string][]told) (key string, changed bool) {
	if r.key != nil {
		key = r.key()
		_, changed = want[fmt.Sprintf("%s%q", r.table, []string{key})]
		return key, changed
	}
	for _, t := range want {
		key = t[0].row["id"]
	}
	return key, len(want) == 1
}

// compare compares an event that was recorded.
func (r *recording) compare(e event, want map[string][]told) *fault {
	switch key, changed := r.row(want); {
	case !changed:
		return faultf("ghost", "the recorded event of %s %s went out, and its row was not changed", r.table, key)
	case r.out:
		return faultf("ghost", "the recorded event of %s %s went out twice", r.table, key)
	case e.aggregate != key:
		return faultf("identity", "the AggregateID of the recorded event of %s %s is %q", r.table, key, e.aggregate)
	}
	r.out = true
	return nil
}

func stored(writes []written) string {
	var all []string
	for n, w := range writes {
		for _, t := range w.expected(n) {
			all = append(all, t.String())
		}
	}
	if all == nil {
		return "nothing"
	}
	return strings.Join(all, "; ")
}
