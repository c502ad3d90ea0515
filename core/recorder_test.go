package core_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

type order struct {
	ID string
	core.Recorder
}

func idsOf(events []core.Event) []string {
	var ids []string
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids
}

func handOver(t *testing.T, r *core.Recorder) ([]core.Event, func(core.Outcome)) {
	t.Helper()
	events, ended, err := r.HandOver()
	noError(t, err)
	return events, ended
}

func TestRecorderAcceptsEventsAndTypedValues(t *testing.T) {
	var o order
	if len(o.Recorded()) != 0 {
		t.Fatal("a fresh model has events")
	}
	const id = "018f3e2a-7b1c-7def-8123-456789abcdef"
	o.Record(core.Event{Type: "a"}, &core.Event{Type: "b", ID: id}, orderPlaced{"7"}, (*core.Event)(nil), 42)
	got := o.Recorded()
	if len(got) != 5 || got[0].Type != "a" || got[1].ID != id || got[2].Type != "order.placed" ||
		got[2].Data != (orderPlaced{"7"}) {
		t.Fatalf("recorded %+v", got)
	}
	if got[3].Type != "" || got[4].Type != "" || got[4].Data != 42 {
		t.Errorf("a value that is no event was recorded as %+v: it must be refused by Publish", got[3:])
	}
	for i, e := range got {
		if e.ID == "" {
			t.Errorf("event %d has no id", i)
		}
	}
	if !slices.Equal(idsOf(got), idsOf(o.Recorded())) {
		t.Error("the ids change")
	}
}

// A Recorder must not hide the embedding model from logs, and must not print the events.
func TestRecorderInLogs(t *testing.T) {
	o := order{ID: "order-7"}
	o.Record(core.Event{Type: "order.placed", Data: "secret"})
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		s := fmt.Sprintf(verb, o)
		if !strings.Contains(s, "order-7") || strings.Contains(s, "secret") || strings.Contains(s, "order.placed") {
			t.Errorf("%s prints %q", verb, s)
		}
	}
	if j, err := json.Marshal(o); err != nil || string(j) != `{"ID":"order-7"}` {
		t.Errorf("as JSON it is %s, %v", j, err)
	}
	var methods []string // every method is promoted to the models, so add one deliberately
	for m := range reflect.TypeFor[*core.Recorder]().Methods() {
		methods = append(methods, m.Name)
	}
	if want := []string{"Adopt", "Forget", "HandOver", "Record", "Recorded"}; !slices.Equal(methods, want) {
		t.Errorf("methods %q, want %q", methods, want)
	}
}

func TestRecorderKeepsWhatDidNotCommit(t *testing.T) {
	for _, outcome := range []core.Outcome{core.RolledBack, core.Unknown} {
		var o order
		o.Record(core.Event{Type: "a"}, core.Event{Type: "b"})
		want := idsOf(o.Recorded())
		first, ended := handOver(t, &o.Recorder)
		if again, _ := handOver(t, &o.Recorder); !slices.Equal(idsOf(first), want) || again != nil {
			t.Fatalf("handed over %q, then %q; want %q once", idsOf(first), idsOf(again), want)
		}
		if !slices.Equal(idsOf(o.Recorded()), want) {
			t.Error("events that were handed over are no longer recorded, although their transaction has not ended")
		}
		ended(outcome)
		second, ended := handOver(t, &o.Recorder)
		if !slices.Equal(idsOf(second), want) {
			t.Fatalf("%s: the second try hands over %q, want %q", outcome, idsOf(second), want)
		}
		ended(core.Committed)
		if third, _ := handOver(t, &o.Recorder); third != nil || len(o.Recorded()) != 0 {
			t.Errorf("after the commit %q are left", idsOf(o.Recorded()))
		}
	}
}

// A closure that is run again records the events of its first run again, unless it works on a copy
// that was made before.
func TestRecorderRetriedClosureDoublesNothing(t *testing.T) {
	o := &order{ID: "7"}
	o.Record(core.Event{Type: "placed"})
	stored := map[string]int{}
	for attempt := range 3 {
		events, ended := handOver(t, &o.Recorder)
		if attempt < 2 {
			ended(core.RolledBack)
			continue
		}
		for _, e := range events {
			stored[e.ID]++
		}
		ended(core.Committed)
	}
	if len(stored) != 1 || len(o.Recorded()) != 0 {
		t.Errorf("stored %v, left %v", stored, o.Recorded())
	}
}

func TestRecorderWhileHandedOver(t *testing.T) {
	const id = "018f3e2a-7b1c-7def-8123-456789abcdef"
	var o order
	o.Record(core.Event{Type: "a", ID: id, Topic: "one"})
	_, ended := handOver(t, &o.Recorder)
	o.Record(core.Event{Type: "a", ID: id, Topic: "two"}) // the same event for another topic
	ended(core.Committed)
	left := o.Recorded()
	if len(left) != 1 || left[0].Topic != "two" {
		t.Fatalf("left are %+v, want the event that no transaction had", left)
	}
	ended(core.RolledBack) // a second report must not change events that were recorded later
	events, late := handOver(t, &o.Recorder)
	ended(core.Committed)
	if len(events) != 1 || len(o.Recorded()) != 1 {
		t.Errorf("a second report of the first transaction ended the second")
	}
	late(core.Committed)
	equal(t, len(o.Recorded()), 0, "left are %+v", o.Recorded())
}

func TestRecorderTwoTransactions(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "a"})
	_, first := handOver(t, &o.Recorder)
	o.Record(core.Event{Type: "b"})
	_, second := handOver(t, &o.Recorder)
	first(core.RolledBack)
	second(core.Committed)
	if left := o.Recorded(); len(left) != 1 || left[0].Type != "a" {
		t.Errorf("left are %+v", left)
	}
}

func TestRecorderForget(t *testing.T) {
	var o order
	o.Forget()
	o.Record(core.Event{Type: "a"})
	_, ended := handOver(t, &o.Recorder)
	o.Record(core.Event{Type: "b"})
	o.Forget()
	if left := o.Recorded(); len(left) != 1 || left[0].Type != "a" {
		t.Errorf("left are %+v, want what a transaction has", left)
	}
	ended(core.RolledBack)
	o.Forget()
	if left := o.Recorded(); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}

func TestRecorderOf(t *testing.T) {
	o := &order{}
	r, ok := core.RecorderOf(o)
	if !ok || r != &o.Recorder {
		t.Error("the recorder of a model was not found")
	}
	for _, v := range []any{order{}, 1, nil, &struct{ ID string }{}, (*core.Recorder)(nil)} {
		if _, ok := core.RecorderOf(v); ok {
			t.Errorf("a recorder was found in %T", v)
		}
	}
	var none *core.Recorder
	if events, ended, err := none.HandOver(); events != nil || err != nil || none.Recorded() != nil {
		t.Error("a nil recorder has events")
	} else {
		ended(core.Committed)
	}
}

func TestRecorderIsSafeForSeveralGoroutines(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "first"})
	var mu sync.Mutex
	seen := map[string]int{}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for i := range 50 {
				o.Record(core.Event{Type: "t"})
				events, ended := handOver(t, &o.Recorder)
				if (worker+i)%3 == 0 {
					ended(core.RolledBack)
					continue
				}
				mu.Lock()
				for _, e := range events {
					seen[e.ID]++
				}
				mu.Unlock()
				ended(core.Committed)
			}
		})
	}
	all.Wait()
	for _, e := range o.Recorded() {
		seen[e.ID]++
	}
	equal(t, len(seen), 201, "events of 201")
	for id, n := range seen {
		equal(t, n, 1, "event %s was handed over and committed so often", id)
	}
}

func types(events []core.Event) (all []string) {
	for _, e := range events {
		all = append(all, e.Type)
	}
	return all
}

func wantTypes(t *testing.T, what string, events []core.Event, want ...string) {
	t.Helper()
	if got := types(events); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func wantCopied(t *testing.T, r *core.Recorder) {
	t.Helper()
	wantErr(t, core.CheckRecorder(r), core.ErrRecorderCopied, "CheckRecorder")
	if events, ended, err := r.HandOver(); !errors.Is(err, core.ErrRecorderCopied) || events != nil {
		t.Errorf("HandOver: %v, %v, want ErrRecorderCopied", events, err)
	} else {
		ended(core.Committed)
	}
}

func TestRecorderCopyDoesNotPublishForItsOriginal(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "a"})
	cp := o
	wantCopied(t, &cp.Recorder)
	cp.Record(core.Event{Type: "b"})
	wantCopied(t, &cp.Recorder)
	wantTypes(t, "recorded on the copy", cp.Recorded(), "a", "b")
	wantTypes(t, "recorded on the original", o.Recorded(), "a")

	events, ended := handOver(t, &o.Recorder)
	wantTypes(t, "handed over", events, "a")
	own, endedOwn := handOver(t, &cp.Recorder) // the copy no longer hands over the events of the original
	wantTypes(t, "handed over by the copy", own, "b")
	ended(core.RolledBack)
	endedOwn(core.RolledBack)
	wantCopied(t, &cp.Recorder)
	events, ended = handOver(t, &o.Recorder)
	wantTypes(t, "handed over again", events, "a")
	ended(core.Committed)
	events, ended = handOver(t, &cp.Recorder)
	wantTypes(t, "handed over by the copy", events, "b")
	ended(core.Committed)
	if len(o.Recorded())+len(cp.Recorded()) != 0 {
		t.Errorf("left are %q and %q", types(o.Recorded()), types(cp.Recorded()))
	}
}

func TestRecorderCopyMadeWhenNothingWaits(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "a"})
	_, ended := handOver(t, &o.Recorder)
	during := o
	ended(core.Committed)
	after := o
	o.Record(core.Event{Type: "b"})
	for name, cp := range map[string]*order{"in the transaction": &during, "after it": &after} {
		cp.Record(core.Event{Type: "c"})
		events, ended := handOver(t, &cp.Recorder)
		wantTypes(t, name, events, "c")
		ended(core.Committed)
	}
	wantTypes(t, "the original", o.Recorded(), "b")
}

func placed() order {
	var o order
	o.Record(core.Event{Type: "placed"})
	return o
}

// A value that was moved must not lose its events without an error, and with Adopt it keeps them.
func TestRecorderMoved(t *testing.T) {
	o := placed()
	wantTypes(t, "recorded", o.Recorded(), "placed")
	wantCopied(t, &o.Recorder)
	o.Record(core.Event{Type: "paid"})
	o.Adopt()
	wantTypes(t, "adopted", o.Recorded(), "placed", "paid")
	again := o
	wantCopied(t, &again.Recorder)
	events, ended := handOver(t, &o.Recorder)
	wantTypes(t, "handed over", events, "placed", "paid")
	ended(core.RolledBack)
	events, ended = handOver(t, &o.Recorder)
	wantTypes(t, "handed over again", events, "placed", "paid")
	ended(core.Committed)
	if len(o.Recorded())+len(again.Recorded()) != 0 {
		t.Errorf("left are %q and %q", types(o.Recorded()), types(again.Recorded()))
	}
}

// A closure adopts a fresh copy each time it is run again. Its events are published once.
func TestRecorderAdoptedByEachTry(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "placed"})
	stored := 0
	for _, outcome := range []core.Outcome{core.RolledBack, core.Unknown, core.Committed, core.Committed} {
		try := o
		try.Adopt()
		events, ended := handOver(t, &try.Recorder)
		if outcome == core.Committed {
			stored += len(events)
		}
		ended(outcome)
		if outcome != core.Committed {
			wantCopied(t, &o.Recorder) // the copy has the events
		}
	}
	equal(t, stored, 1, "stored so often")
	if events, _ := handOver(t, &o.Recorder); len(events) != 0 {
		t.Errorf("the original still has %q", types(events))
	}
}

func TestRecorderCopyForgets(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "a"})
	cp, other := o, o
	cp.Forget()
	other.Record(core.Event{Type: "b"})
	other.Forget()
	for _, c := range []*order{&cp, &other} {
		if events, _ := handOver(t, &c.Recorder); len(events)+len(c.Recorded()) != 0 {
			t.Errorf("the copy still has %q", types(events))
		}
		c.Record(core.Event{Type: "c"})
		events, _ := handOver(t, &c.Recorder)
		wantTypes(t, "recorded after", events, "c")
	}
	wantTypes(t, "the original", o.Recorded(), "a")
}

// A model that is set back to an earlier copy of itself has the events of that copy.
func TestRecorderSetBack(t *testing.T) {
	var o order
	o.Record(core.Event{Type: "a"})
	saved := o
	o.Record(core.Event{Type: "undone"})
	o = saved
	wantTypes(t, "set back", o.Recorded(), "a")
	o.Record(core.Event{Type: "b"})
	events, ended := handOver(t, &o.Recorder)
	wantTypes(t, "handed over", events, "a", "b")
	ended(core.Committed)
	equal(t, len(o.Recorded()), 0, "left are %q", types(o.Recorded()))
}

type (
	base      struct{ core.Recorder }
	viaBase   struct{ base }
	viaPtr    struct{ *core.Recorder }
	basePtr   struct{ *base }
	named     struct{ Events core.Recorder }
	namedPtr  struct{ Events *core.Recorder }
	namedBase struct{ Base base }
	deep      struct{ In struct{ More namedBase } }
	twice     struct {
		base
		Other
	}
	shadowed struct {
		core.Recorder
		base
	}
	Other    struct{ core.Recorder }
	parent   struct{ Lines []order }
	previous struct {
		core.Recorder
		Previous *previous
	}
)

func TestCheckModel(t *testing.T) {
	for _, ok := range []any{order{}, &order{}, viaBase{}, viaPtr{}, basePtr{}, parent{}, previous{}, struct{}{}, 1} {
		if err := core.CheckModel(reflect.TypeOf(ok), nil); err != nil {
			t.Errorf("%T: %v", ok, err)
		}
	}
	for _, bad := range []any{named{}, namedPtr{}, namedBase{}, deep{}, twice{}, shadowed{}, &named{}} {
		wantErr(t, core.CheckModel(reflect.TypeOf(bad), nil), core.ErrHiddenRecorder, "%T", bad)
	}
	if r, ok := core.RecorderOf(&basePtr{}); ok {
		t.Errorf("a recorder %p was found behind a nil pointer", r)
	}
}

func TestCheckModelAsksForAssociations(t *testing.T) {
	apart := func(f reflect.StructField) bool { return f.Name == "Base" }
	noError(t, core.CheckModel(reflect.TypeFor[namedBase](), apart))
	embedded := func(reflect.StructField) bool { return false }
	wantErr(t, core.CheckModel(reflect.TypeFor[struct{ Base *base }](), embedded), core.ErrHiddenRecorder,
		"an association that is looked at")
}
