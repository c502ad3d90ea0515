package gormoutbox

import (
	"fmt"
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
)

func (o *Outbox) captureCreate(db *gorm.DB) {
	op := core.OpCreate
	if _, ok := db.Statement.Clauses["ON CONFLICT"]; ok {
		op = core.OpUpsert
	}
	o.capture(db, op)
}

func (o *Outbox) captureUpdate(db *gorm.DB) { o.capture(db, core.OpUpdate) }

func (o *Outbox) captureDelete(db *gorm.DB) { o.capture(db, core.OpDelete) }

// capture writes the events of a statement that was executed. It does not matter whether the statement skips hooks: GORM's
// Save does so for the insert it ends in.
func (o *Outbox) capture(db *gorm.DB, op core.Op) {
	o.observe(db)
	stmt := db.Statement
	if db.Error != nil || db.DryRun || stmt.Schema == nil || db.RowsAffected == 0 {
		return
	}
	c := capture{ob: o, db: db, op: op, mappers: o.mappers.of(stmt.Schema.ModelType)}
	if c.mappers == nil && !o.hasRecorder(stmt.Schema.ModelType) {
		return
	}
	if err := c.run(); err != nil {
		_ = db.AddError(err)
	}
}

// capture is the work on one statement.
type capture struct {
	ob      *Outbox
	db      *gorm.DB
	op      core.Op
	mappers []mapper
	tx      core.Tx
	session *gorm.DB // of the transaction, for mappers
	events  []core.Event
	settle  []func(core.Outcome)
}

func (c *capture) run() (err error) {
	defer func() {
		if err != nil {
			c.settleAll(core.RolledBack)
		}
	}()
	known := false // whether the statement told what it changed
	var lastKey string
	eachElement(c.db.Statement.ReflectValue, func(model reflect.Value) {
		if err != nil {
			return
		}
		key, keyed, kerr := keyOf(c.db.Statement.Context, c.db.Statement.Schema, model)
		if kerr != nil {
			err = kerr
			return
		}
		if keyed && key == "" && c.doNothing() {
			known = true // this element was there already
			return
		}
		if key != "" || c.keylessModel(model) {
			known, lastKey = true, key
			err = c.mapped(model, key)
		}
		if err == nil {
			if r, ok := recorderOf(model); ok {
				err = c.recorded(r, model, key, keyed)
			}
		}
	})
	if err != nil {
		return err
	}
	if r, ok := destRecorder(c.db.Statement); ok {
		if err := c.recorded(r, reflect.ValueOf(c.db.Statement.Dest), lastKey, true); err != nil {
			return err
		}
	}
	if !known && c.mappers != nil {
		if err := c.ob.keyless(c.db, c.op); err != nil {
			return err
		}
	}
	return c.publish()
}

// keylessModel reports whether an insert stored a model that has no primary key at all: then it is all there is to know.
func (c *capture) keylessModel(model reflect.Value) bool {
	s := c.db.Statement.Schema
	return len(s.PrimaryFields) == 0 && model.Type().Elem() == s.ModelType && (c.op == core.OpCreate || c.op == core.OpUpsert)
}

func (c *capture) doNothing() bool {
	oc, ok := c.db.Statement.Clauses["ON CONFLICT"].Expression.(clause.OnConflict)
	return ok && oc.DoNothing
}

// mapped collects what the On functions make of a model.
func (c *capture) mapped(model reflect.Value, key string) error {
	if c.mappers == nil || model.Type().Elem() != c.db.Statement.Schema.ModelType {
		return nil
	}
	if err := c.begin(); err != nil {
		return err
	}
	ctx := contextWith(c.db.Statement.Context, c.session, c.tx)
	for _, fn := range c.mappers {
		events, err := fn(ctx, c.op, model.Interface())
		if err != nil {
			return err
		}
		c.add(events, model, key)
	}
	return nil
}

// recorded takes over the events that a model has recorded.
func (c *capture) recorded(r *core.Recorder, model reflect.Value, key string, keyed bool) error {
	events, settle, err := r.HandOver()
	if err != nil || len(events) == 0 {
		return err
	}
	c.settle = append(c.settle, settle)
	if err := c.begin(); err != nil {
		return err
	}
	if keyed && key == "" {
		for _, e := range events {
			if e.AggregateID == "" {
				return fmt.Errorf("%w: event %q was recorded on a %s whose primary key is not known: set AggregateID",
					ErrNoAggregateID, e.Type, c.db.Statement.Schema.Table)
			}
		}
	}
	c.add(events, model, key)
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

// begin finds the transaction, once.
func (c *capture) begin() (err error) {
	if c.tx == nil {
		if c.tx, err = TxOf(c.db); err == nil {
			c.session = c.db.Session(&gorm.Session{NewDB: true, Context: c.db.Statement.Context})
		}
	}
	return err
}

func (c *capture) publish() error {
	if len(c.events) == 0 {
		c.settleAll(core.RolledBack)
		return nil
	}
	if err := c.ob.publish(c.db.Statement.Context, c.tx, c.events); err != nil {
		return err
	}
	if c.tx.Tracked() {
		c.tx.OnOutcome(c.settleAll)
	} else {
		c.settleAll(core.Committed) // nobody will tell, and a second copy would be refused as a duplicate
	}
	return nil
}

func (c *capture) settleAll(o core.Outcome) {
	for _, settle := range c.settle {
		settle(o)
	}
}

// keyless decides about a statement that On functions want to see and that does not say what it changed.
func (o *Outbox) keyless(db *gorm.DB, op core.Op) error {
	table := db.Statement.Schema.Table
	if !o.cfg.AllowKeyless {
		return fmt.Errorf("%w: %s of %s does not say which rows it changed, and On functions are registered for them: change loaded models, call Publish, or set Config.AllowKeyless",
			ErrNoAggregateID, op, table)
	}
	if _, logged := o.warned.LoadOrStore(db.Statement.Schema.ModelType, true); !logged && o.cfg.Logger != nil {
		o.cfg.Logger.WarnContext(db.Statement.Context, "outbox: a statement does not say which rows it changed and causes no events",
			"component", "outbox", "table", table, "op", op.String())
	}
	return nil
}
