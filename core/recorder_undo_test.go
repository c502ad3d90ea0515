package core_test

import (
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// What was recorded after the mark goes, wherever it waits; what was recorded before stays, with its
// id.
func TestUndoRecorded(t *testing.T) {
	recorded := func(r *core.Recorder) (types []string) {
		for _, e := range r.Recorded() {
			types = append(types, e.Type)
		}
		return types
	}
	record := func(r *core.Recorder, types ...string) {
		for _, typ := range types {
			r.Record(core.Event{Type: typ})
		}
	}
	var r, other core.Recorder
	record(&r, "before")
	id := r.Recorded()[0].ID
	began := core.MarkRecorders()
	record(&r, "first")
	_, first, err := r.HandOver()
	must(t, err)
	savepoint := core.MarkRecorders()
	record(&r, "second")
	record(&other, "of another model")
	undo := core.UndoRecorded(&r)
	_, second, err := r.HandOver()
	must(t, err)

	second(core.RolledBack)
	undo(savepoint)
	if got := recorded(&r); !slices.Equal(got, []string{"before", "first"}) {
		t.Errorf("after the rollback to the savepoint: %q", got)
	}
	first(core.RolledBack)
	undo(began)
	if got := r.Recorded(); len(got) != 1 || got[0].ID != id {
		t.Errorf("after the rollback: %v", got)
	}
	if got := recorded(&other); len(got) != 1 {
		t.Errorf("another model has lost its event: %q", got)
	}

	moved := r
	moved.Adopt()
	record(&moved, "third")
	core.UndoRecorded(&moved)(0)
	if got := recorded(&moved); len(got) != 0 {
		t.Errorf("a model that has adopted events keeps %q", got)
	}
	core.UndoRecorded(new(core.Recorder))(0)
}
