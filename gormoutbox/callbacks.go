package gormoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// registerCallbacks adds the plugin's callbacks to the statements of db. It places them only beside
// callbacks that exist. GORM would move a callback before a missing one to the very end, and
// without default transactions two of its own are missing.
func (o *Outbox) registerCallbacks(db *gorm.DB) error {
	cb := db.Callback()
	name := func(what string) string { return o.Name() + ":" + what }
	const begin, commit = "gorm:begin_transaction", "gorm:commit_or_rollback_transaction"
	var errs []error
	add := func(err error) { errs = append(errs, err) }
	ops, verbs := []core.Op{core.OpCreate, core.OpUpdate, core.OpDelete}, []string{"create", "update", "delete"}
	for i, p := range list(cb.Create(), cb.Update(), cb.Delete()) {
		op, verb := ops[i], verbs[i]
		if p.Get(begin) != nil { // dbresolver may have just chosen the pool
			add(p.Before(begin).Register(name("pool"), o.wrapStatement))
		}
		add(p.Before("gorm:before_"+verb).Register(name("enter"), o.enter(op)))
		add(p.Replace("gorm:"+verb, o.through(op, p.Get("gorm:"+verb))))
		for _, hooks := range []string{"gorm:before_" + verb, "gorm:after_" + verb} {
			if fn := p.Get(hooks); fn != nil {
				add(p.Replace(hooks, guarded(fn)))
			}
		}
		after := p.After("gorm:after_" + verb)
		if p.Get(commit) != nil {
			after = after.Before(commit)
		}
		add(after.Register(name("recorded"), o.tellRecorded))
		add(p.After("*").Register(name("leave"), o.leave))
	}
	for _, p := range list(cb.Query(), cb.Row(), cb.Raw()) {
		add(p.After("*").Register(name("observe"), o.observe))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox: register callbacks: %w", err)
	}
	return nil
}

// list makes a slice of values whose type GORM does not export.
func list[T any](values ...T) []T { return values }

// wrapStatement makes the transaction tracked that GORM is about to begin for a statement.
func (o *Outbox) wrapStatement(db *gorm.DB) {
	if db.Error != nil || db.DryRun {
		return
	}
	if err := checkAround(db.Statement.ConnPool); err != nil {
		_ = db.AddError(err)
		return
	}
	db.Statement.ConnPool = o.wrap(db.Statement.ConnPool)
}

// observe shows the statement to its transaction if it ran as a prepared statement, because a
// prepared statement does not pass through txPool.
func (o *Outbox) observe(db *gorm.DB) {
	conn, prepared := unprepared(db.Statement.ConnPool)
	tx, ok := conn.(*txPool)
	if !ok || !prepared || tx.pool.ob != o || db.DryRun {
		return
	}
	query := db.Statement.SQL.String()
	if query == "" {
		return
	}
	err := db.Error
	if errors.Is(err, gorm.ErrRecordNotFound) || o.own.Dialect() != core.Postgres && translatedConstraint(err) {
		err = nil
	}
	switch dest := db.Statement.Dest.(type) {
	case *sql.Rows:
		tx.Observe(query, dest, err)
	case *sql.Row:
		tx.Observe("", nil, err)
		tx.ObserveRow(query, dest)
	default:
		tx.Observe(query, nil, err)
	}
	tx.seen()
}

// translatedConstraint recognises the errors that Config.TranslateError makes of a violated
// constraint. After such an error, transactions go on except on PostgreSQL.
func translatedConstraint(err error) bool {
	return errors.Is(err, gorm.ErrDuplicatedKey) || errors.Is(err, gorm.ErrForeignKeyViolated) ||
		errors.Is(err, gorm.ErrCheckConstraintViolated)
}

// unprepared returns the transaction behind the doors and the statement caches of GORM. One cache
// can be inside another.
func unprepared(conn gorm.ConnPool) (_ gorm.ConnPool, prepared bool) {
	for {
		switch c := conn.(type) {
		case *door:
			conn = c.Tx
			continue
		case *gorm.PreparedStmtTX:
			if c != nil {
				conn, prepared = c.Tx, true
				continue
			}
		}
		return conn, prepared
	}
}

// enter returns a callback that comes before the statement and its hooks. It begins a transaction
// if the statement may cause events and there is none. It refuses, before it is executed, a
// statement whose events could not be written.
func (o *Outbox) enter(op core.Op) func(db *gorm.DB) {
	return func(db *gorm.DB) {
		stmt := db.Statement
		if db.Error != nil || db.DryRun || stmt.Schema == nil {
			return
		}
		noteOwn(db)
		if o.begin(db); db.Error != nil {
			return
		}
		if err := o.checkTransaction(db, op); err != nil {
			_ = db.AddError(adapter.CausesEvents(op, stmt.Schema.Table, err))
		}
	}
}

type beganKey struct{ ob *Outbox }

// begin begins a transaction for a statement that may cause events and has none, as GORM would
// without SkipDefaultTransaction.
func (o *Outbox) begin(db *gorm.DB) {
	stmt := db.Statement
	has, err := o.hasRecorder(stmt.Schema)
	if err != nil || inTransaction(stmt.ConnPool) || ended(stmt) || !has && !o.maps(stmt) && !hooksMayRecord(stmt) {
		return
	}
	if o.wrapStatement(db); db.Error != nil {
		return
	}
	tx := db.Begin()
	if tx.Error != nil {
		_ = db.AddError(tx.Error)
		return
	}
	db.Statement.ConnPool = tx.Statement.ConnPool
	db.Statement.Settings.Store(beganKey{o}, db.Statement)
	if conn, ok := unwrapped(db).(*txPool); ok {
		conn.own = true
	}
}

// ended reports that the context of a statement has ended. Then nothing is sent, and the statement
// fails.
func ended(stmt *gorm.Statement) bool { return stmt.Context.Err() != nil }

// leave ends a transaction that begin has begun.
func (o *Outbox) leave(db *gorm.DB) {
	if of, ok := db.Statement.Settings.Load(beganKey{o}); !ok || of != db.Statement {
		return // an association has the settings of its parent
	}
	db.Statement.Settings.Delete(beganKey{o})
	if db.Error != nil {
		db.Rollback()
	} else {
		db.Commit()
	}
	db.Statement.ConnPool = db.ConnPool
}

func unwrapped(db *gorm.DB) gorm.ConnPool {
	conn, _ := unprepared(db.Statement.ConnPool)
	return conn
}

// noteOwn notes in a transaction that GORM has begun it for this statement.
func noteOwn(db *gorm.DB) {
	if _, ok := db.InstanceGet("gorm:started_transaction"); !ok {
		return
	}
	conn, _ := unprepared(db.Statement.ConnPool)
	if tx, ok := conn.(*txPool); ok {
		tx.own = true
	}
}

// guarded returns a callback that runs the hooks of models. If one panics, the callbacks that would end
// the statement's own transaction do not run.
func guarded(hooks func(*gorm.DB)) func(*gorm.DB) {
	return func(db *gorm.DB) {
		returned := false
		defer func() {
			if !returned {
				rollBackOwn(db)
			}
		}()
		hooks(db)
		returned = true
	}
}

// rollBackOwn rolls back a transaction that GORM has begun for a statement, or for the statement of
// which this one is an association. It is called when a callback of the plugin does not return, so
// that GORM's callbacks do not run. Otherwise the transaction would stay open, with its locks.
func rollBackOwn(db *gorm.DB) {
	conn, _ := unprepared(db.Statement.ConnPool)
	if tx, ok := conn.(*txPool); ok && tx.own {
		_ = tx.Rollback()
	}
}

func (o *Outbox) checkTransaction(db *gorm.DB, op core.Op) error {
	stmt := db.Statement
	has, err := o.hasRecorder(stmt.Schema)
	if err != nil {
		return err
	}
	maps, hooks := o.maps(stmt), hooksMayRecord(stmt)
	if !inTransaction(stmt.ConnPool) {
		return nil
	}
	if hooks { // hooks find the transaction in their context
		stmt.Context = Context(stmt.Context, db)
	}
	causes := maps || has && (hooks || anyRecorded(stmt))
	if causes {
		stmt.Settings.Store(awaitedKey{o, stmt}, op)
	}
	switch tx, ok := unwrapped(db).(*txPool); {
	case !ok && causes:
		var found core.Tx
		if found, err = trackedTx(stmt.Context, db); err == nil {
			err = o.own.Check(stmt.Context, found)
		}
	case !ok:
	case maps || has:
		err = o.own.Check(stmt.Context, tx)
	case hooks: // perhaps it is the transaction of a database without an outbox, which is no mistake
		err = tx.Err()
	}
	return err
}

// trackedTx returns the transaction in which a statement writes its events. It must be tracked:
// otherwise the row could commit without its events, and a Recorder would not get its events back
// after a rollback.
func trackedTx(ctx context.Context, db *gorm.DB) (core.Tx, error) {
	tx, err := TxOf(ctx, db)
	if err != nil {
		return nil, err
	}
	if !tx.Tracked() {
		return nil, fmt.Errorf("%w: begin it with Transaction or Begin of the *gorm.DB that has the plugin, or open "+
			"the pool with sqltx.Connector, or call Publish", core.ErrUntracked)
	}
	return tx, nil
}

// maps reports whether there are On functions for the model.
func (o *Outbox) maps(stmt *gorm.Statement) bool {
	fns, _ := o.own.Mappers.For(stmt.Schema.ModelType, stmt.Schema.Table)
	return fns != nil
}

func inTransaction(p gorm.ConnPool) bool {
	_, ok := p.(gorm.TxCommitter)
	return ok
}

// hooksMayRecord reports whether the model's own hooks run around the statement. They may record
// events that are not known yet.
func hooksMayRecord(stmt *gorm.Statement) bool {
	s := stmt.Schema
	return !stmt.SkipHooks && (s.BeforeSave || s.BeforeCreate || s.BeforeUpdate || s.BeforeDelete ||
		s.AfterSave || s.AfterCreate || s.AfterUpdate || s.AfterDelete)
}

func anyRecorded(stmt *gorm.Statement) bool {
	found := false
	eachElement(stmt.ReflectValue, func(model reflect.Value) {
		_, pending, _ := adapter.Pending(model)
		found = found || pending
	})
	_, pending := destModel(stmt)
	return found || pending
}

// eachElement calls fn with a pointer to each struct that a statement stores. v is a struct or a
// slice of them.
func eachElement(v reflect.Value, fn func(model reflect.Value)) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			eachElement(v.Index(i), fn)
		}
	case reflect.Struct:
		if v.CanAddr() {
			fn(v.Addr())
			return
		}
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		fn(p)
	default:
	}
}

// isSlice reports whether a statement stores several models.
func isSlice(v reflect.Value) bool {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	return v.Kind() == reflect.Slice || v.Kind() == reflect.Array
}

// hasRecorder reports whether models of schema s embed a Recorder. It returns an error if their
// Recorder is in a field where its events would be lost.
func (o *Outbox) hasRecorder(s *schema.Schema) (bool, error) {
	return o.own.HasRecorder(s.ModelType, func(f reflect.StructField) bool {
		if f.Anonymous {
			return false
		}
		_, relation := s.Relationships.Relations[f.Name]
		return relation ||
			f.Type.Kind() == reflect.Pointer && !strings.Contains(strings.ToLower(f.Tag.Get("gorm")), "embedded")
	})
}
