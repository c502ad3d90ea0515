package bunoutbox

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// after writes the events of a statement that was executed. If it returns an error, the transaction
// must not commit.
func (s *statement) after(ctx context.Context, event *bun.QueryEvent) {
	if s.on.mappers == nil && len(s.models) == 0 {
		return
	}
	affected := int64(-1)
	if event.Result != nil {
		if n, err := event.Result.RowsAffected(); err == nil {
			affected = n
		}
	}
	if affected == 0 {
		return
	}
	c := capture{statement: s, affected: affected, stored: elements(event.Model.Value())}
	returned := false
	defer func() {
		if !returned { // an On function panicked, and the program may recover and commit
			c.Conclude(core.RolledBack)
			_ = s.visit(context.WithoutCancel(ctx), func(tx *sqltx.VisitedTx) error {
				tx.RefuseCommit(adapter.ErrPanicked)
				return nil
			})
		}
	}()
	c.write(ctx, event)
	returned = true
}

// write writes the events. If it cannot, the transaction will not commit.
func (c *capture) write(ctx context.Context, event *bun.QueryEvent) {
	s := c.statement
	err := c.collect(ctx, event)
	if err == nil && len(c.Events()) == 0 {
		return
	}
	// The end of the statement's context must not hide that its events are missing.
	verr := s.visit(context.WithoutCancel(ctx), func(tx *sqltx.VisitedTx) error {
		if err == nil {
			err = s.ob.own.Publish(ctx, inPool{tx, event.DB.DB}, c.Events()...)
		}
		if err != nil {
			tx.RefuseCommit(err)
			return err
		}
		tx.OnOutcome(c.Conclude)
		return nil
	})
	if verr != nil {
		c.Conclude(core.RolledBack)
		s.ob.own.Config().Logger.ErrorContext(ctx, "outbox: the events of a statement could not be written; its "+
			"transaction "+
			"will not commit",
			"component", "outbox", "table", s.table.Name, "op", s.op.String(), "error", verr)
	}
}

// capture is the work on one statement that was executed.
type capture struct {
	*statement
	affected int64           // rows, negative when the driver did not report a number
	stored   []reflect.Value // the models as the statement left them
	moved    bool            // RETURNING was read over models of other rows
	adapter.Captured
}

func (c *capture) collect(ctx context.Context, event *bun.QueryEvent) error {
	if c.known == unknown {
		return c.recorded(nil) // the events name their aggregate themselves
	}
	if err := c.assignID(event); err != nil {
		return err
	}
	rows, err := c.changed()
	if err != nil {
		return err
	}
	if fresh := c.needsReading(); fresh && (c.on.mappers != nil || c.unproven()) {
		if rows, err = c.readRows(context.WithoutCancel(ctx), event, rows); err != nil {
			return err
		}
	}
	if err := c.mapped(ctx, lastOfEach(rows)); err != nil {
		return err
	}
	return c.recorded(rows)
}

// lastOfEach drops each row that a later row of the same statement, with the same key, has
// overwritten.
func lastOfEach(rows []row) []row {
	later := make(map[string]bool, len(rows))
	last := make([]row, 0, len(rows))
	for _, r := range slices.Backward(rows) {
		if r.key == "" || !later[r.key] {
			last = append(last, r)
		}
		later[r.key] = true
	}
	slices.Reverse(last)
	return last
}

// changed returns the rows that the statement changed, according to the database.
func (c *capture) changed() ([]row, error) {
	switch {
	case c.known == byRows:
		return c.resolved, c.checkResolved()
	case !c.slice:
		return c.changedOne()
	}
	rows := make([]row, 0, len(c.stored))
	for i, model := range c.stored {
		key, err := keyOf(c.table, model)
		if err != nil {
			return nil, err
		}
		if key == "" && c.known != byInsert {
			return nil, c.doubt("did not tell the keys of all rows that it changed")
		}
		c.moved = c.moved || c.known == byKeys && i < len(c.keys) && key != c.keys[i]
		rows = append(rows, row{key, model})
	}
	n := int(c.affected)
	switch {
	case c.everyRow(), n == len(c.models) && len(c.stored) == len(c.models):
		return rows, nil
	case c.text.returning.any && !c.text.returning.odd && c.returnsKeys() && n == len(c.stored):
		c.moved = true
		return rows, nil
	}
	return nil,
		c.doubt(fmt.Sprintf("has %d models and changed %d rows: nobody can tell which (Returning(\"*\") tells, "+
			"where the database has it)", len(c.models), n))
}

// everyRow reports whether the statement stores each of its models, whatever number of rows is
// counted. MySQL counts 2 for an updated row and 0 for a row with the same values.
func (c *capture) everyRow() bool {
	return c.op == core.OpUpsert && !c.text.rows.skips && c.ob.own.Dialect() == core.MySQL && !c.text.returning.any &&
		len(c.stored) == len(c.models)
}

// changedOne is changed for a statement with one model.
func (c *capture) changedOne() ([]row, error) {
	if len(c.stored) != 1 || c.affected > 1 && !c.everyRow() {
		return nil, c.doubt(fmt.Sprintf("has one model and changed %d rows", c.affected))
	}
	key, err := keyOf(c.table, c.stored[0])
	switch {
	case err != nil:
		return nil, err
	case key == "" && c.known != byInsert:
		return nil, c.doubt("did not tell the key of the row that it changed")
	case c.known == byKeys && key != c.keys[0]:
		return nil, c.doubt("gave its model another key")
	}
	return []row{{key, c.stored[0]}}, nil
}

func (c *capture) doubt(what string) error {
	return fmt.Errorf("%w: %s of %s %s: use one statement for each model, or call Publish", core.ErrNoAggregateID, c.op,
		c.table.Name, what)
}

// needsReading reports whether the rows have to be read, because the models do not show them as
// they are stored.
func (c *capture) needsReading() bool {
	if c.text.returning.all && c.known != byRows {
		return false
	}
	switch c.op {
	case core.OpUpdate:
		if c.known == byReturning || c.known == byRows || c.moved {
			return true
		}
		for column := range c.stale {
			if !c.text.returning.names[column] {
				return true
			}
		}
		return false
	case core.OpUpsert:
		return !c.text.rows.skips || c.moved
	case core.OpDelete:
		return c.moved
	default:
		return c.moved
	}
}

// unproven reports whether an upsert may have changed another row than the one with the key of its
// model: a row that has the same value in another unique column.
func (c *capture) unproven() bool {
	if c.op != core.OpUpsert || c.text.rows.skips || c.returnsKeys() {
		return false
	}
	if len(c.text.rows.targets) != len(c.table.PKs) {
		return true
	}
	for _, f := range c.table.PKs {
		found := false
		for _, t := range c.text.rows.targets {
			found = found || t == f.Name
		}
		if !found {
			return true
		}
	}
	return false
}

// assignID reads the key that the database generated, if Bun does so only after the query hooks.
func (c *capture) assignID(event *bun.QueryEvent) error {
	db := event.DB
	if c.known != byInsert || event.Result == nil || db.HasFeature(feature.Returning) ||
		db.HasFeature(feature.Output) ||
		len(c.table.PKs) != 1 || !c.table.PKs[0].AutoIncrement || c.text.returning.any {
		return nil
	}
	id, err := event.Result.LastInsertId()
	if err != nil || id == 0 {
		return nil //nolint:nilerr // no id: Bun has read the key from RETURNING
	}
	pk := c.table.PKs[0]
	for i, model := range c.stored {
		if i < len(c.keys) && c.keys[i] != "" {
			continue // it has a key of its own
		}
		if err := pk.ScanValue(model.Elem(), id); err != nil {
			return err
		}
		id++
	}
	return nil
}

// mapped collects the events that the On functions derive from the rows.
func (c *capture) mapped(ctx context.Context, rows []row) error {
	if c.on.mappers == nil {
		return nil
	}
	ctx = core.ContextWithTx(ctx, c.on.tx)
	defer c.on.endTx()
	for _, r := range rows {
		if r.key == "" && len(c.table.PKs) > 0 && c.ob.own.Config().AllowKeyless {
			continue
		}
		for _, fn := range c.on.mappers {
			events, err := fn(ctx, c.op, r.model.Interface())
			if err != nil {
				return err
			}
			if err := c.add(events, r.model, r.key); err != nil {
				return err
			}
		}
	}
	return nil
}

// recorded takes the events that the models have recorded.
func (c *capture) recorded(rows []row) error {
	changed := make(map[string]bool, len(rows))
	for _, r := range rows {
		changed[r.key] = true
	}
	for i, model := range c.models {
		r, ok := adapter.RecorderOf(model)
		if !ok || len(r.Recorded()) == 0 {
			continue
		}
		key, err := keyOf(c.table, model)
		if err != nil {
			return err
		}
		if c.moved {
			switch own := c.keys[i]; {
			case own == "" || changed[own] && key != own:
				return c.doubt("put other rows into models with recorded events")
			case !changed[own]:
				continue
			}
		}
		if c.known != unknown && key != "" && !changed[key] {
			continue // the row was there before, or is gone
		}
		events, err := c.Take(r)
		if err != nil {
			return err
		}
		if err := c.add(events, model, key); err != nil {
			return err
		}
	}
	return nil
}

// add collects events of a row. They need its key, unless they name their aggregate or the table
// has no key.
func (c *capture) add(events []core.Event, model reflect.Value, key string) error {
	if key == "" && len(c.table.PKs) > 0 {
		for _, e := range events {
			if e.AggregateID == "" {
				return c.doubt(fmt.Sprintf("did not tell the key of its row (set AggregateID of event %q)", e.Type))
			}
		}
	}
	c.Add(events, model, key)
	return nil
}
