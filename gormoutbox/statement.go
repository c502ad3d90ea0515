package gormoutbox

import (
	"fmt"
	"reflect"
	"slices"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// statement is one statement on a captured type, from just before it is executed until its events
// are written.
//
// It reports events for rows only when the database says which rows it changed: their keys came
// back in RETURNING, or as many rows were affected as there are elements. In most cases the plugin
// knows before the statement when the changed rows cannot be known.
type statement struct {
	ob       *Outbox
	db       *gorm.DB
	op       core.Op
	mappers  []adapter.Mapper // nil also when AllowKeyless lets the statement pass
	resolves bool             // the On functions have ResolveRows
	elements []element
	dest     *core.Recorder // of the model with the changes: db.Model(&stored).Updates(&changed)
	slice    bool
	certainty

	association bool // GORM saves the elements along with a parent
	rows        *resolvedRows

	tx      core.Tx
	session *gorm.DB // a session in the transaction
	adapter.Captured
}

// certainty says what is known of the rows that a statement changes.
type certainty struct {
	stored   bool  // every model is stored, even if the database counts none
	reread   bool  // On functions get the rows as read after the statement, not the models
	replaced bool  // RETURNING * puts the changed rows in place of the elements
	moved    bool  // RETURNING may read other rows into the elements of an update or a delete
	doubt    error // why the changed rows cannot be known
	stale    error // why the models will not have the stored values
	exists   bool  // an update of one row by its key alone; MySQL may not count the row
	expect   int   // rows that must be affected, -1: any number
}

// element is one model of a statement.
type element struct {
	model    reflect.Value // a pointer
	stored   reflect.Value // the row as it was read after the statement, or unset
	key      string        // the key before the statement; "" when unknown
	op       core.Op
	recorder *core.Recorder
	pending  bool // the recorder has events
	skip     bool // the row existed, and the model is not stored
	same     bool // the row existed with the same values
	again    bool // another element has the same row
}

type statementKey struct {
	ob   *Outbox
	stmt *gorm.Statement
}

type associationKey struct {
	ob   *Outbox
	stmt *gorm.Statement
}

// noteAssociation notes whether GORM saves an association. It runs before the statement saves its
// own associations, which leave the same mark.
func (o *Outbox) noteAssociation(stmt *gorm.Statement) {
	if _, ok := stmt.Settings.Load("gorm:saved_association_map"); ok {
		stmt.Settings.Store(associationKey{o, stmt}, true)
	}
}

func (o *Outbox) prepareCreate(db *gorm.DB) { o.prepare(db, core.OpCreate) }
func (o *Outbox) prepareUpdate(db *gorm.DB) { o.prepare(db, core.OpUpdate) }
func (o *Outbox) prepareDelete(db *gorm.DB) { o.prepare(db, core.OpDelete) }

// prepare looks at a statement just before it is executed. It refuses a statement whose changes
// could not be reported afterwards.
func (o *Outbox) prepare(db *gorm.DB, op core.Op) {
	stmt := db.Statement
	if db.Error != nil || db.DryRun || stmt.Schema == nil {
		return
	}
	returned := false
	defer func() {
		if !returned { // a method of a key panicked
			rollBackOwn(db)
		}
	}()
	if err := o.plan(db, op); err != nil {
		_ = db.AddError(err)
	}
	returned = true
}

// plan decides how the events of a statement will be known.
func (o *Outbox) plan(db *gorm.DB, op core.Op) error {
	stmt := db.Statement
	has, err := o.hasRecorder(stmt.Schema)
	if err != nil {
		return err
	}
	mappers, resolves := o.own.Mappers.Of(stmt.Schema.ModelType)
	if mappers == nil && !has {
		return nil
	}
	s := &statement{ob: o, db: db, op: op, mappers: mappers, resolves: resolves, certainty: certainty{expect: -1}}
	_, s.association = stmt.Settings.LoadAndDelete(associationKey{o, stmt})
	if err := s.prepare(); err != nil {
		return err
	}
	stmt.Settings.Store(statementKey{o, stmt}, s)
	return nil
}

func (s *statement) prepare() error {
	if err := s.collect(); err != nil {
		return err
	}
	switch s.op {
	case core.OpCreate:
		if err := s.planCreate(); err != nil {
			return err
		}
	default:
		s.planChange()
		if s.resolves && (s.doubt != nil || s.stale != nil) {
			if err := s.resolve(); err != nil {
				return err
			}
		}
	}
	return s.refuse()
}

// collect finds the models and their recorders now, because the statement may replace the models.
func (s *statement) collect() (err error) {
	stmt := s.db.Statement
	s.slice = isSlice(stmt.ReflectValue)
	eachElement(stmt.ReflectValue, func(model reflect.Value) {
		if err != nil {
			return
		}
		e := element{model: model, op: s.op}
		if e.key, _, err = keyOf(stmt.Context, stmt.Schema, model); err != nil {
			return
		}
		e.recorder, e.pending, err = adapter.Pending(model)
		s.elements = append(s.elements, e)
	})
	if err != nil {
		return err
	}
	if r, ok := destRecorder(stmt); ok {
		if err := core.CheckRecorder(r); err != nil {
			return err
		}
		s.dest = r
	}
	return nil
}

// refuse returns an error when events depend on rows that cannot be known.
func (s *statement) refuse() error {
	if s.mappers != nil && s.rows == nil {
		for _, why := range []error{s.doubt, s.stale} {
			if why == nil {
				continue
			}
			if !s.giveUp() {
				return why
			}
			break
		}
	}
	if s.doubt == nil {
		return nil
	}
	one := s.rows != nil && len(s.rows.models) == 1
	for i := range s.elements {
		e := &s.elements[i]
		if e.pending && (s.moved || !one && (s.rows == nil || e.key == "")) && !s.selfNamed(e.recorder.Recorded()) {
			return s.doubt
		}
	}
	if s.dest != nil && !one && !s.selfNamed(s.dest.Recorded()) {
		return s.doubt
	}
	return nil
}

// selfNamed reports whether events do not need the row: they name their aggregate, and there is
// only one model.
func (s *statement) selfNamed(events []core.Event) bool {
	return !s.slice && adapter.Named(events)
}

// giveUp drops the On functions if Config.AllowKeyless allows that, and reports whether it did.
func (s *statement) giveUp() bool {
	stmt := s.db.Statement
	if !s.ob.own.AllowsKeyless(stmt.Context, stmt.Schema.ModelType, s.op, stmt.Schema.Table) {
		return false
	}
	s.mappers = nil
	return true
}

// unknown returns an error that says why the rows cannot be known. ResolveRows cannot help an
// insert.
func (s *statement) unknown(why string) error {
	waysOut := "change loaded models by their keys, register On with gormoutbox.ResolveRows()"
	if s.op == core.OpCreate || s.op == core.OpUpsert {
		waysOut = "insert models one by one"
	}
	return adapter.UnknownRows(s.op, s.db.Statement.Schema.Table, why,
		waysOut+", call Publish, or set Config.AllowKeyless")
}

// planChange decides how the rows that an update or a delete changes will be known.
func (s *statement) planChange() {
	stmt := s.db.Statement
	s.bindConditions()
	full, partial := s.returning()
	s.moved = s.slice && (full || partial)
	conditions := stmt.Clauses["WHERE"].Expression != nil || stmt.Clauses["LIMIT"].Expression != nil
	unkeyed := slices.ContainsFunc(s.elements,
		func(e element) bool { return e.key == "" || s.op == core.OpUpdate && s.partialKey(e.model) })
	keyed := slices.ContainsFunc(s.elements, func(e element) bool { return e.key != "" })
	switch {
	case !conditions && !keyed && !s.db.AllowGlobalUpdate:
		return // GORM refuses the statement
	case len(stmt.Schema.PrimaryFields) == 0:
		s.doubt = s.unknown("which has no primary key")
	case s.slice && full:
		s.replaced = true
		if slices.ContainsFunc(s.elements, func(e element) bool { return e.pending }) {
			s.doubt = s.unknown("with RETURNING * puts other models in place of those with recorded events")
		}
	case s.slice && len(s.elements) == 0 && partial:
		if s.replaced = true; s.mappers != nil {
			s.nameColumns() // the functions get whole rows, not parts of them
		}
	case len(s.elements) == 0 || unkeyed:
		s.doubt = s.unknown("does not say which rows it changes")
	case s.slice && partial:
		s.doubt = s.unknown("reads RETURNING over models in any order (ask for all columns, clause.Returning{})")
	case s.slice && conditions:
		s.doubt = s.unknown("has further conditions, so that it may change some of its models only " +
			"(clause.Returning{} tells which, where the database has it)")
	case hasOr(stmt):
		s.doubt = s.unknown("has OR among its conditions, so that it may change other rows")
	case s.slice && s.ob.own.Dialect() == core.MySQL && s.op == core.OpUpdate && s.resolves:
		s.doubt = s.unknown("counts only rows that had other values") // so it is resolved
	default:
		s.expect = s.distinct()
		s.exists = !s.slice && !conditions && s.ob.own.Dialect() == core.MySQL && s.op == core.OpUpdate
	}
	if s.op == core.OpUpdate && !s.replaced && s.mappers != nil {
		s.stale = s.staleModels(full)
	}
}

// lastOfEach marks the elements of an upsert whose row a later element stores again.
func (s *statement) lastOfEach() {
	later := make(map[string]bool, len(s.elements))
	for i := range slices.Backward(s.elements) {
		e := &s.elements[i]
		e.again = e.key != "" && later[e.key]
		later[e.key] = true
	}
}

// distinct counts the different rows of the elements. It marks an element whose row is that of an
// earlier one.
func (s *statement) distinct() int {
	if len(s.elements) == 1 {
		return 1
	}
	keys := make(map[string]bool, len(s.elements))
	for i := range s.elements {
		e := &s.elements[i]
		e.again = keys[e.key]
		keys[e.key] = true
	}
	return len(keys)
}

// bindConditions puts parentheses around conditions that are given as text. GORM does so only if
// there is an OR between two blanks. Without parentheses, an OR on a line of its own would join the
// key to the last part of the condition only, and the statement would change rows of other keys.
func (s *statement) bindConditions() {
	stmt := s.db.Statement
	c, ok := stmt.Clauses["WHERE"]
	if where, isWhere := c.Expression.(clause.Where); ok && isWhere {
		c.Expression = clause.Where{Exprs: inParentheses(where.Exprs)}
		stmt.Clauses["WHERE"] = c
	}
}

func inParentheses(exprs []clause.Expression) []clause.Expression {
	bound := make([]clause.Expression, len(exprs))
	for i, e := range exprs {
		switch e := e.(type) {
		case clause.Expr: // a new line, because the text may end in a comment
			e.SQL = "(" + e.SQL + "\n)"
			bound[i] = e
		case clause.NamedExpr:
			e.SQL = "(" + e.SQL + "\n)"
			bound[i] = e
		case clause.AndConditions:
			bound[i] = clause.AndConditions{Exprs: inParentheses(e.Exprs)}
		case clause.OrConditions:
			bound[i] = clause.OrConditions{Exprs: inParentheses(e.Exprs)}
		case clause.NotConditions:
			bound[i] = clause.NotConditions{Exprs: inParentheses(e.Exprs)}
		default:
			bound[i] = e
		}
	}
	return bound
}

// partialKey reports whether a part of a composite key is zero. GORM leaves that part out of an
// update's conditions.
func (s *statement) partialKey(model reflect.Value) bool {
	for _, f := range s.db.Statement.Schema.PrimaryFields {
		if _, zero := f.ValueOf(s.db.Statement.Context, model.Elem()); zero {
			return true
		}
	}
	return false
}

// returning reports whether the statement returns whole rows, or parts of them.
func (s *statement) returning() (full, partial bool) {
	stmt := s.db.Statement
	c, ok := stmt.Clauses["RETURNING"]
	if !ok || !slices.Contains(stmt.BuildClauses, "RETURNING") {
		return false, false
	}
	r, _ := c.Expression.(clause.Returning)
	full = len(r.Columns) == 0 || len(r.Columns) == 1 && r.Columns[0].Name == "*"
	return full, !full
}

// hasOr reports whether conditions are joined by OR outside of parentheses. Then the key does not
// restrict all of them.
func hasOr(stmt *gorm.Statement) bool {
	where, ok := stmt.Clauses["WHERE"].Expression.(clause.Where)
	return ok && slices.ContainsFunc(where.Exprs, func(e clause.Expression) bool {
		or, ok := e.(clause.OrConditions)
		return ok && len(or.Exprs) == 1
	})
}

// staleModels returns an error if On functions would get other values than those in the table: the
// database computes them, or the model cannot be changed.
func (s *statement) staleModels(full bool) error {
	stmt := s.db.Statement
	if full {
		return nil
	}
	covered := map[string]bool{}
	if r, ok := stmt.Clauses["RETURNING"].Expression.(clause.Returning); ok &&
		slices.Contains(stmt.BuildClauses, "RETURNING") {
		for _, c := range r.Columns {
			covered[c.Name] = true
		}
	}
	if set, ok := stmt.Clauses["SET"].Expression.(clause.Set); ok {
		for _, a := range set { // GORM does not put these into the model
			if !covered[a.Column.Name] {
				return s.unknown(fmt.Sprintf("sets %q, which the model does not show", a.Column.Name))
			}
		}
	}
	changes, ok := stmt.Dest.(map[string]any)
	if p, isPtr := stmt.Dest.(*map[string]any); isPtr && p != nil {
		changes, ok = *p, true
	}
	if !ok {
		if s.resolves && s.leavesOut() {
			return s.unknown("leaves out columns that the model shows")
		}
		if !stmt.ReflectValue.CanAddr() && !reflect.DeepEqual(stmt.Model, stmt.Dest) {
			return s.unknown("is given its model by value, which then does not show the changes (give a pointer)")
		}
		return nil
	}
	for name, v := range changes {
		f := stmt.Schema.LookUpField(name)
		if f != nil && covered[f.DBName] || f == nil && covered[name] {
			continue
		}
		if computed(v) {
			return s.unknown(fmt.Sprintf("sets %q to an expression, of which the model does not show the value "+
				"(clause.Returning{} does, where the database has it)", name))
		}
	}
	if len(changes) > 0 && !stmt.ReflectValue.CanAddr() {
		return s.unknown("is given its model by value, which then does not show the changes (give a pointer)")
	}
	return nil
}

// leavesOut reports whether an update may store fewer fields than its model has. GORM leaves out
// zero fields, and fields that Select and Omit leave out.
func (s *statement) leavesOut() bool {
	stmt := s.db.Statement
	model, dest := reflect.ValueOf(stmt.Model), reflect.ValueOf(stmt.Dest)
	if model.Kind() != reflect.Pointer || dest.Kind() != reflect.Pointer || model.Pointer() != dest.Pointer() {
		return false // GORM puts the stored values into the model
	}
	return len(stmt.Omits) > 0 || !slices.Contains(stmt.Selects, "*")
}

// computed reports whether the database computes the value of v.
func computed(v any) bool {
	switch v.(type) {
	case clause.Expression, *gorm.DB:
		return true
	}
	return false
}
