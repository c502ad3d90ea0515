package core_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

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
