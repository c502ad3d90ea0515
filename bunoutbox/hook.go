package bunoutbox

import (
	"context"
	"time"

	"github.com/uptrace/bun"
)

// hook captures the events of models around their statements.
type hook struct{ ob *Outbox }

// BeforeQuery implements bun.QueryHook. A statement that must not be executed gets a context that
// has ended.
func (h *hook) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if f, ok := ctx.Value(finderKey{}).(*finder); ok {
		f.found = append(f.found, h.ob)
		return ctx
	}
	key := stashKey{h}
	if _, again := event.Stash[key]; again { // the *bun.DB has the hook twice
		return ctx
	}
	s, err := h.ob.statement(event)
	if s == nil && err == nil {
		return ctx
	}
	if err == nil {
		err = s.before(ctx, event)
	}
	if err != nil {
		return refused{ctx, err}
	}
	if event.Stash == nil {
		event.Stash = map[any]any{}
	}
	event.Stash[key] = s
	return ctx
}

// AfterQuery implements bun.QueryHook.
func (h *hook) AfterQuery(ctx context.Context, event *bun.QueryEvent) {
	key := stashKey{h}
	s, ok := event.Stash[key].(*statement)
	if !ok {
		return
	}
	event.Stash[key] = nil
	if event.Err == nil {
		s.after(ctx, event)
	}
}

type stashKey struct{ hook *hook }

// refused is the context of a statement that must not be executed. A query hook cannot return an
// error. But if a context has ended, database/sql sends nothing and returns the error of the
// context. The deadline is for drivers that check only the deadline.
type refused struct {
	context.Context //nolint:containedctx // refused is itself a context
	err             error
}

var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done implements context.Context.
func (r refused) Done() <-chan struct{} { return closed }

// Err implements context.Context.
func (r refused) Err() error { return r.err }

// Deadline implements context.Context.
func (r refused) Deadline() (time.Time, bool) { return time.Unix(0, 1), true }
