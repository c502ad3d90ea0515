package bunoutbox

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
// stored: generated keys are filled in. fn runs within the transaction, once for each row that the
// database said was changed, and must not change the model. For OpUpdate and OpDelete the model has
// what the caller put into it, which may be its key alone; rows that a statement sets to other
// values than its model has (Set("stock = stock - 1")), and upserts, are read back: one SELECT
// more, unless Returning("*") tells. Several functions for one type are all called, in the order of
// registration. It can be called at any time; what is wrong with it (a nil argument, a T that is no
// struct) is reported by every Publish and RunInTx, and by Run.
//
// The *bun.DB must have the hook of ob; see Outbox.Hook.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event, options ...OnOption) {
	if fn == nil {
		OnContext[T](ob, nil, options...)
		return
	}
	OnContext(ob, func(_ context.Context, op core.Op, model *T) ([]core.Event, error) { return fn(op, model), nil },
		options...)
}

// OnContext is On for functions that need the context of the statement or can fail. Their error
// makes the transaction fail: see AfterInsert. FromContext finds the transaction in ctx when the
// statement was run with the context that RunInTx gave.
func OnContext[T any](ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
	options ...OnOption,
) {
	if ob == nil {
		return
	}
	typ := reflect.TypeFor[T]()
	switch {
	case fn == nil:
		ob.mappers.fail(fmt.Errorf("outbox: On[%s] was given a nil function", typ))
	case typ.Kind() != reflect.Struct:
		ob.mappers.fail(fmt.Errorf("outbox: On[%s]: the type must be the model's struct", typ))
	default:
		ob.mappers.add(typ, options, func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
			return fn(ctx, op, model.(*T))
		})
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

func (m *mappers) add(t reflect.Type, options []OnOption, fn mapper) {
	var o onOptions
	for _, set := range options {
		if set != nil {
			set(&o)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byType == nil {
		m.byType, m.resolve = map[reflect.Type][]mapper{}, map[reflect.Type]bool{}
	}
	m.resolve[t] = m.resolve[t] || o.resolve
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

func (m *mappers) of(t reflect.Type) (fns []mapper, resolve bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.byType[t], m.resolve[t]
}
