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
// knows before the statement that the rows cannot be told.
type statement struct {
	ob       *Outbox
	db       *gorm.DB
	op       core.Op
	mappers  []adapter.Mapper // nil also when AllowKeyless gave them up
	resolves bool             // they have ResolveRows
	elements []element
	dest     *core.Recorder // of the model that holds the changes: db.Model(&stored).Updates(&changed)
	slice    bool
	stored   bool  // every model is stored, also when the database counts none
	reread   bool  // On functions are shown the rows that the database has afterwards, not the models
	replaced bool  // RETURNING * puts the changed rows in place of the elements
	moved    bool  // RETURNING is read over the elements of an update or a delete, whichever rows it is of
	doubt    error // why it cannot be told which rows are changed
	stale    error // why the models will not have what is stored
	exists   bool  // an update of one row by its key alone, of which MySQL does not say whether it found the row

	association bool // GORM saves the elements along with a parent
	expect      int  // rows that must be affected, -1: any number
	rows        *resolvedRows

	tx      core.Tx
	session *gorm.DB // of the transaction
	adapter.Captured
}

// element is one model of a statement.
type element struct {
	model    reflect.Value // a pointer
	stored   reflect.Value // the row as it was read after the statement, or nothing
	key      string        // before the statement; "" when it is not known
	op       core.Op
	recorder *core.Recorder
	pending  bool // the recorder has events
	skip     bool // the row was there, and the model is not stored
	same     bool // the row was there with the same values
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

// notes whether GORM saves an association: before the statement saves associations of its own,
// which leaves the same mark.
func (o *Outbox) noteAssociation(stmt *gorm.Statement) {
	if _, ok := stmt.Settings.Load("gorm:saved_association_map"); ok {
		stmt.Settings.Store(associationKey{o, stmt}, true)
	}
}

func (o *Outbox) prepareCreate(db *gorm.DB) { o.prepare(db, core.OpCreate) }
func (o *Outbox) prepareUpdate(db *gorm.DB) { o.prepare(db, core.OpUpdate) }
func (o *Outbox) prepareDelete(db *gorm.DB) { o.prepare(db, core.OpDelete) }

// prepare looks at a statement just before it is executed, and refuses what could not be reported
// afterwards.
func (o *Outbox) prepare(db *gorm.DB, op core.Op) {
	stmt := db.Statement
	if db.Error != nil || db.DryRun || stmt.Schema == nil {
		return
	}
	has, err := o.hasRecorder(stmt.Schema)
	if err != nil {
		_ = db.AddError(err)
		return
	}
	mappers, resolves := o.own.Mappers.Of(stmt.Schema.ModelType)
	if mappers == nil && !has {
		return
	}
	s := &statement{ob: o, db: db, op: op, mappers: mappers, resolves: resolves, expect: -1}
	_, s.association = stmt.Settings.LoadAndDelete(associationKey{o, stmt})
	if err := s.prepare(); err != nil {
		_ = db.AddError(err)
		return
	}
	stmt.Settings.Store(statementKey{o, stmt}, s)
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

// collect finds the models, and their recorders: the statement may put others in their place.
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

// refuse returns an error when events depend on rows that nobody will know.
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

// selfNamed reports whether events can do without the row: they name their aggregate, and there is
// one model that they are about.
func (s *statement) selfNamed(events []core.Event) bool {
	return !s.slice && adapter.Named(events)
}

// giveUp goes on without On functions where Config.AllowKeyless says so.
func (s *statement) giveUp() bool {
	stmt := s.db.Statement
	if !s.ob.own.AllowsKeyless(stmt.Context, stmt.Schema.ModelType, s.op, stmt.Schema.Table) {
		return false
	}
	s.mappers = nil
	return true
}

// unknown makes an error of why nobody knows the rows. ResolveRows cannot help an insert.
func (s *statement) unknown(why string) error {
	waysOut := "change loaded models by their keys, register On with gormoutbox.ResolveRows()"
	if s.op == core.OpCreate || s.op == core.OpUpsert {
		waysOut = "insert models one by one"
	}
	return adapter.UnknownRows(s.op, s.db.Statement.Schema.Table, why,
		waysOut+", call Publish, or set Config.AllowKeyless")
}

// planChange decides what an update or a delete will tell.
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
		return // GORM refuses it
	case len(stmt.Schema.PrimaryFields) == 0:
		s.doubt = s.unknown("which has no primary key")
	case s.slice && full:
		s.replaced = true
		if slices.ContainsFunc(s.elements, func(e element) bool { return e.pending }) {
			s.doubt = s.unknown("with RETURNING * puts other models in place of those with recorded events")
		}
	case s.slice && len(s.elements) == 0 && partial:
		if s.replaced = true; s.mappers != nil {
			s.nameColumns() // the functions are shown rows, not parts of them
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
		s.doubt = s.unknown("counts only rows that had other values") // and so it is resolved
	default:
		s.expect = s.distinct()
		s.exists = !s.slice && !conditions && s.ob.own.Dialect() == core.MySQL && s.op == core.OpUpdate
	}
	if s.op == core.OpUpdate && !s.replaced && s.mappers != nil {
		s.stale = s.staleModels(full)
	}
}

// lastOfEach marks the elements of an upsert whose row is stored once more by a later one.
func (s *statement) lastOfEach() {
	later := make(map[string]bool, len(s.elements))
	for i := range slices.Backward(s.elements) {
		e := &s.elements[i]
		e.again = e.key != "" && later[e.key]
		later[e.key] = true
	}
}

// distinct counts the rows that the elements stand for, and marks those whose row is that of an
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

// bindConditions puts parentheses round the conditions that are given as text. GORM does so only
// where OR stands between two blanks; where it stands on a line of its own, say, the key binds the
// last part of the condition alone, and the statement changes rows of other keys.
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
		case clause.Expr: // the line ends, because the text may end in a comment
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

// partialKey reports whether a part of a composite key is zero: GORM leaves it out of an update's
// conditions.
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

// hasOr reports whether conditions are joined by OR at the top, where the key does not bind all of
// them.
func hasOr(stmt *gorm.Statement) bool {
	where, ok := stmt.Clauses["WHERE"].Expression.(clause.Where)
	return ok && slices.ContainsFunc(where.Exprs, func(e clause.Expression) bool {
		or, ok := e.(clause.OrConditions)
		return ok && len(or.Exprs) == 1
	})
}

// staleModels returns why On functions would see values that are not those in the table: the
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

// leavesOut reports whether an update may store less than its model shows: without fields that are
// zero, or that Select and Omit leave out.
func (s *statement) leavesOut() bool {
	stmt := s.db.Statement
	model, dest := reflect.ValueOf(stmt.Model), reflect.ValueOf(stmt.Dest)
	if model.Kind() != reflect.Pointer || dest.Kind() != reflect.Pointer || model.Pointer() != dest.Pointer() {
		return false // GORM puts what it stores into the model
	}
	return len(stmt.Omits) > 0 || !slices.Contains(stmt.Selects, "*")
}

// computed reports whether the database makes the value of v.
func computed(v any) bool {
	switch v.(type) {
	case clause.Expression, *gorm.DB:
		return true
	}
	return false
}
