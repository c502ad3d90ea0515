package gormoutbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/ormoutbox/ormoutbox/core"
)

// On makes fn say which events a change of a model of type T causes, from the model as it was
// stored: generated keys are filled in. fn runs within the transaction, once for each element of a
// statement, and must not change the model. For OpDelete and for updates through Model(...) the
// model has what the caller put into it, which may be its key alone; with ResolveRows, statements
// that name no model show the rows themselves. What GORM leaves out of a statement, the zero values
// of Updates(&model) and what Select and Omit say, shows as the model has it; with ResolveRows,
// updates show the row. Several functions for one type are all called, in the order of
// registration. It can be called at any time; what is wrong with it (a nil argument, a T that is no
// struct) is reported by db.Use, and after that by every Publish and by Run.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event, options ...OnOption) {
	if fn == nil {
		OnContext[T](ob, nil)
		return
	}
	OnContext(ob, func(_ context.Context, op core.Op, model *T) ([]core.Event, error) { return fn(op, model), nil },
		options...)
}

// OnContext is On for functions that need the context of the statement or can fail. Their error
// becomes the statement's. FromContext finds the transaction in ctx, for reading what else the
// event needs.
func OnContext[T any](ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
	options ...OnOption,
) {
	if ob == nil {
		return
	}
	var opts onOptions
	for _, set := range options {
		if set != nil {
			set(&opts)
		}
	}
	typ := reflect.TypeFor[T]()
	switch {
	case fn == nil:
		ob.mappers.fail(fmt.Errorf("outbox: On[%s] was given a nil function", typ))
	case typ.Kind() != reflect.Struct:
		ob.mappers.fail(fmt.Errorf("outbox: On[%s]: the type must be the model's struct", typ))
	default:
		ob.mappers.add(typ, func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
			return fn(ctx, op, model.(*T))
		}, opts)
	}
}

type mapper func(ctx context.Context, op core.Op, model any) ([]core.Event, error)

// mappers are the On functions by model type.
type mappers struct {
	mu      sync.RWMutex
	byType  map[reflect.Type][]mapper
	resolve map[reflect.Type]bool // with ResolveRows
	err     error
}

func (m *mappers) add(t reflect.Type, fn mapper, opts onOptions) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byType == nil {
		m.byType, m.resolve = map[reflect.Type][]mapper{}, map[reflect.Type]bool{}
	}
	m.resolve[t] = m.resolve[t] || opts.resolve
	m.byType[t] = append(slices.Clip(m.byType[t]), fn)
}

func (m *mappers) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = errors.Join(m.err, err)
}

func (m *mappers) problem() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.err
}

func (m *mappers) of(t reflect.Type) []mapper {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byType[t]
}

func (m *mappers) resolves(t reflect.Type) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.resolve[t]
}
