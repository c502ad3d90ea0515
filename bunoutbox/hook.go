package bunoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// hook puts a door before the connection of each statement that may cause events. Bun asks for the
// connection after the query hooks.
type hook struct{ ob *Outbox }

// doorKey is where the door of a statement is in the Stash of its event. There is one, even if the
// *bun.DB has the hooks of several outboxes.
type doorKey struct{}

// BeforeQuery implements bun.QueryHook.
func (h *hook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if f, ok := ctx.Value(finderKey{}).(*finder); ok {
		f.found = append(f.found, h.ob)
		return ctx
	}
	d, joins := event.Stash[doorKey{}].(*door)
	if !joins {
		d = newDoor(event)
	}
	if d == nil || !d.join(h.ob, event) || joins {
		return ctx
	}
	d.place()
	if event.Stash == nil {
		event.Stash = map[any]any{}
	}
	event.Stash[doorKey{}] = d
	return ctx
}

// AfterQuery implements bun.QueryHook.
func (h *hook) AfterQuery(ctx context.Context, event *bun.QueryEvent) {
	d, ok := event.Stash[doorKey{}].(*door)
	if !ok || d.parts[0].ob != h.ob {
		return
	}
	event.Stash[doorKey{}] = nil
	d.remove()
	if event.Err != nil || d.sent.Load() {
		return
	}
	err := adapter.CausesEvents(d.op, d.table.Name, errPassedBy)
	verr := sqltx.Visit(context.WithoutCancel(ctx), d.run, func(tx *sqltx.VisitedTx) error {
		tx.RefuseCommit(err)
		return nil
	})
	logged := "outbox: a statement passed by the outbox; its transaction will not commit"
	if verr != nil {
		logged = "outbox: a statement passed by the outbox, and its events are lost"
	}
	h.ob.own.Log().ErrorContext(ctx, logged, "table", d.table.Name, "op", d.op.String(), "error", err)
}

var errPassedBy = fmt.Errorf("%w: another query hook has set the connection of the query, so the outbox did not see "+
	"the statement: remove that hook", core.ErrNotInstalled)

// A program calls the functions below in Bun's hooks of models, one line each:
//
//	func (*Order) BeforeInsert(ctx context.Context, q *bun.InsertQuery) error {
//		return bunoutbox.BeforeInsert(ctx, q)
//	}

// BeforeInsert is for the BeforeInsert hook of a model whose statements must not run without the
// outbox. It returns an error wrapping core.ErrNotInstalled when the *bun.DB does not have the hook
// of an Outbox, and one wrapping core.ErrUntracked in an untracked transaction. After an error Bun
// does not execute the statement.
func BeforeInsert(ctx context.Context, q *bun.InsertQuery) error { return beforeModel(ctx, q) }

// BeforeUpdate is BeforeInsert for updates.
func BeforeUpdate(ctx context.Context, q *bun.UpdateQuery) error { return beforeModel(ctx, q) }

// BeforeDelete is BeforeInsert for deletes, soft deletes too.
func BeforeDelete(ctx context.Context, q *bun.DeleteQuery) error { return beforeModel(ctx, q) }

// finder is in the context of a statement. Each query hook that sees it adds its Outbox.
type finder struct{ found []*Outbox }

type finderKey struct{}

func beforeModel(ctx context.Context, q query) error {
	f := &finder{}
	err := sqltx.Visit(context.WithValue(ctx, finderKey{}, f), func(ctx context.Context, text string) error {
		_, err := rawOf(ctx, q, text).Exec(ctx)
		return err
	}, func(tx *sqltx.VisitedTx) error { return tx.Err() })
	if errors.Is(err, core.ErrNoTransaction) && !errors.Is(err, sql.ErrTxDone) {
		err = nil // the statement gets its own transaction
	}
	if len(f.found) == 0 {
		if err != nil && !errors.Is(err, core.ErrUntracked) {
			return errors.Join(errNoHook, err)
		}
		return errNoHook
	}
	return err
}

var errNoHook = fmt.Errorf("%w: the *bun.DB does not have the query hook: use ob.DB(), or the result of "+
	"db.WithQueryHook(ob.Hook())", core.ErrNotInstalled)

// rawOf returns a statement that runs where q runs. Bun asks a ConnResolver where that is. Every raw
// query calls itself a SELECT, which a resolver may send to a replica, so it is asked with q.
func rawOf(ctx context.Context, q query, text string, args ...any) *bun.RawQuery {
	raw := q.NewRaw(text, args...)
	conn := field(raw, "conn")
	if !conn.IsValid() || conn.Kind() != reflect.Interface || !conn.IsNil() {
		return raw
	}
	resolver := field(raw.DB(), "resolver")
	if !resolver.IsValid() || resolver.Type() != reflect.TypeFor[bun.ConnResolver]() || resolver.IsNil() {
		return raw
	}
	resolver = reflect.NewAt(resolver.Type(), resolver.Addr().UnsafePointer()).Elem()
	if chosen := resolver.Interface().(bun.ConnResolver).ResolveConn(ctx, q); chosen != nil {
		return raw.Conn(chosen)
	}
	return raw.Conn(raw.DB().DB)
}

// field returns a field that Bun does not export. The result is not valid where Bun has no such
// field some day.
func field(of any, name string) reflect.Value { return reflect.ValueOf(of).Elem().FieldByName(name) }
