package bunoutbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// hook captures the events of models around their statements.
type hook struct{ ob *Outbox }

// BeforeQuery implements bun.QueryHook. A statement that must not be executed gets a context that has ended.
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

// statement is a captured INSERT, UPDATE or DELETE.
type statement struct {
	ob      *Outbox
	query   query
	table   *schema.Table
	op      core.Op
	skips   bool // rows that are there already are passed over
	slice   bool
	models  []reflect.Value // as the statement got them
	keys    []string        // theirs, "" where unknown
	mappers []mapper        // nil when nobody wants to see it
}

// query is what Bun's queries have in common: a statement made by NewRaw runs where the query runs.
type query interface {
	NewRaw(query string, args ...any) *bun.RawQuery
}

// statement returns nil when nothing is to be captured.
func (o *Outbox) statement(event *bun.QueryEvent) (*statement, error) {
	s := &statement{ob: o}
	switch q := event.IQuery.(type) {
	case *bun.InsertQuery:
		s.query = q
	case *bun.UpdateQuery:
		s.query, s.op = q, core.OpUpdate
	case *bun.DeleteQuery:
		s.query, s.op = q, core.OpDelete
	case *bun.MergeQuery:
		s.query, s.op = q, core.OpUpsert
	default:
		return nil, nil
	}
	model, ok := event.Model.(bun.TableModel)
	if !ok {
		return nil, nil
	}
	s.table = model.Table()
	s.mappers = o.mappers.of(s.table.Type)
	if s.mappers == nil && !o.hasRecorder(s.table.Type) {
		return nil, nil
	}
	s.models, s.slice = elements(model.Value()), isSlice(model.Value())
	if s.mappers == nil && !s.anyRecorded() {
		return nil, nil
	}
	s.keys = make([]string, len(s.models))
	for i, m := range s.models {
		var err error
		if r, ok := recorderOf(m); ok {
			if err := core.CheckRecorder(r); err != nil {
				return nil, err
			}
		}
		if s.keys[i], err = keyOf(s.table, m); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *statement) anyRecorded() bool {
	for _, m := range s.models {
		if r, ok := recorderOf(m); ok && len(r.Recorded()) > 0 {
			return true
		}
	}
	return false
}

// before returns why the statement must not be executed, if it must not.
func (s *statement) before(ctx context.Context, event *bun.QueryEvent) error {
	named := false
	switch event.IQuery.(type) {
	case *bun.InsertQuery:
		s.op, s.skips = insertKind(event.Query, s.ob.dialect)
		named = len(s.models) > 0
	case *bun.MergeQuery: // tells nothing
	default:
		named = s.named(event.DB.QueryGen(), event.Query)
	}
	if s.mappers != nil && !named {
		if err := s.keyless(ctx); err != nil {
			return err
		}
		s.mappers = nil
		if !s.anyRecorded() {
			s.models = nil
		}
	}
	if s.mappers == nil && len(s.models) == 0 {
		return nil
	}
	err := s.visit(ctx, func(tx *sqloutbox.VisitedTx) error { return tx.Err() })
	if errors.Is(err, ErrNoTransaction) || errors.Is(err, ErrUntracked) {
		return fmt.Errorf("%w: %s causes events: use the tx that RunInTx gives, of the outbox or of a pool opened with sqloutbox.Connector", err, s.table.Name)
	}
	return err
}

// visit runs fn in the transaction of the statement.
func (s *statement) visit(ctx context.Context, fn func(tx *sqloutbox.VisitedTx) error) error {
	return visit(ctx, s.query, fn)
}

func visit(ctx context.Context, q query, fn func(tx *sqloutbox.VisitedTx) error) error {
	return sqloutbox.Visit(ctx, func(ctx context.Context, text string) error {
		_, err := q.NewRaw(text).Exec(ctx)
		return err
	}, fn)
}

// keyless decides about a statement that On functions want to see and that does not say what it changes.
func (s *statement) keyless(ctx context.Context) error {
	if !s.ob.cfg.AllowKeyless {
		return fmt.Errorf("%w: %s of %s does not say which rows it changes, and On functions are registered for them: change loaded models with WherePK, call Publish, or set Config.AllowKeyless",
			ErrNoAggregateID, s.op, s.table.Name)
	}
	if _, logged := s.ob.warned.LoadOrStore(s.table.Type, true); !logged && s.ob.cfg.Logger != nil {
		s.ob.cfg.Logger.WarnContext(ctx, "outbox: a statement does not say which rows it changes and causes no events",
			"component", "outbox", "table", s.table.Name, "op", s.op.String())
	}
	return nil
}

// refused is the context of a statement that must not be executed. A query hook cannot return an error, but database/sql
// returns that of a context which has ended, before it sends anything. The deadline is for drivers that look at nothing else.
type refused struct {
	context.Context //nolint:containedctx // it is one
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
