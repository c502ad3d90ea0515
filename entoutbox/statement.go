package entoutbox

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
)

// statement is one statement on the table of a type that causes events.
type statement struct {
	write
	client    *client
	entity    *entity
	op        core.Op
	doNothing bool
	call      *call // the mutation that causes it, nil if that is not known
	fns       []adapter.Mapper
	named     bool // not only OnAll asks for the type
	returned  bool // RETURNING names the rows
	bulk      int  // the number of mutations, if mappers want to know which row is whose
	capture   *capture.Capture
	rows      []reflect.Value // in the order in which the database named them
	owners    []*Outbox       // of the events so far
}

// statement returns what is to be captured of a statement, nil if it causes no events.
func (d *driver) statement(ctx context.Context, query string) (*statement, error) {
	if d.clients.Load() == nil {
		return nil, nil
	}
	w, ok := readWrite(query)
	if !ok {
		return nil, nil
	}
	s := &statement{write: w, call: callOf(ctx), returned: d.dialect != core.MySQL}
	var of *identity
	if s.call != nil {
		of = &s.call.client.of
	}
	if s.client, s.entity = d.find(w.table, of); s.entity == nil {
		return nil, nil
	}
	s.op, s.doNothing = w.op()
	if s.call == nil {
		s.call = d.lost(s)
	} else if !s.call.is(s.client, s.entity) {
		s.call = nil // the rows of an edge, or of another mutation
	}
	if s.call != nil && s.call.op == core.OpDelete && s.op == core.OpUpdate {
		s.op = core.OpDelete // a soft delete
	}
	s.collect(d)
	switch {
	case len(s.fns) == 0:
		return nil, nil
	case w.verb != "INSERT" && w.verb != "UPDATE" && w.verb != "DELETE":
		return nil, fmt.Errorf("%w: a statement on %s begins with %s, so that nobody can tell which rows it changes",
			core.ErrNoAggregateID, w.table, w.verb)
	}
	return s, nil
}

// statementOf is statement for the arguments of Ent, which any driver would refuse if they are no
// list.
func (d *driver) statementOf(ctx context.Context, query string, args any) (*statement, []any, error) {
	list, ok := args.([]any)
	if !ok {
		return nil, nil, nil
	}
	s, err := d.statement(ctx, query)
	return s, list, err
}

// collect finds the functions for the rows of the statement: those of OnMutation, and those of On.
func (s *statement) collect(d *driver) {
	for _, c := range s.call.hooks() {
		var of []*call // one for each row of VALUES
		for _, m := range c.mappers {
			if of == nil {
				of = d.bulk(c, s)
				s.bulk = len(of)
			}
			s.named = true
			s.add(c.hook.ob, s.mutationMapper(m, of))
		}
	}
	for _, ob := range s.client.outboxes {
		fns, named := ob.own.Mappers.For(s.entity.goType, s.table)
		s.named = s.named || named
		for _, fn := range fns {
			s.add(ob, fn)
		}
	}
}

// add adds a function. Its events are those of one outbox.
func (s *statement) add(ob *Outbox, fn adapter.Mapper) {
	s.fns = append(s.fns, func(ctx context.Context, op core.Op, model any) ([]core.Event, error) {
		events, err := fn(ctx, op, model)
		if err == nil {
			s.owners = append(s.owners, slices.Repeat([]*Outbox{ob}, len(events))...)
		}
		return events, err
	})
}

// publish writes the events of each outbox.
func (s *statement) publish(ctx context.Context, t *tx) func([]core.Event) error {
	return func(events []core.Event) error {
		for _, ob := range s.client.outboxes {
			var own []core.Event
			for i, e := range events {
				if s.owners[i] == ob {
					own = append(own, e)
				}
			}
			if len(own) == 0 {
				continue
			}
			if err := ob.own.Publish(ctx, t.core, own...); err != nil {
				return err
			}
		}
		return nil
	}
}

// describe returns the statement for a Capture.
func (s *statement) describe(ctx context.Context, t *tx) capture.Statement {
	st := capture.Statement{
		Op: s.op, DoNothing: s.doNothing, Of: s.entity.name, On: s.fns, Key: s.entity.key,
		Columns: s.entity.quoted(t.driver), Keys: s.entity.keys(), Counted: s.entity.counted(),
	}
	st.Scan = func(rows *capture.Answer) (_ []reflect.Value, err error) {
		s.rows, err = s.entity.entities(ctx, t.driver, rows, s.driverFor(t))
		return s.rows, err
	}
	for range s.bulk {
		if s.bulk > 1 && !s.returned { // rows are read in any order, so the database is asked
			st.Models = append(st.Models, capture.Model{Recorder: new(core.Recorder)})
		}
	}
	if !s.named {
		st.LeftOut = s.client.outboxes[0].own.LeftOut(ctx, s.entity.goType, s.entity.name)
	}
	return st
}

// driverFor returns the driver that the told entities have, as those have that Ent returns.
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
	for _, ob := range s.client.outboxes {
		err := ob.ready()
		if err == nil {
			err = ob.own.Check(ctx, t.core)
		}
		if err != nil {
			return adapter.CausesEvents(s.op, s.entity.name, err)
		}
	}
	return nil
}
