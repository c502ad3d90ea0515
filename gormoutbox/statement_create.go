package gormoutbox

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// planCreate decides how the rows that an insert stores will be known.
func (s *statement) planCreate() error {
	stmt := s.db.Statement
	full, partial := s.returning()
	c, has := stmt.Clauses["ON CONFLICT"]
	conflict, known := c.Expression.(clause.OnConflict)
	switch {
	case len(s.elements) == 0:
		s.doubt = s.unknown("from maps does not say which rows it makes")
		return nil
	case !has:
		s.expect = len(s.elements)
		if s.slice && full {
			s.nameColumns()
		} else if partial {
			s.returnKeys()
		}
		return nil
	case !known:
		s.setOp(core.OpUpsert)
		s.doubt = s.unknown("has a conflict clause of its own making")
		return nil
	}
	s.setOp(core.OpUpsert)
	if !s.concerned() {
		return nil
	}
	if s.association {
		return s.planAssociation(conflict)
	}
	if conflict.DoNothing {
		return s.planDoNothing(full)
	}
	return s.planUpsert(conflict, full)
}

func (s *statement) setOp(op core.Op) {
	s.op = op
	for i := range s.elements {
		s.elements[i].op = op
	}
}

// concerned reports whether events depend on the statement, as far as is known before it.
func (s *statement) concerned() bool {
	hooks := hooksMayRecord(s.db.Statement)
	return s.mappers != nil || slices.ContainsFunc(s.elements,
		func(e element) bool { return e.pending || hooks && e.recorder != nil })
}

// nameColumns replaces RETURNING * with a list of columns. With a list, GORM reads the rows into
// the models, in their order. With *, it replaces the models by others, which have no recorders.
func (s *statement) nameColumns() {
	var columns []clause.Column
	for _, name := range s.db.Statement.Schema.DBNames {
		if s.db.Statement.Schema.FieldsByDBName[name].Readable {
			columns = append(columns, clause.Column{Name: name})
		}
	}
	s.setReturning(columns)
}

func (s *statement) setReturning(columns []clause.Column) {
	c := s.db.Statement.Clauses["RETURNING"]
	c.Name, c.Expression = "RETURNING", clause.Returning{Columns: columns}
	s.db.Statement.Clauses["RETURNING"] = c
}

func (s *statement) generated() (n int) {
	for _, e := range s.elements {
		if e.key == "" {
			n++
		}
	}
	return n
}

// planDoNothing plans an INSERT ... ON CONFLICT DO NOTHING that the program wrote.
func (s *statement) planDoNothing(full bool) error {
	n := len(s.elements)
	switch {
	case s.ob.own.Dialect() == core.MySQL:
		alone, err := s.aloneKey()
		if err != nil {
			return err
		}
		if alone && s.generated() == n {
			s.expect = n // no row can have a key that the database generates now
			return nil
		}
		s.doubt = s.unknown("with OnConflict{DoNothing: true} does not say which rows were there already, on " +
			"MariaDB and MySQL")
	case n == 1 && (!s.slice || !full):
		s.expect = 1
	case s.slice && full:
		s.replaced = true
		if slices.ContainsFunc(s.elements, func(e element) bool { return e.pending }) {
			s.doubt = s.unknown("with RETURNING * puts other models in place of those with recorded events")
		}
	case s.generated() > 0 || s.returnsDefaults():
		s.doubt = s.unknown("with OnConflict{DoNothing: true} does not say which models were there already (with " +
			"clause.Returning{}, the slice is left with those that were made)")
	default:
		s.expect = n
	}
	return nil
}

// returnsDefaults reports whether GORM asks for columns with a default in RETURNING. It then counts
// the affected rows wrongly.
func (s *statement) returnsDefaults() bool {
	stmt := s.db.Statement
	_, asked := stmt.Clauses["RETURNING"]
	return slices.Contains(stmt.BuildClauses, "RETURNING") && (asked || len(stmt.Schema.FieldsWithDefaultDBValue) > 0)
}

// planUpsert plans an ON CONFLICT DO UPDATE. If the conflict is in another column than the key, the
// changed row may have another key. So the statement returns the keys.
func (s *statement) planUpsert(conflict clause.OnConflict, full bool) error {
	stmt := s.db.Statement
	s.expect = len(s.elements)
	s.lastOfEach()
	if len(conflict.Where.Exprs) > 0 && s.slice && len(s.elements) > 1 {
		s.doubt = s.unknown("with conditions in OnConflict may change some of its models only")
		return nil
	}
	for _, a := range conflict.DoUpdates {
		if s.mappers != nil && !full && computed(a.Value) {
			s.stale = s.unknown(fmt.Sprintf("sets %q to an expression, of which the model does not show the value "+
				"(clause.Returning{} does)", a.Column.Name))
		}
	}
	if slices.Contains(stmt.BuildClauses, "RETURNING") {
		if !full && s.mappers != nil {
			s.nameColumns() // the row keeps the columns that the statement does not set
		} else if !full && (s.ob.own.Dialect() == core.MySQL || !s.targetsKey(conflict)) {
			s.returnKeys()
		}
		return nil
	}
	alone, err := s.aloneKey()
	switch {
	case err != nil:
		return err
	case alone: // MySQL, which has no RETURNING
		s.expect = -1 // a new row counts 1, a changed row 2, an unchanged row 0
		s.stored = true
		// An existing row keeps the columns that the statement does not set.
		s.reread = s.mappers != nil && s.generated() < len(s.elements)
	default:
		s.doubt = s.unknown("with ON DUPLICATE KEY UPDATE does not say which rows it changed, because the table has " +
			"other unique keys")
	}
	return nil
}

// targetsKey reports whether the conflict that the statement expects is in the primary key.
func (s *statement) targetsKey(conflict clause.OnConflict) bool {
	if conflict.OnConstraint != "" {
		return false
	}
	if len(conflict.Columns) == 0 {
		return conflict.UpdateAll // GORM adds the key
	}
	for _, c := range conflict.Columns {
		if f := s.db.Statement.Schema.LookUpField(c.Name); f == nil || !f.PrimaryKey {
			return false
		}
	}
	return len(conflict.Columns) == len(s.db.Statement.Schema.PrimaryFields)
}

// returnKeys makes the statement return the primary key too, with the columns that it returns
// already.
func (s *statement) returnKeys() {
	stmt := s.db.Statement
	var columns []clause.Column
	if r, ok := stmt.Clauses["RETURNING"].Expression.(clause.Returning); ok {
		columns = append(columns, r.Columns...)
	} else {
		for _, f := range stmt.Schema.FieldsWithDefaultDBValue {
			if f.Readable {
				columns = append(columns, clause.Column{Name: f.DBName})
			}
		}
	}
	for _, name := range stmt.Schema.PrimaryFieldDBNames {
		if !slices.ContainsFunc(columns, func(c clause.Column) bool { return c.Name == name }) {
			columns = append(columns, clause.Column{Name: name})
		}
	}
	s.setReturning(columns)
}

// planAssociation plans the insert of children that GORM saves along with a parent, with a conflict
// clause of GORM's own. An existing child keeps its columns except the foreign key; with
// FullSaveAssociations all columns are stored. Existing rows are read first, because an unchanged
// row causes no event.
func (s *statement) planAssociation(conflict clause.OnConflict) error {
	generated := s.generated()
	alone := true
	if s.ob.own.Dialect() == core.MySQL {
		var err error
		if alone, err = s.aloneKey(); err != nil {
			return err
		}
	}
	missing := 0
	if generated < len(s.elements) {
		var err error
		if missing, err = s.compareStored(conflict); err != nil {
			return err
		}
	}
	for i := range s.elements {
		if s.elements[i].key == "" {
			s.elements[i].op = core.OpCreate
		}
	}
	switch {
	case !alone && generated+missing > 0:
		s.doubt = s.unknown("along with its parent does not say which rows were there, because the table has other " +
			"unique keys: save them first")
	case s.ob.own.Dialect() == core.MySQL:
	case !conflict.DoNothing:
		s.expect = len(s.elements)
	case missing > 0 && s.returnsDefaults():
		s.doubt = s.unknown("along with its parent does not say which rows were there: save them first")
	case !s.returnsDefaults():
		s.expect = missing + generated
	case generated == len(s.elements):
		s.expect = generated
	}
	return nil
}

// compareStored marks the elements whose rows exist and stay unchanged. It returns how many
// elements have a key and no row.
func (s *statement) compareStored(conflict clause.OnConflict) (missing int, err error) {
	keyed := make([]reflect.Value, 0, len(s.elements))
	for _, e := range s.elements {
		if e.key != "" && (s.mappers != nil || e.recorder != nil) {
			keyed = append(keyed, e.model)
		}
	}
	if len(keyed) == 0 {
		return 0, nil
	}
	// Locking a row that does not exist locks the gap, and two inserts into the gap deadlock.
	if s.ob.own.Dialect() == core.MySQL {
		if err := s.begin(); err != nil {
			return 0, err
		}
		there, err := s.read(s.model().Unscoped().Clauses(
			clause.Where{Exprs: []clause.Expression{s.keyCondition(keyed)}},
		))
		if err != nil {
			return 0, err
		}
		keyed = there.models
	}
	stored, err := s.lockRows(s.keyCondition(keyed), len(keyed))
	if err != nil {
		return 0, err
	}
	for i := range s.elements {
		e := &s.elements[i]
		if e.key == "" {
			continue
		}
		row, there := stored.byKey[e.key]
		switch {
		case !there:
			missing++
		case conflict.DoNothing:
			e.skip = true
		default:
			e.op = core.OpUpdate
			e.same = !s.differs(row, e.model, conflict)
			e.skip = e.same && !conflict.UpdateAll
		}
	}
	return missing, nil
}

// differs reports whether storing model changes row in a column that the statement sets. Timestamps
// that GORM sets are ignored.
func (s *statement) differs(row, model reflect.Value, conflict clause.OnConflict) bool {
	stmt := s.db.Statement
	var names []string
	for _, a := range conflict.DoUpdates {
		names = append(names, a.Column.Name)
	}
	if conflict.UpdateAll {
		names = stmt.Schema.DBNames
	}
	return slices.ContainsFunc(names, func(name string) bool {
		f := stmt.Schema.LookUpField(name)
		if f == nil || conflict.UpdateAll && (f.PrimaryKey || f.AutoCreateTime > 0 || f.AutoUpdateTime > 0) {
			return false
		}
		was, _ := f.ValueOf(stmt.Context, row.Elem())
		is, zero := f.ValueOf(stmt.Context, model.Elem())
		if conflict.UpdateAll && f.HasDefaultValue && zero {
			return false // the statement does not set it
		}
		return !sameValue(was, is)
	})
}

func sameValue(a, b any) bool {
	if t, ok := a.(time.Time); ok {
		u, ok := b.(time.Time)
		return ok && t.Truncate(time.Microsecond).Equal(u.Truncate(time.Microsecond))
	}
	return reflect.DeepEqual(a, b)
}

// aloneKey reports whether the table has no unique key besides the primary key. MariaDB and MySQL
// do not say whether a row is new. Only in such a table it must be new if the database generated
// its key, or if no row had its key before.
func (s *statement) aloneKey() (bool, error) {
	table := s.db.Statement.Table
	if v, ok := s.ob.alone.Load(table); ok && time.Since(v.(aloneKey).at) < time.Minute {
		return v.(aloneKey).alone, nil
	}
	if err := s.begin(); err != nil {
		return false, err
	}
	var n int64
	err := s.session.Raw("SELECT COUNT(*) FROM information_schema.statistics WHERE table_schema = DATABASE() AND "+
		"table_name = ? AND non_unique = 0 AND index_name <> 'PRIMARY'",
		table).Scan(&n).Error
	if err != nil {
		return false, adapter.Errorf("outbox: read the indexes of %s: %w", table, err)
	}
	s.ob.alone.Store(table, aloneKey{n == 0, time.Now()})
	return n == 0, nil
}

type aloneKey struct {
	alone bool
	at    time.Time
}
