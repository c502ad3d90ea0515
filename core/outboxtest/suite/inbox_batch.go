package suite

import (
	"fmt"
	"slices"

	"github.com/ormoutbox/ormoutbox/core/inbox"
)

func inboxBatchCases() []inboxCase {
	return []inboxCase{
		{"each copy of an event has the state of its first", inboxBatchCopies},
		{"copies of many events", inboxBatchManyCopies},
	}
}

// inboxKind is a past of an event, with the states that a batch must get for its first copy and for
// further copies.
type inboxKind struct {
	past          string
	first, copies inbox.State
}

// pasts makes an event of each kind. The id of an event is its past.
func (f *inboxFixture) pasts() []inboxKind {
	f.Helper()
	f.begin(nil, inboxEvent("processed"))
	f.begin(errInbox, inboxEvent("rolled back"))
	f.fail(inboxEvent("failed"), false)
	f.fail(inboxEvent("dead"), true)
	f.fail(inboxEvent("redriven"), true)
	f.redrive(inboxEvent("redriven").Key)
	kinds := []inboxKind{
		{"new", inbox.StateFresh, inbox.StateProcessed},
		{"rolled back", inbox.StateFresh, inbox.StateProcessed},
		{"failed", inbox.StateFresh, inbox.StateProcessed},
		{"redriven", inbox.StateFresh, inbox.StateProcessed},
		{"processed", inbox.StateProcessed, inbox.StateProcessed},
		{"dead", inbox.StateDead, inbox.StateDead},
	}
	if f.TakeElsewhere == nil {
		f.Log("no other program can write into the store")
		return kinds
	}
	f.fail(inboxEvent("in progress"), false)
	f.check(f.TakeElsewhere(f.Context(), inboxEvent("in progress").Key))
	return append(kinds, inboxKind{"in progress", inbox.StateInProgress, inbox.StateInProgress})
}

// want compares the states of a batch, in which the event of each kind may be several times.
func (f *inboxFixture) want(kinds []inboxKind, events []inbox.Event, got []inbox.State) {
	f.Helper()
	if len(got) != len(events) {
		f.Fatalf("%d states of %d events", len(got), len(events))
	}
	seen := map[string]bool{}
	for n, e := range events {
		i := slices.IndexFunc(kinds, func(k inboxKind) bool { return k.past == e.EventID })
		want := kinds[i].first
		if seen[e.EventID] {
			want = kinds[i].copies
		}
		if seen[e.EventID] = true; got[n] != want {
			f.Errorf("event %d of the batch, %s: it is %s, want %s", n, e.EventID, got[n], want)
		}
	}
}

// inboxBatchCopies begins a batch with three copies of each event. Only an event that the batch
// itself processes makes its copies duplicates.
func inboxBatchCopies(f *inboxFixture) {
	kinds := f.pasts()
	var events []inbox.Event
	for round := range 3 {
		for _, k := range kinds {
			events = append(events, inboxEvent(k.past))
		}
		if round == 0 {
			slices.Reverse(events)
		}
	}
	f.want(kinds, events, f.begin(errInbox, events...))
	f.want(kinds, events, f.begin(errInbox, events...)) // the rollback left no trace
	f.want(kinds, events, f.begin(nil, events...))
	for n := range kinds {
		if kinds[n].first == inbox.StateFresh {
			kinds[n].first = inbox.StateProcessed
		}
	}
	f.want(kinds, events, f.begin(nil, events...))
}

// inboxBatchManyCopies has more events than one statement may take, so that a copy may be far from
// its first. The same id of another tenant is no copy.
func inboxBatchManyCopies(f *inboxFixture) {
	const events = 90
	batch := make([]inbox.Event, 0, 3*events)
	for n := range events {
		batch = append(batch, inboxEvent(fmt.Sprintf("e%d", n)))
	}
	for _, e := range batch[:events:events] {
		e.Tenant = "acme"
		batch = append(batch, e)
	}
	batch = append(batch, batch[:events]...)
	for n := range events {
		if n%3 == 0 {
			f.fail(batch[n], true)
		}
	}
	for n, got := range f.begin(nil, batch...) {
		want := inbox.StateFresh
		switch dead, again := n%events%3 == 0 && batch[n].Tenant == "", n >= 2*events; {
		case dead:
			want = inbox.StateDead
		case again:
			want = inbox.StateProcessed
		}
		if got != want {
			f.Errorf("event %d of the batch, %s: it is %s, want %s", n, batch[n].EventID, got, want)
		}
	}
}
