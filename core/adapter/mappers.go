package adapter

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// Mapper is an On function: it derives events from a change of one model. model is a pointer to the
// type that it was registered for.
type Mapper func(ctx context.Context, op core.Op, model any) ([]core.Event, error)

// Mappers keeps the On functions of an outbox, in the order of registration. The zero value is ready
// for use. It is safe for use by several goroutines.
type Mappers struct {
	mu     sync.RWMutex
	all    []mapper
	byType map[reflect.Type]mapped // made when a type is asked for
	err    error
	owns   func(table string) bool // reports whether OnAll passes over a table; nil: never
}

// mapper is one registration.
type mapper struct {
	of     reflect.Type // nil: every type not in except
	except []reflect.Type
	fn     Mapper
}

// mapped are the functions of one type.
type mapped struct {
	fns   []Mapper
	named bool // a function was registered for this type itself
}

// On registers fn for models of type T, a struct. Err returns a mistake. A nil m does nothing.
func On[T any](m *Mappers, fn func(op core.Op, model *T) []core.Event) {
	if fn == nil {
		OnContext[T](m, nil)
		return
	}
	OnContext(m, func(_ context.Context, op core.Op, model *T) ([]core.Event, error) { return fn(op, model), nil })
}

// OnContext is On for functions that need the context of the statement or can return an error.
func OnContext[T any](
	m *Mappers, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
) {
	if m == nil {
		return
	}
	typ := reflect.TypeFor[T]()
	switch {
	case fn == nil:
		m.Fail(fmt.Errorf("outbox: On[%s] was given a nil function", typ))
	case typ.Kind() != reflect.Struct:
		m.Fail(fmt.Errorf("outbox: On[%s]: the type must be the model's struct", typ))
	default:
		m.add(mapper{of: typ, fn: func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
			return fn(ctx, op, model.(*T))
		}})
	}
}

// OnAll registers fn for models of every type except the types of the models in except. fn gets a
// pointer to a model, as an On function of its type would. The tables of the outbox and of the
// inbox are passed over, too.
func OnAll(
	m *Mappers, fn func(ctx context.Context, op core.Op, model any) ([]core.Event, error), except ...any,
) {
	if m == nil {
		return
	}
	if fn == nil {
		m.Fail(errors.New("outbox: OnAll was given a nil function"))
		return
	}
	one := mapper{fn: fn}
	for _, model := range except {
		t := reflect.TypeOf(model)
		for t != nil && t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t == nil || t.Kind() != reflect.Struct {
			m.Fail(fmt.Errorf("outbox: OnAll: except has a %T: give a model, such as &Order{}", model))
			return
		}
		one.except = append(one.except, t)
	}
	m.add(one)
}

func (m *Mappers) add(one mapper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all, m.byType = append(m.all, one), nil
}

// Fail keeps a mistake until Err returns it.
func (m *Mappers) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = errors.Join(m.err, err)
}

// Err returns every mistake of the registrations.
func (m *Mappers) Err() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}

// For returns the functions for models of type t, in the order of registration, or nil if there are
// none. named is false if only OnAll asks for the type. OnAll passes over types whose table belongs
// to the outbox or the inbox.
func (m *Mappers) For(t reflect.Type, table string) (fns []Mapper, named bool) {
	m.mu.RLock()
	known, ok := m.byType[t]
	m.mu.RUnlock()
	if ok {
		return known.fns, known.named
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	own := m.owns != nil && m.owns(table)
	for _, one := range m.all {
		if one.of == t || one.of == nil && !own && !slices.Contains(one.except, t) {
			known.fns, known.named = append(known.fns, one.fn), known.named || one.of == t
		}
	}
	if m.byType == nil {
		m.byType = map[reflect.Type]mapped{}
	}
	m.byType[t] = known
	return known.fns, known.named
}

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

// HasRecorder reports whether models of the struct type t embed a core.Recorder. The error wraps
// core.ErrHiddenRecorder. apart is the parameter apart of core.CheckModel.
func (o *Outbox) HasRecorder(t reflect.Type, apart func(reflect.StructField) bool) (bool, error) {
	if t == nil || t.Kind() != reflect.Struct {
		return false, nil
	}
	known, ok := o.recorders.Load(t)
	if !ok {
		known, _ = o.recorders.LoadOrStore(t, recorderType{
			embedded: reflect.PointerTo(t).Implements(recorderMethods), err: core.CheckModel(t, apart),
		})
	}
	found := known.(recorderType)
	return found.embedded && found.err == nil, found.err
}

// Pending returns the Recorder that a model embeds, nil without one, and whether it has events.
// model is a pointer. The error is core.CheckRecorder's.
func Pending(model reflect.Value) (r *core.Recorder, pending bool, err error) {
	if !model.CanInterface() {
		return nil, false, nil
	}
	r, ok := core.RecorderOf(model.Interface())
	if !ok {
		return nil, false, nil
	}
	return r, len(r.Recorded()) > 0, core.CheckRecorder(r)
}
