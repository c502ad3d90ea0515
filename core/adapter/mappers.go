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

// Mappers keeps the On functions of an outbox by type of model. The zero value is ready for use. It
// is safe for use by several goroutines.
type Mappers struct {
	mu      sync.RWMutex
	byType  map[reflect.Type][]Mapper
	resolve map[reflect.Type]bool
	err     error
}

// OnOption changes how On and OnContext of an adapter register a function. ResolveRows of the
// adapter makes one.
type OnOption func(*onOptions)

type onOptions struct{ resolve bool }

// ResolveRows is the option of that name. Each adapter documents its cost.
func ResolveRows() OnOption { return func(o *onOptions) { o.resolve = true } }

// Resolves reports whether ResolveRows is among options.
func Resolves(options []OnOption) bool {
	var o onOptions
	for _, set := range options {
		if set != nil {
			set(&o)
		}
	}
	return o.resolve
}

// On registers fn for models of type T, a struct. Err returns a mistake. A nil m does nothing.
func On[T any](m *Mappers, fn func(op core.Op, model *T) []core.Event, options ...OnOption) {
	if fn == nil {
		OnContext[T](m, nil, options...)
		return
	}
	OnContext(m, func(_ context.Context, op core.Op, model *T) ([]core.Event, error) { return fn(op, model), nil },
		options...)
}

// OnContext is On for functions that need the context of the statement or can return an error.
func OnContext[T any](
	m *Mappers, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error), options ...OnOption,
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
		m.add(typ, Resolves(options), func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
			return fn(ctx, op, model.(*T))
		})
	}
}

func (m *Mappers) add(t reflect.Type, resolve bool, fn Mapper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byType == nil {
		m.byType, m.resolve = map[reflect.Type][]Mapper{}, map[reflect.Type]bool{}
	}
	m.resolve[t] = m.resolve[t] || resolve
	m.byType[t] = append(slices.Clip(m.byType[t]), fn)
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

// Of returns the functions for models of type t, in the order of registration, or nil if there are
// none. resolve says that one of them was registered with ResolveRows.
func (m *Mappers) Of(t reflect.Type) (fns []Mapper, resolve bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byType[t], m.resolve[t]
}
