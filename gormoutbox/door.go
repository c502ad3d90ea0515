package gormoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/adapter/capture"
)

// door is the transaction of a captured statement while GORM's own callback sends it. There the
// text has what every plugin added. The door captures that one text. Others, such as the query of a
// Valuer, pass unchanged.
type door struct {
	gorm.Tx
	s *statement
}

var _ capture.Session = (*door)(nil)

// statement is one statement on a model that causes events.
type statement struct {
	ob      *Outbox
	db      *gorm.DB
	op      core.Op
	mappers []adapter.Mapper
	named   bool // not only OnAll asks for the model
	models  []capture.Model
	tx      capture.Tx
	session *gorm.DB // a session in the transaction
	capture *capture.Capture
	replays []func() // end the replays of rows
	late    error    // why events could not be written; nothing is recorded yet
}

type statementKey struct {
	ob   *Outbox
	stmt *gorm.Statement
}

// awaitedKey keeps the operation of a statement that may cause events until through is called.
type awaitedKey statementKey

// refusePast refuses to commit rows that were changed without the door.
func (o *Outbox) refusePast(db *gorm.DB, op core.Op) {
	if db.Error != nil || db.RowsAffected <= 0 || !o.maps(db.Statement) && !anyRecorded(db.Statement) {
		return
	}
	err := adapter.CausesEvents(op, db.Statement.Schema.Table, errors.New("another plugin has replaced gorm:create, "+
		"gorm:update or gorm:delete and sends statements of its own: the rows that they changed are not known"))
	if tx, terr := trackedTx(db.Statement.Context, db); terr == nil {
		if tx, ok := tx.(capture.Tx); ok {
			tx.RefuseCommit(err)
		}
	}
	_ = db.AddError(err)
}

// through replaces the callback of GORM that sends a statement.
func (o *Outbox) through(op core.Op, send func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		db.Statement.Settings.Delete(awaitedKey{o, db.Statement})
		s, err := o.watch(db, op)
		switch {
		case err != nil:
			_ = db.AddError(err)
		case s == nil:
			send(db)
		case s.late != nil:
			send(db)
			db.Statement.Settings.Store(statementKey{o, db.Statement}, s)
		default:
			s.send(send)
		}
	}
}

// watch describes a statement for the capture, nil if it can cause no events.
func (o *Outbox) watch(db *gorm.DB, op core.Op) (*statement, error) {
	stmt := db.Statement
	if db.Error != nil || db.DryRun || stmt.Schema == nil || ended(stmt) && !inTransaction(stmt.ConnPool) {
		return nil, nil //nolint:nilerr // GORM keeps the error, and sends nothing
	}
	has, err := o.hasRecorder(stmt.Schema)
	if err != nil {
		return nil, err
	}
	s := &statement{ob: o, db: db, op: op}
	s.mappers, s.named = o.own.Mappers.For(stmt.Schema.ModelType, stmt.Schema.Table)
	if has {
		if err := s.collect(); err != nil {
			return nil, err
		}
	}
	if s.mappers == nil && len(s.models) == 0 {
		return nil, nil
	}
	tx, err := trackedTx(stmt.Context, db)
	if err != nil {
		err = adapter.CausesEvents(op, stmt.Schema.Table, err)
		if s.mappers == nil && !s.pending() {
			s.late = err // an association may record on the model later; most never do
			return s, nil
		}
		return nil, err
	}
	var ok bool
	if s.tx, ok = tx.(capture.Tx); !ok {
		return nil, adapter.CausesEvents(op, stmt.Schema.Table, fmt.Errorf("%w: %T", core.ErrUntracked, tx))
	}
	s.session = db.Session(&gorm.Session{NewDB: true, Context: stmt.Context})
	return s, nil
}

// pending reports whether a watched model has recorded events.
func (s *statement) pending() bool {
	return slices.ContainsFunc(s.models, func(m capture.Model) bool {
		return m.Recorder != nil && len(m.Recorder.Recorded()) > 0
	})
}

// collect finds the models whose recorded events may go out with the statement.
func (s *statement) collect() (err error) {
	stmt := s.db.Statement
	// Hooks and associations may record on the model after its row was stored.
	late := hooksMayRecord(stmt) || len(stmt.Schema.Relationships.Relations) > 0
	watched := false
	add := func(model reflect.Value, key []any, apart bool) {
		r, pending, cerr := adapter.Pending(model)
		if err == nil {
			err = cerr
		}
		m := capture.Model{Value: model, Apart: apart}
		if r != nil && (pending || late) {
			m.Recorder, watched = r, true
		}
		if key != nil {
			m.Keys = [][]any{key}
		}
		s.models = append(s.models, m)
	}
	eachElement(stmt.ReflectValue, func(model reflect.Value) { add(model, s.keyValues(model), false) })
	if d, ok := destModel(stmt); ok {
		var key []any
		if len(s.models) == 1 && !isSlice(stmt.ReflectValue) && len(s.models[0].Keys) > 0 {
			key = s.models[0].Keys[0]
		}
		add(d, key, true)
	}
	if !watched {
		s.models = nil
	}
	return err
}

// keyValues returns the values of the primary key of a model, nil if none of them is set.
func (s *statement) keyValues(model reflect.Value) []any {
	stmt := s.db.Statement
	if model.Type().Elem() != stmt.Schema.ModelType || len(stmt.Schema.PrimaryFields) == 0 {
		return nil
	}
	values, set := make([]any, len(stmt.Schema.PrimaryFields)), false
	for i, f := range keyFields(stmt.Schema) {
		v, zero := f.ValueOf(stmt.Context, model.Elem())
		values[i], set = v, set || !zero
	}
	if !set {
		return nil
	}
	return values
}

// send lets GORM send the statement through a door, and then reports what it changed.
func (s *statement) send(send func(*gorm.DB)) {
	stmt := s.db.Statement
	inner := stmt.ConnPool
	returned := false
	defer func() {
		stmt.ConnPool = inner
		for _, done := range s.replays {
			done()
		}
		if !returned { // a function of the program panicked
			rollBackOwn(s.db)
		}
	}()
	if tx, ok := inner.(gorm.Tx); ok {
		stmt.ConnPool = &door{Tx: tx, s: s}
		send(s.db)
		stmt.ConnPool = inner
	} else {
		_ = s.db.AddError(adapter.CausesEvents(s.op, stmt.Schema.Table, fmt.Errorf("%w: %T", core.ErrUntracked, inner)))
	}
	if s.capture != nil {
		stmt.Settings.Store(statementKey{s.ob, stmt}, s)
		if err := s.capture.Tell(contextWith(stmt.Context, s.session, s.tx), s.publish); err != nil {
			_ = s.db.AddError(err)
		}
	} else {
		s.ob.refusePast(s.db, s.op)
	}
	returned = true
}

func (s *statement) publish(events []core.Event) error {
	return s.ob.own.Publish(s.db.Statement.Context, s.tx, events...)
}

// tellRecorded publishes events that hooks and associations have recorded since the statement was
// sent.
func (o *Outbox) tellRecorded(db *gorm.DB) {
	if op, past := db.Statement.Settings.LoadAndDelete(awaitedKey{o, db.Statement}); past {
		o.refusePast(db, op.(core.Op))
	}
	v, ok := db.Statement.Settings.LoadAndDelete(statementKey{o, db.Statement})
	s, _ := v.(*statement)
	if !ok || s.late != nil {
		o.observe(db) // a captured statement was observed by its door
	}
	if !ok || db.Error != nil {
		return
	}
	if s.late != nil {
		if s.pending() {
			_ = db.AddError(s.late)
		}
		return
	}
	returned := false
	defer func() {
		if !returned {
			rollBackOwn(db)
		}
	}()
	if err := s.capture.TellRecorded(s.publish); err != nil {
		_ = db.AddError(err)
	}
	returned = true
}

// is reports whether query is the text of the statement. The door of another plugin may have added
// columns to its RETURNING.
func (d *door) is(query string) bool {
	if d.s.capture != nil {
		return false
	}
	rest, ok := strings.CutPrefix(query, d.s.db.Statement.SQL.String())
	return ok && (rest == "" || rest[0] == '\n')
}

// ExecContext captures the statement if it has no RETURNING.
func (d *door) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if !d.is(query) {
		return d.Tx.ExecContext(ctx, query, args...)
	}
	d.s.begin()
	return d.s.capture.Exec(ctx, d, query, args)
}

// QueryContext captures the statement if it has a RETURNING, and returns the rows that GORM asked
// for.
func (d *door) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if !d.is(query) {
		return d.Tx.QueryContext(ctx, query, args...)
	}
	d.s.begin()
	a, failed := d.s.capture.Query(ctx, d, query, args)
	if failed != nil && len(a.Rows) == 0 {
		return nil, failed
	}
	rows, done, err := a.Replay(failed)
	d.s.replays = append(d.s.replays, done)
	return rows, err
}

// Send implements capture.Session.
func (d *door) Send(ctx context.Context, text string, args []any) (sql.Result, error) {
	res, err := d.Tx.ExecContext(ctx, text, args...)
	d.observe(text, err)
	return res, err
}

// Ask implements capture.Session.
func (d *door) Ask(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	rows, err := d.Tx.QueryContext(ctx, text, args...) //nolint:rowserrcheck // ReadAll checks it
	var a *capture.Answer
	if err == nil {
		a, err = capture.ReadAll(rows)
	}
	d.observe(text, err)
	return a, err
}

// Read implements capture.Session.
func (d *door) Read(ctx context.Context, text string, args []any) (*capture.Answer, error) {
	conn, _ := unprepared(d.Tx)
	rows, err := conn.QueryContext(ctx, text, args...) //nolint:rowserrcheck // ReadAll checks it
	if err != nil {
		return nil, err
	}
	return capture.ReadAll(rows)
}

// observe shows the transaction a prepared statement, which does not pass through txPool.
func (d *door) observe(text string, err error) {
	if conn, prepared := unprepared(d.Tx); prepared {
		if tx, ok := conn.(*txPool); ok && tx.pool.ob == d.s.ob {
			tx.Observe(text, nil, err)
			tx.seen()
		}
	}
}

// begin begins the capture with the statement as GORM has built it.
func (s *statement) begin() {
	stmt := s.db.Statement
	for i := range s.models {
		m := &s.models[i]
		if m.Apart {
			continue
		}
		key := s.keyValues(m.Value)
		if key != nil && (len(m.Keys) == 0 || !slices.EqualFunc(key, m.Keys[0], reflectEqual)) {
			m.Keys = append(m.Keys, key)
		}
	}
	st := capture.Statement{
		Op: s.op, Of: stmt.Schema.Table, Models: s.models, On: s.mappers, Key: s.key,
	}
	if s.op == core.OpCreate {
		st.Op, st.DoNothing = insertOp(stmt)
	}
	var names []string
	st.Columns, names, st.Keys = s.columns()
	st.Scan = func(rows *capture.Answer) ([]reflect.Value, error) { return s.scan(rows, names) }
	if !s.named && len(s.models) == 0 {
		st.LeftOut = s.ob.own.LeftOut(stmt.Context, stmt.Schema.ModelType, stmt.Schema.Table)
	}
	if f := stmt.Schema.PrioritizedPrimaryField; f != nil {
		st.Counted = f.AutoIncrement
	}
	s.capture = capture.New(st, s.tx, &s.ob.server)
}

func reflectEqual(a, b any) bool { return reflect.DeepEqual(a, b) }

// insertOp returns OpUpsert for an insert that may update rows, and doNothing for one that passes
// over them.
func insertOp(stmt *gorm.Statement) (op core.Op, doNothing bool) {
	if c, ok := stmt.Clauses["ON CONFLICT"]; ok {
		conflict, known := c.Expression.(clause.OnConflict)
		// GORM's dialect of MySQL writes DO NOTHING as an update of a column to itself.
		if known && (conflict.DoNothing || stmt.Name() == "mysql" && toItself(conflict.DoUpdates)) {
			return core.OpCreate, true
		}
		return core.OpUpsert, false
	}
	if insert, ok := stmt.Clauses["INSERT"].Expression.(clause.Insert); ok && insert.Modifier != "" {
		switch modifier := strings.ToUpper(insert.Modifier); {
		case strings.Contains(modifier, "IGNORE"):
			return core.OpCreate, true
		case strings.Contains(modifier, "REPLACE"):
			return core.OpUpsert, false
		}
	}
	return core.OpCreate, false
}

func toItself(set clause.Set) bool {
	return len(set) == 1 && set[0].Value == any(set[0].Column)
}

// keyFields are the fields of the primary key. One that the database counts comes first.
func keyFields(s *schema.Schema) []*schema.Field {
	counted := s.PrioritizedPrimaryField
	if counted == nil || !counted.AutoIncrement || s.PrimaryFields[0] == counted {
		return s.PrimaryFields
	}
	fields := []*schema.Field{counted}
	for _, f := range s.PrimaryFields {
		if f != counted {
			fields = append(fields, f)
		}
	}
	return fields
}

// columns returns the columns to read, quoted, and their names. The key comes first. Only On
// functions need the others.
func (s *statement) columns() (quoted, names []string, keys int) {
	stmt := s.db.Statement
	add := func(f *schema.Field) {
		c := clause.Column{Name: f.DBName}
		if s.ob.own.Dialect() == core.Postgres { // UPDATE ... FROM may have the name twice
			c.Table = clause.CurrentTable
		}
		quoted, names = append(quoted, stmt.Quote(c)), append(names, f.DBName)
	}
	for _, f := range keyFields(stmt.Schema) {
		add(f)
	}
	keys = len(names)
	if s.mappers == nil && keys > 0 {
		return quoted, names, keys
	}
	for _, name := range stmt.Schema.DBNames {
		f := stmt.Schema.FieldsByDBName[name]
		// A field that is only read may come from a SELECT, without a column.
		if !f.PrimaryKey && f.Readable && (f.Creatable || f.Updatable || !f.IgnoreMigration) {
			add(f)
		}
	}
	return quoted, names, keys
}

// scan makes models of rows as GORM's Find does. AfterFind does not run.
func (s *statement) scan(rows *capture.Answer, names []string) ([]reflect.Value, error) {
	rows.Columns = names
	replay, done, err := rows.Replay(nil) //nolint:rowserrcheck // gorm.Scan checks it
	if err != nil {
		return nil, err
	}
	defer done()
	defer func() { _ = replay.Close() }()
	model := s.db.Statement.Schema.ModelType
	found := reflect.New(reflect.SliceOf(reflect.PointerTo(model)))
	db := s.session.Model(reflect.New(model).Interface())
	db.Statement.Schema = s.db.Statement.Schema
	db.Statement.Dest, db.Statement.ReflectValue = found.Interface(), found.Elem()
	if gorm.Scan(replay, db, 0); db.Error != nil {
		return nil, db.Error
	}
	models := make([]reflect.Value, found.Elem().Len())
	for i := range models {
		models[i] = found.Elem().Index(i)
	}
	return models, nil
}

// key returns the primary key of a model that was read, "" if the model has none.
func (s *statement) key(model reflect.Value) (string, error) {
	stmt := s.db.Statement
	var k adapter.Key
	for _, f := range stmt.Schema.PrimaryFields {
		v, zero := f.ValueOf(stmt.Context, model.Elem())
		if err := k.Add(v, zero); err != nil {
			return "", fmt.Errorf("outbox: primary key %s.%s: %w", stmt.Schema.Table, f.DBName, err)
		}
	}
	return k.Stored(), nil
}

// destModel returns the model whose values update another one: db.Model(&stored).Updates(&changed).
// If it is given by value, it is a copy.
func destModel(stmt *gorm.Statement) (reflect.Value, bool) {
	d := reflect.ValueOf(stmt.Dest)
	m := reflect.ValueOf(stmt.Model)
	switch {
	case d.Kind() == reflect.Pointer && !d.IsNil() && d.Elem().Kind() == reflect.Struct:
		if m.Kind() == reflect.Pointer && m.Pointer() == d.Pointer() {
			return reflect.Value{}, false
		}
	case d.Kind() == reflect.Struct:
		p := reflect.New(d.Type())
		p.Elem().Set(d)
		d = p
	default:
		return reflect.Value{}, false
	}
	_, pending, _ := adapter.Pending(d)
	return d, pending
}
