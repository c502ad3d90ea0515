package adapter

import (
	"reflect"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// Recorders remembers for each type of model whether it embeds a core.Recorder. The zero value is
// ready for use. It is safe for use by several goroutines.
type Recorders struct{ types sync.Map }

type recorderType struct {
	embedded bool
	err      error
}

// recorderMethods are the methods of a model that embeds a Recorder, by value or by pointer.
var recorderMethods = reflect.TypeFor[interface {
	Record(...any)
	Recorded() []core.Event
	HandOver() ([]core.Event, func(core.Outcome), error)
}]()

// Has reports whether models of the struct type t embed a Recorder. The error wraps
// core.ErrHiddenRecorder. apart is the parameter apart of core.CheckModel.
func (r *Recorders) Has(t reflect.Type, apart func(reflect.StructField) bool) (bool, error) {
	if t == nil || t.Kind() != reflect.Struct {
		return false, nil
	}
	known, ok := r.types.Load(t)
	if !ok {
		known, _ = r.types.LoadOrStore(t, recorderType{
			embedded: reflect.PointerTo(t).Implements(recorderMethods), err: core.CheckModel(t, apart),
		})
	}
	found := known.(recorderType)
	return found.embedded && found.err == nil, found.err
}

// RecorderOf returns the Recorder that a model embeds. model is a pointer to it.
func RecorderOf(model reflect.Value) (*core.Recorder, bool) {
	if !model.CanInterface() {
		return nil, false
	}
	return core.RecorderOf(model.Interface())
}

// Pending returns the Recorder of a model, nil without one, and whether it has events. The error is
// the one of core.CheckRecorder.
func Pending(model reflect.Value) (r *core.Recorder, pending bool, err error) {
	r, ok := RecorderOf(model)
	if !ok {
		return nil, false, nil
	}
	return r, len(r.Recorded()) > 0, core.CheckRecorder(r)
}
