package gormoutbox

import (
	"context"
	"fmt"
	"reflect"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// capture writes the events of a statement that was executed. It also does so for a statement that
// skips hooks, because GORM's Save skips them for its last insert.
func (o *Outbox) capture(db *gorm.DB) {
	o.observe(db)
	v, ok := db.Statement.Settings.LoadAndDelete(statementKey{o, db.Statement})
	if !ok {
		return
	}
	s := v.(*statement)
	returned := false
	defer func() {
		if !returned { // an On function panicked, and the program may recover and commit
			s.Conclude(core.RolledBack)
			s.refuseCommit(adapter.ErrPanicked)
			rollBackOwn(db)
		}
	}()
	s.finish()
	returned = true
}

// finish writes the events, or keeps the transaction from committing without them.
func (s *statement) finish() {
	db := s.db
	if db.Error != nil {
		// A hook of the model failed after the row was stored.
		if db.RowsAffected > 0 && (s.concerned() || s.dest != nil) {
			s.refuseCommit(db.Error)
		}
		return
	}
	if err := s.capture(); err != nil {
		_ = db.AddError(err)
		s.refuseCommit(err)
	}
}

// refuseCommit keeps the transaction from committing rows without their events, even if the program
// ignores the error of the statement.
func (s *statement) refuseCommit(err error) {
	tx, terr := TxOf(context.WithoutCancel(s.db.Statement.Context), s.db)
	if terr != nil {
		return
	}
	if t, ok := tx.(interface{ RefuseCommit(err error) }); ok {
		t.RefuseCommit(err)
	}
}

func (s *statement) capture() (err error) {
	defer func() {
		if err != nil {
			s.Conclude(core.RolledBack)
		}
	}()
	if s.db.RowsAffected == 0 && !s.stored {
		if found, err := s.foundUnchanged(); err != nil || !found {
			return err
		}
	}
	if err := s.count(); err != nil {
		return err
	}
	if s.replaced {
		if err := s.collectReplaced(); err != nil {
			return err
		}
	}
	if s.rows != nil && s.mappers != nil {
		if err := s.mapRows(); err != nil {
			return err
		}
	}
	if s.reread && s.mappers != nil {
		if err := s.readStored(); err != nil {
			return err
		}
	}
	var key string
	for i := range s.elements {
		if key, err = s.captureElement(&s.elements[i]); err != nil {
			return err
		}
	}
	if s.dest != nil {
		if len(s.elements) != 1 || s.slice {
			key = s.oneRow()
		}
		if err := s.recorded(s.dest, reflect.ValueOf(s.db.Statement.Dest), key); err != nil {
			return err
		}
	}
	return s.publish()
}

// foundUnchanged reports whether an update that changed nothing found its row. MySQL and MariaDB
// count the rows that had other values before; the other databases count the rows that were found.
// If the row exists, the update of one model by its key counts everywhere.
func (s *statement) foundUnchanged() (bool, error) {
	if s.rows != nil {
		return s.expect < 0 && len(s.rows.models) > 0, nil // they were found and locked
	}
	if !s.exists || s.mappers == nil && !anyRecorded(s.db.Statement) {
		return false, nil
	}
	rows, err := s.lockRows(s.keyCondition([]reflect.Value{s.elements[0].model}), 1)
	if err != nil || len(rows.models) == 0 {
		return false, err
	}
	s.db.RowsAffected = 1
	if s.db.Statement.Result != nil {
		s.db.Statement.Result.RowsAffected = 1
	}
	return true, nil
}

// count compares the number of affected rows with the rows that would be reported.
func (s *statement) count() error {
	if s.expect < 0 || s.db.RowsAffected == int64(s.expect) {
		return nil
	}
	why := s.unknown(fmt.Sprintf("changed %d rows of %d, and does not say which", s.db.RowsAffected, s.expect))
	if s.mappers != nil {
		if !s.giveUp() {
			return why
		}
	}
	s.doubt = why // recorded events are in doubt too
	return nil
}

// collectReplaced collects the models that RETURNING has put in place of the elements.
func (s *statement) collectReplaced() (err error) {
	op := s.op
	s.elements = nil
	eachElement(s.db.Statement.ReflectValue, func(model reflect.Value) {
		e := element{model: model, op: op}
		e.recorder, _ = adapter.RecorderOf(model)
		s.elements = append(s.elements, e)
	})
	return err
}

// captureElement collects the events of one model and returns its key.
func (s *statement) captureElement(e *element) (string, error) {
	stmt := s.db.Statement
	key, keyed, err := keyOf(stmt.Context, stmt.Schema, e.model)
	if err != nil {
		return "", err
	}
	if s.rows != nil {
		_, changed := s.rows.byKey[key]
		if key == "" {
			key = s.oneRow()
		} else if !changed {
			return key, nil
		}
	}
	if e.skip {
		return key, nil
	}
	if keyed && key == "" && s.doubt == nil && s.rows == nil {
		s.doubt = s.unknown("left a model without a key")
		if s.mappers != nil && !s.ob.own.Config().AllowKeyless {
			return "", s.doubt
		}
	}
	if s.mappers != nil && s.rows == nil && !e.same && !e.again && s.doubt == nil {
		model := e.model
		if e.stored.IsValid() {
			model = e.stored
		}
		if err := s.mapped(e.op, model, key); err != nil {
			return "", err
		}
	}
	return key, s.recorded(e.recorder, e.model, key)
}

// readStored reads the rows of an upsert, which already holds their locks.
func (s *statement) readStored() error {
	models := make([]reflect.Value, len(s.elements))
	for i, e := range s.elements {
		models[i] = e.model
	}
	rows, err := s.lockRows(s.keyCondition(models), len(models))
	if err != nil {
		return err
	}
	stmt := s.db.Statement
	for i := range s.elements {
		key, _, err := keyOf(stmt.Context, stmt.Schema, s.elements[i].model)
		if err != nil {
			return err
		}
		s.elements[i].stored = rows.byKey[key]
	}
	return nil
}

// oneRow returns the key of the resolved row if there is exactly one.
func (s *statement) oneRow() string {
	if s.rows != nil && len(s.rows.byKey) == 1 {
		for key := range s.rows.byKey {
			return key
		}
	}
	return ""
}

// mapRows calls the On functions with the rows that were resolved.
func (s *statement) mapRows() error {
	if s.op == core.OpUpdate {
		if err := s.readAgain(); err != nil {
			return err
		}
	}
	stmt := s.db.Statement
	for _, m := range s.rows.models {
		key, _, err := keyOf(stmt.Context, stmt.Schema, m)
		if err != nil {
			return err
		}
		if err := s.mapped(s.op, m, key); err != nil {
			return err
		}
	}
	return nil
}

// mapped collects the events that the On functions derive from a model.
func (s *statement) mapped(op core.Op, model reflect.Value, key string) error {
	if model.Type().Elem() != s.db.Statement.Schema.ModelType {
		return nil
	}
	if err := s.begin(); err != nil {
		return err
	}
	ctx := contextWith(s.db.Statement.Context, s.session, s.tx)
	for _, fn := range s.mappers {
		if err := s.Map(ctx, fn, op, model, key); err != nil {
			return err
		}
	}
	return nil
}

// recorded takes the events that a model has recorded.
func (s *statement) recorded(r *core.Recorder, model reflect.Value, key string) error {
	if r == nil {
		return nil
	}
	events, err := s.Take(r)
	if err != nil || len(events) == 0 {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	if s.doubt != nil && (s.rows == nil || key == "") && !s.selfNamed(events) {
		return adapter.Errorf("outbox: event %q was recorded on a model, and: %w", events[0].Type, s.doubt)
	}
	if key == "" && len(s.db.Statement.Schema.PrimaryFields) > 0 && !s.selfNamed(events) {
		return fmt.Errorf("%w: event %q was recorded on a %s whose primary key is not known: set AggregateID",
			core.ErrNoAggregateID, events[0].Type, s.db.Statement.Schema.Table)
	}
	s.Add(events, model, key)
	return nil
}

// begin finds the transaction, once.
func (s *statement) begin() (err error) {
	if s.tx == nil {
		if s.tx, err = trackedTx(s.db.Statement.Context, s.db); err == nil {
			s.session = s.db.Session(&gorm.Session{NewDB: true, Context: s.db.Statement.Context})
		}
	}
	return err
}

func (s *statement) publish() error {
	if len(s.Events()) == 0 {
		s.Conclude(core.RolledBack)
		return nil
	}
	if err := s.ob.own.Publish(s.db.Statement.Context, s.tx, s.Events()...); err != nil {
		return err
	}
	s.tx.OnOutcome(s.Conclude)
	return nil
}
