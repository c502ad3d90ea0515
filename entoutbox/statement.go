package entoutbox

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
)

// statement is one statement on the table of a type that causes events.
type statement struct {
	capture.Write
	client  client
	entity  *entity
	call    *call // the mutation that causes it, nil if that is not known
	parts   []part
	named   bool    // not only OnAll asks for the type
	of      []*call // with mappers: the calls of the bulk
	capture *capture.Capture
}

// part is what one outbox has to do with the statement.
type part struct {
	ob  *Outbox
	fns []adapter.Mapper
}

// statement describes a statement for the capture, nil if it causes no events.
func (d *driver) statement(ctx context.Context, query string) (*statement, error) {
	if len(*d.clients.Load()) == 0 || strings.HasPrefix(query, "SELECT ") {
		return nil, nil
	}
	w, ok := capture.ReadWrite(d.dialect, query)
	if !ok {
		return nil, nil
	}
	s, by := &statement{Write: w}, callOf(ctx)
	if s.client, s.entity = d.find(w.Table, by); s.entity == nil {
		return nil, nil
	}
	if by != nil && by.is(s) { // else the rows of an edge, or of another mutation
		s.call = by
	}
	for _, ob := range s.client.outboxes {
		s.join(ob)
	}
	switch {
	case len(s.parts) == 0:
		return nil, nil
	case w.Verb != "INSERT" && w.Verb != "UPDATE" && w.Verb != "DELETE":
		return nil, fmt.Errorf("%w: a statement on %s begins with %s, so the rows that it changes are not known",
			core.ErrNoAggregateID, w.Table, w.Verb)
	}
	return s, nil
}

// join adds the functions of an outbox from OnMutation and On.
func (s *statement) join(ob *Outbox) {
	fns, named := ob.own.Mappers.For(s.entity.goType, s.Table)
	s.named = s.named || named
	p := part{ob: ob}
	for _, m := range s.call.mappers(ob) {
		if s.of == nil {
			s.of = s.call.driver.bulk(s)
		}
		s.named = true
		p.add(func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
			mutation, err := s.mutationOf(op, reflect.ValueOf(model))
			if err != nil {
				return nil, err
			}
			return m.fn(ctx, mutation, model)
		})
	}
	for _, fn := range fns {
		p.add(fn)
	}
	if len(p.fns) > 0 {
		s.parts = append(s.parts, p)
	}
}

// add adds a function, for which OpOf finds the operation.
func (p *part) add(fn adapter.Mapper) {
	p.fns = append(p.fns, func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
		return fn(context.WithValue(ctx, opKey{}, op), op, model)
	})
}

// tell calls the functions, and writes the events of each outbox.
func (s *statement) tell(ctx context.Context, t *tx) error {
	telling, last := t.telling(ctx), len(s.parts)-1
	for i, p := range s.parts {
		publish := func(events []core.Event) error { return p.ob.own.Publish(ctx, t.core, events...) }
		if i == last {
			return s.capture.Tell(telling, publish)
		}
		if err := s.capture.TellOther(telling, p.fns, publish); err != nil {
			return err
		}
	}
	return nil
}

// describe returns the statement for a Capture.
func (s *statement) describe(ctx context.Context, t *tx) capture.Statement {
	last := s.parts[len(s.parts)-1]
	st := capture.Statement{
		Op: s.op(), ReadText: true, Of: s.entity.name, On: last.fns, Key: s.entity.key,
		Columns: s.entity.columns, Counted: s.entity.counted,
	}
	if s.entity.id != nil { // Ent does not expose the key fields of a type without an id
		st.Keys = 1
	}
	st.Scan = func(rows *capture.Answer) ([]reflect.Value, error) {
		return s.entity.entities(ctx, t.driver, rows, s.driverFor(t))
	}
	if s.of != nil && s.Rows > 1 { // the database is asked which row is whose
		for range s.Rows {
			st.Models = append(st.Models, capture.Model{Recorder: new(core.Recorder)})
		}
	}
	if !s.named {
		st.LeftOut = last.ob.own.LeftOut(ctx, s.entity.goType, s.entity.name)
	}
	return st
}

// op is the operation of the statement, by its first word.
func (s *statement) op() core.Op {
	switch {
	case s.Verb == "INSERT":
		return core.OpCreate
	case s.Verb == "DELETE" || s.call != nil && s.call.op == core.OpDelete: // a soft delete
		return core.OpDelete
	}
	return core.OpUpdate
}

// driverFor returns the driver for entities that On functions get, the same as for entities that
// Ent returns.
func (s *statement) driverFor(t *tx) dialect.Driver {
	if s.call != nil {
		if drv, ok := driverOfCode(reflect.ValueOf(s.call.mutation)); ok {
			return drv
		}
	}
	if t.own {
		return t.driver
	}
	return txDriver{t}
}

// check returns the error of a transaction in which the events could not be written.
func (s *statement) check(ctx context.Context, t *tx) error {
	for _, p := range s.parts {
		if err := p.ob.own.Check(ctx, t.core); err != nil {
			return adapter.CausesEvents(s.op(), s.entity.name, err)
		}
	}
	return nil
}
