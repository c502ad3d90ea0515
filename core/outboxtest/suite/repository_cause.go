package suite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func causeCases() []repositoryCase {
	return []repositoryCase{
		{"the cause of an event is stored with it", causeStored},
		{"the cause of an event is any text, or none", causeTexts},
		{"what has one cause is read page by page", causePages},
		{"a row that takes the place of another one has its cause", causeCopied},
	}
}

// causedBy gives a row a cause, beside other headers.
func causedBy(id string, n core.NewRow) core.NewRow {
	n.Event.Headers = map[string]string{core.HeaderCausationID: id, "other": "x", core.HeaderCorrelationID: "chain"}
	return n
}

// caused returns the rows of a cause, in the order of their ids.
func (f *fixture) caused(filter ops.Filter) (ids []core.RowID) {
	f.Helper()
	s, err := f.Store.ScanEvents(f.Context(), ops.Scan{Filter: filter, Limit: 100, Look: 100})
	f.check(err)
	for _, e := range s.Events {
		f.must(e.CausationID == filter.Cause, "%q has selected a row of %q", filter.Cause, e.CausationID)
		ids = append(ids, e.ID)
	}
	return ids
}

func causeStored(f *fixture) {
	cause, other := core.NewEventID(), core.NewEventID()
	alone := causedBy(cause, newRow("topic", ""))
	f.commit(alone)
	keyed := causedBy(cause, newRow("topic", "k"))
	f.commit(keyed)
	batch := []core.NewRow{
		causedBy(cause, newRow("topic", "k")), newRow("topic", "k"), causedBy(other, newRow("topic", "")),
		causedBy(cause, newRow("else", "")), byLog(causedBy(cause, newRow("topic", "l")))[0],
	}
	f.commit(batch...)
	want := []core.RowID{alone.ID, keyed.ID, batch[0].ID, batch[3].ID, batch[4].ID}
	slices.SortFunc(want, func(a, b core.RowID) int { return slices.Compare(a[:], b[:]) })
	got := f.caused(ops.Filter{Cause: cause})
	f.must(slices.Equal(got, want), "of the cause are %s, want %s", got, want)
	got = f.caused(ops.Filter{Cause: cause, Topic: "else"})
	f.must(slices.Equal(got, []core.RowID{batch[3].ID}), "of a topic are %s", got)
	f.done(false, keyed.ID)
	f.must(len(f.caused(ops.Filter{Cause: cause})) == len(want), "a row that is done has lost its cause")
	got = f.caused(ops.Filter{Cause: cause, Statuses: []ops.Status{ops.StatusDone}, Topic: "topic"})
	f.must(slices.Equal(got, []core.RowID{keyed.ID, batch[4].ID}), "done are %s", got)
	got = f.caused(ops.Filter{Cause: cause, EventID: alone.Event.ID})
	f.must(slices.Equal(got, []core.RowID{alone.ID}), "of an event are %s", got)
	f.must(f.stored(batch[1].ID).CausationID == "", "a row without a cause has one")
}

func causeTexts(f *fixture) {
	texts := []string{"7", "QuoteAccepted:018F", "\u00e9 \U0001F600", `"quoted" \`, strings.Repeat("x", 255), "a "}
	rows := make([]core.NewRow, len(texts))
	for i, text := range texts {
		rows[i] = causedBy(text, newRow("topic", ""))
		f.commit(rows[i])
	}
	for i, text := range texts {
		got := f.caused(ops.Filter{Cause: text})
		f.must(slices.Equal(got, []core.RowID{rows[i].ID}), "of %q are %s, want %s", text, got, rows[i].ID)
	}
	f.must(len(f.caused(ops.Filter{Cause: "quoteaccepted:018f"})) == 0, "a cause is compared without its case")
	// A header that a person set may be empty or long: the event is stored all the same.
	empty, long := causedBy("", newRow("topic", "")), causedBy(strings.Repeat("y", 5000), newRow("topic", ""))
	f.commit(empty, long)
	f.must(f.stored(empty.ID).CausationID == "", "an empty cause is one")
	rows = slices.Concat(rows, []core.NewRow{empty, long})
	for _, c := range f.claim(request(nodeA)) {
		i := slices.IndexFunc(rows, func(n core.NewRow) bool { return n.ID == c.ID })
		f.must(i >= 0 && diffEvent(c.Event, rows[i].Event) == "", "claimed %+v", c.Event)
	}
}

func causePages(f *fixture) {
	var want []core.RowID
	for range 5 {
		n := causedBy("one", newRow("topic", ""))
		f.commit(n, causedBy("two", newRow("topic", "")))
		want = append(want, n.ID)
	}
	for _, newest := range []bool{false, true} {
		var got []core.RowID
		scan := ops.Scan{Filter: ops.Filter{Cause: "one"}, Newest: newest, Limit: 2, Look: 100}
		for page := 0; ; page++ {
			s, err := f.Store.ScanEvents(f.Context(), scan)
			f.check(err)
			for _, e := range s.Events {
				got = append(got, e.ID)
			}
			if scan.After = s.Next; s.Next == "" {
				f.must(page == 2, "the last page is number %d", page)
				break
			}
		}
		f.must(slices.Equal(got, want), "newest %t: %s, want %s", newest, got, want)
		slices.Reverse(want)
	}
}

func causeCopied(f *fixture) {
	done, dead := causedBy("c", newRow("topic", "k")), causedBy("c", newRow("topic", "l"))
	f.commit(done)
	f.done(false, done.ID)
	f.addDead(dead)
	f.replay("p", done.ID)
	req := adminOf(dead.ID)
	req.SkipDead = true
	f.must(f.redrive(req) == 1, "not redriven")
	var rows []string
	s, err := f.Store.ScanEvents(f.Context(),
		ops.Scan{Filter: ops.Filter{Cause: "c"}, Limit: 100, Look: 100})
	f.check(err)
	for _, e := range s.Events {
		rows = append(rows, fmt.Sprint(e.EventID, " ", e.Status))
	}
	for _, want := range []string{
		fmt.Sprint(done.Event.ID, " ", ops.StatusDone), fmt.Sprint(done.Event.ID, " ", ops.StatusNew),
		fmt.Sprint(dead.Event.ID, " ", ops.StatusDiscarded), fmt.Sprint(dead.Event.ID, " ", ops.StatusNew),
	} {
		f.must(slices.Contains(rows, want), "of the cause are %s, and not %s", rows, want)
	}
	f.must(len(rows) == 4, "of the cause are %s", rows)
}
