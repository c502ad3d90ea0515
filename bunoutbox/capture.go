package bunoutbox

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/feature"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// after writes the events of a statement that was executed. When that fails, the transaction must not commit.
func (s *statement) after(ctx context.Context, event *bun.QueryEvent) {
	if s.mappers == nil && len(s.models) == 0 {
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
	c := capture{statement: s, stored: elements(event.Model.Value())}
	err := c.collect(ctx, event, affected)
	if err == nil && len(c.events) == 0 {
		return
	}
	// The end of the statement's context must not hide that its events are missing.
	verr := s.visit(context.WithoutCancel(ctx), func(tx *sqloutbox.VisitedTx) error {
		if err == nil {
			_, err = s.ob.core.Publish(ctx, tx, c.events...)
		}
		if err != nil {
			tx.Veto(err)
			return err
		}
		tx.OnOutcome(c.settleAll)
		return nil
	})
	if verr != nil {
		c.settleAll(core.RolledBack)
		if l := s.ob.cfg.Logger; l != nil {
			l.ErrorContext(ctx, "outbox: the events of a statement could not be written; its transaction will not commit",
				"component", "outbox", "table", s.table.Name, "op", s.op.String(), "error", verr)
		}
	}
}

// capture is the work on one statement that was executed.
type capture struct {
	*statement
	stored []reflect.Value // as the statement left them
	moved  bool            // RETURNING was read over models of other rows
	events []core.Event
	settle []func(core.Outcome)
}

func (c *capture) collect(ctx context.Context, event *bun.QueryEvent, affected int64) error {
	if err := c.assignID(event); err != nil {
		return err
	}
	c.moved = c.slice && c.rowsMoved()
	if c.moved && c.mappers != nil && !strings.HasSuffix(blank(event.Query, c.ob.dialect), " RETURNING *") {
		if !c.ob.cfg.AllowKeyless {
			return fmt.Errorf("%w: RETURNING was read over other models of the slice, so that nobody can tell what was stored of the %d rows of %s: use Returning(\"*\"), or one statement for each",
				ErrNoAggregateID, affected, c.table.Name)
		}
		c.mappers = nil
	}
	if err := c.mapped(ctx); err != nil {
		return err
	}
	return c.recorded()
}

// rowsMoved reports whether what RETURNING gave was read over models of other rows. Bun reads the rows in their order over the first
// models of a slice, whichever rows they are: fewer when some were not stored, and in any order after an update.
func (c *capture) rowsMoved() bool {
	if len(c.stored) != len(c.models) {
		return true
	}
	for i, model := range c.stored {
		if key, err := keyOf(c.table, model); err == nil && c.keys[i] != "" && key != c.keys[i] {
			return true
		}
	}
	return false
}

// assignID reads the key that the database generated, where Bun does so only after the query hooks.
func (c *capture) assignID(event *bun.QueryEvent) error {
	db := event.DB
	if c.op != core.OpCreate || event.Result == nil || db.HasFeature(feature.Returning) || db.HasFeature(feature.Output) ||
		len(c.table.PKs) != 1 || !c.table.PKs[0].AutoIncrement {
		return nil
	}
	id, err := event.Result.LastInsertId()
	if err != nil || id == 0 {
		return nil //nolint:nilerr // the rows of RETURNING have no such id: the key was read from them
	}
	pk := c.table.PKs[0]
	for _, model := range c.stored {
		if err := pk.ScanValue(model.Elem(), id); err != nil {
			return err
		}
		id++
	}
	return nil
}

// mapped collects what the On functions make of the models.
func (c *capture) mapped(ctx context.Context) error {
	if c.mappers == nil {
		return nil
	}
	known := false // whether the statement told what it changed
	for _, model := range c.stored {
		key, err := keyOf(c.table, model)
		if err != nil {
			return err
		}
		if key == "" && len(c.table.PKs) > 0 {
			known = known || c.skips // this one was there already
			continue
		}
		known = true
		for _, fn := range c.mappers {
			events, err := fn(ctx, c.op, model.Interface())
			if err != nil {
				return err
			}
			c.add(events, model, key)
		}
	}
	if !known {
		return c.keyless(ctx)
	}
	return nil
}

// recorded takes over the events that the models have recorded.
func (c *capture) recorded() error {
	stored := map[string]bool{}
	for _, model := range c.stored {
		key, err := keyOf(c.table, model)
		if err != nil {
			return err
		}
		stored[key] = true
	}
	for i, model := range c.models {
		r, ok := recorderOf(model)
		if !ok {
			continue
		}
		key := c.keys[i]
		if key == "" && !c.moved {
			var err error
			if key, err = keyOf(c.table, model); err != nil {
				return err
			}
		}
		if key != "" && !stored[key] || key == "" && c.skips && !c.moved {
			continue // this one was there already, or is not there any more
		}
		events, settle, err := r.HandOver()
		if err != nil {
			return err
		}
		if len(events) == 0 {
			continue
		}
		c.settle = append(c.settle, settle)
		if key == "" && len(c.table.PKs) > 0 {
			for _, e := range events {
				if e.AggregateID == "" {
					return fmt.Errorf("%w: event %q was recorded on a %s whose primary key is not known: set AggregateID",
						ErrNoAggregateID, e.Type, c.table.Name)
				}
			}
		}
		c.add(events, model, key)
	}
	return nil
}

func (c *capture) add(events []core.Event, model reflect.Value, key string) {
	for _, e := range events {
		if e.AggregateID == "" {
			e.AggregateID = key
		}
		if e.AggregateType == "" {
			if t, ok := reflect.TypeAssert[interface{ AggregateType() string }](model); ok {
				e.AggregateType = t.AggregateType()
			}
		}
		c.events = append(c.events, e)
	}
}

func (c *capture) settleAll(o core.Outcome) {
	for _, settle := range c.settle {
		settle(o)
	}
}
