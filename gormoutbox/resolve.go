package gormoutbox

import (
	"reflect"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// OnOption changes how On and OnContext register a function.
type OnOption = adapter.OnOption

// ResolveRows lets statements pass that do not say which rows they change, such as Delete(&Order{},
// id), Where(...).Delete(&Order{}), Model(&Order{}).Where(...).Update, Update with gorm.Expr and
// every update and delete of gorm.G[Order]. The rows that the statement is about to change are read
// and locked first (SELECT ... FOR UPDATE), and the statement is bound to their keys. After an
// update they are read again. The function sees each row as it was stored, or as it was before it
// was deleted.
//
// ResolveRows costs one SELECT before such a statement and one after an update, and memory for the
// rows; Config.MaxResolvedRows bounds them. Other statements cost nothing more. The option holds
// for all functions of the type.
func ResolveRows() OnOption { return adapter.ResolveRows() }

// resolvedRows are rows that were read, in the order of reading.
type resolvedRows struct {
	models []reflect.Value // pointers
	byKey  map[string]reflect.Value
}

// resolve reads and locks the rows that an update or a delete is about to change, and binds the
// statement to them.
func (s *statement) resolve() error {
	stmt := s.db.Statement
	if len(stmt.Schema.PrimaryFields) == 0 || stmt.Clauses["LIMIT"].Expression != nil {
		return nil
	}
	var conditions []clause.Expression
	if where, ok := stmt.Clauses["WHERE"].Expression.(clause.Where); ok && len(where.Exprs) > 0 {
		conditions = append(conditions, group(where.Exprs))
	}
	var keyed []reflect.Value
	for _, e := range s.elements {
		if e.key != "" {
			keyed = append(keyed, e.model)
		}
	}
	if len(keyed) > 0 {
		conditions = append(conditions, s.keyCondition(keyed))
	}
	limit := s.ob.own.MaxRows()
	rows, err := s.lockRows(clause.And(conditions...), limit+1)
	if err != nil {
		return err
	}
	if len(rows.models) > limit {
		return s.ob.own.TooManyRows(s.op, stmt.Schema.Table)
	}
	delete(stmt.Clauses, "WHERE")
	bound := append(conditions, s.keyCondition(rows.models))
	stmt.AddClause(clause.Where{Exprs: bound})
	s.rows, s.exists, s.replaced = rows, false, false
	s.expect = len(rows.models)
	if s.ob.own.Dialect() == core.MySQL && s.op == core.OpUpdate {
		s.expect = -1 // rows that already have the new values are not counted
	}
	return nil
}

// group joins conditions into one expression. Some of them may be joined by OR.
func group(exprs []clause.Expression) clause.Expression {
	if len(exprs) == 1 {
		if or, ok := exprs[0].(clause.OrConditions); ok && len(or.Exprs) == 1 {
			return or.Exprs[0]
		}
	}
	return clause.And(exprs...)
}

// keyCondition is the condition that the primary key is the key of one of the models.
func (s *statement) keyCondition(models []reflect.Value) clause.Expression {
	if len(models) == 0 {
		return clause.Expr{SQL: "1 = 0"}
	}
	stmt := s.db.Statement
	values := make([][]any, 0, len(models))
	for _, m := range models {
		parts := make([]any, len(stmt.Schema.PrimaryFields))
		for i, f := range stmt.Schema.PrimaryFields {
			parts[i], _ = f.ValueOf(stmt.Context, m.Elem())
		}
		values = append(values, parts)
	}
	column, in := schema.ToQueryValues(stmt.Table, stmt.Schema.PrimaryFieldDBNames, values)
	return clause.IN{Column: column, Values: in}
}

// lockRows reads the rows that a condition selects, and locks them until the transaction ends.
func (s *statement) lockRows(condition clause.Expression, limit int) (*resolvedRows, error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	stmt := s.db.Statement
	query := s.model()
	if s.ob.own.Dialect() == core.SQLite {
		// A transaction that has read cannot always begin to write. This statement takes the lock
		// of the only writer, and changes nothing.
		if err := s.session.Exec("DELETE FROM ? WHERE 1 = 0", clause.Table{Name: stmt.Table}).Error; err != nil {
			return nil, adapter.Errorf("outbox: lock %s: %w", stmt.Schema.Table, err)
		}
	} else {
		query = query.Clauses(clause.Locking{Strength: clause.LockingStrengthUpdate})
	}
	if condition != nil {
		query = query.Clauses(clause.Where{Exprs: []clause.Expression{condition}})
	}
	if s.unscoped() {
		query = query.Unscoped()
	}
	return s.read(query.Limit(limit))
}

// unscoped reports whether softly deleted rows count.
func (s *statement) unscoped() bool { return s.db.Statement.Unscoped || s.op == core.OpUpsert }

func (s *statement) model() *gorm.DB {
	stmt := s.db.Statement
	query := s.session.Model(reflect.New(stmt.Schema.ModelType).Interface())
	if stmt.Table != stmt.Schema.Table {
		query = query.Table(stmt.Table)
	}
	return query
}

func (s *statement) read(query *gorm.DB) (*resolvedRows, error) {
	stmt := s.db.Statement
	found := reflect.New(reflect.SliceOf(reflect.PointerTo(stmt.Schema.ModelType)))
	if err := query.Find(found.Interface()).Error; err != nil {
		return nil, adapter.Errorf("outbox: read the rows of %s that are to change: %w", stmt.Schema.Table, err)
	}
	rows := &resolvedRows{byKey: map[string]reflect.Value{}}
	for i := range found.Elem().Len() {
		m := found.Elem().Index(i)
		key, _, err := keyOf(stmt.Context, stmt.Schema, m)
		if err != nil {
			return nil, err
		}
		rows.models, rows.byKey[key] = append(rows.models, m), m
	}
	return rows, nil
}

// readAgain reads the rows as the update stored them.
func (s *statement) readAgain() error {
	if len(s.rows.models) == 0 {
		return nil
	}
	rows, err := s.read(s.model().Unscoped().Clauses(
		clause.Where{Exprs: []clause.Expression{s.keyCondition(s.rows.models)}},
	))
	if err != nil {
		return err
	}
	if len(rows.models) != len(s.rows.models) {
		return s.unknown("changed the key of its rows")
	}
	for i, m := range s.rows.models { // in the order of locking
		key, _, err := keyOf(s.db.Statement.Context, s.db.Statement.Schema, m)
		if err != nil {
			return err
		}
		s.rows.models[i] = rows.byKey[key]
	}
	return nil
}
