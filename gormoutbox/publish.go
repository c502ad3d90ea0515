package gormoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in the transaction of tx, in one statement where the database allows it.
// They are sent after the commit. A nil tx stands for ctx's transaction (see FromContext). tx must
// have exactly one plugin, under any name. With several plugins, call Publish of one of them. For
// errors see core.Outbox.Publish. Outside a transaction the error is core.ErrNoTransaction, and
// nothing was written. After an error roll the transaction back. In a dry run nothing is written,
// and the result is nil.
func Publish(ctx context.Context, tx *gorm.DB, events ...core.Event) error {
	if tx == nil {
		var err error
		if tx, err = FromContext(ctx); err != nil {
			return err
		}
	}
	ob, err := pluginOf(tx)
	if err != nil {
		return err
	}
	return ob.Publish(ctx, tx, events...)
}

// Publish is the function Publish, for this plugin.
func (o *Outbox) Publish(ctx context.Context, tx *gorm.DB, events ...core.Event) error {
	if o == nil || o.own == nil {
		return core.ErrNotInstalled
	}
	if _, err := o.own.Core(); err != nil {
		return err
	}
	if tx == nil {
		return o.own.Publish(ctx, nil, events...)
	}
	if tx.Error != nil {
		return tx.Error
	}
	if isDryRun(tx) { // a hook of the statement must not fail it
		return nil
	}
	own, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return o.own.Publish(ctx, own, events...)
}

// AfterCommit runs fn after the commit of tx. It never runs fn if the transaction, or the savepoint
// around this call, is rolled back, or if the outcome is unknown; see sqltx.AfterCommit for the
// limits of fn. tx may be the *gorm.DB of a model's own hook. Outside a transaction the error is
// core.ErrNoTransaction, and in an untracked one core.ErrUntracked; fn then never runs. AfterCommit
// works without the plugin too if the pool was opened with sqltx.Connector. In a dry run fn never
// runs, and the result is nil.
func AfterCommit(ctx context.Context, tx *gorm.DB, fn func()) error {
	if tx != nil && tx.Error != nil {
		return tx.Error
	}
	if isDryRun(tx) {
		return nil
	}
	t, err := TxOf(ctx, tx)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}

// isDryRun reports whether db only builds statements. It may have a live transaction all the same.
func isDryRun(db *gorm.DB) bool { return db != nil && db.Config != nil && db.DryRun }

func pluginOf(db *gorm.DB) (*Outbox, error) {
	if db == nil || db.Config == nil {
		return nil, fmt.Errorf("%w: the *gorm.DB is nil", core.ErrNotInstalled)
	}
	var found *Outbox
	for _, p := range db.Plugins {
		if ob, ok := p.(*Outbox); ok {
			if found != nil {
				return nil, errors.New("outbox: the *gorm.DB has several outboxes: call (*Outbox).Publish")
			}
			found = ob
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%w: this *gorm.DB does not have the plugin: call db.Use with it first",
			core.ErrNotInstalled)
	}
	return found, nil
}

var errDryRun = fmt.Errorf("%w: the *gorm.DB is a dry run, which writes nothing", core.ErrNoTransaction)

// TxOf returns the transaction of tx, for core.Outbox.Publish and other packages. Without a
// transaction it returns an error wrapping core.ErrNoTransaction. It works with and without the
// plugin. A transaction that neither the plugin nor sqltx.Connector has begun is not tracked; for
// its costs see sqltx.TxOf. A dry run counts as without a transaction.
func TxOf(ctx context.Context, tx *gorm.DB) (core.Tx, error) {
	if tx == nil || tx.Config == nil || tx.Statement == nil {
		return nil, fmt.Errorf("%w: the *gorm.DB is nil", core.ErrNoTransaction)
	}
	if isDryRun(tx) {
		return nil, errDryRun
	}
	conn, _ := unprepared(tx.Statement.ConnPool) // a statement cache would prepare the probe
	if t, ok := conn.(*txPool); ok && t != nil {
		return t, nil
	}
	if _, ok := conn.(gorm.TxCommitter); !ok || reflect.ValueOf(conn).IsZero() {
		return nil, fmt.Errorf("%w: use db.Transaction or db.Begin and pass its *gorm.DB", core.ErrNoTransaction)
	}
	return sqltx.TxOf(ctx, conn)
}

// SQLTx returns the *sql.Tx of tx, for libraries that want one. Without a transaction it returns an
// error wrapping core.ErrNoTransaction, and for a transaction outside database/sql an error
// wrapping core.ErrUntracked. End the transaction through GORM only. If the pool was not opened
// with sqltx.Connector, statements through the result are not observed: the database is asked
// before COMMIT whether it still has the transaction, and the poller publishes the events.
func SQLTx(tx *gorm.DB) (*sql.Tx, error) {
	ctx := context.Background()
	if tx != nil {
		ctx = contextOf(tx)
	}
	own, err := TxOf(ctx, tx)
	if err != nil {
		return nil, err
	}
	conn, _ := unprepared(tx.Statement.ConnPool)
	if t, ok := own.(*txPool); ok {
		t.Unseen()
		conn, _ = t.Conn().(gorm.ConnPool)
	}
	sqlTx, ok := conn.(*sql.Tx)
	if !ok {
		return nil, fmt.Errorf("%w: the transaction is a %T", core.ErrUntracked, conn)
	}
	return sqlTx, nil
}

// On registers fn, which derives events from a change of a model of type T. fn is called once for
// each row that a statement inserted, updated or deleted, with the row as the database stored it
// (deleted: as it was; softly deleted: as it is now). It is read into a new model, for which
// AfterFind does not run. fn runs within the transaction. All functions of one type are called, in
// the order of registration. On can be called at any time. db.Use reports mistakes (a nil argument,
// a T that is no struct). If On is called later, every Publish and Run report them. A panic of fn
// goes on to the program, and the transaction does not commit: RunInTx, db.Transaction and the
// plugin (for the transaction of a single statement) roll it back.
func On[T any](ob *Outbox, fn func(op core.Op, model *T) []core.Event) {
	adapter.On(ob.mappers(), fn)
}

// OnContext is On for functions that need the context of the statement or can return an error.
// Their error becomes the error of the statement. FromContext finds the transaction in ctx, for
// reading other data that the event needs.
func OnContext[T any](
	ob *Outbox, fn func(ctx context.Context, op core.Op, model *T) ([]core.Event, error),
) {
	adapter.OnContext(ob.mappers(), fn)
}

// OnAll is OnContext for every model whose statements GORM sends, including models first seen
// later. fn gets a pointer to the model's type. except names models that are passed over, such as
// &AuditLog{}. Tables of the outbox and the inbox are passed over too. If the database cannot name
// the rows of a type, because it has no primary key, the type is left out, and one warning is
// logged.
func OnAll(
	ob *Outbox, fn func(ctx context.Context, op core.Op, model any) ([]core.Event, error), except ...any,
) {
	adapter.OnAll(ob.mappers(), fn, except...)
}

func (o *Outbox) mappers() *adapter.Mappers {
	if o == nil || o.own == nil {
		return nil
	}
	return &o.own.Mappers
}
