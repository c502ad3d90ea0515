package gormoutbox

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Publish records events in the transaction of tx, in one statement where the database allows it.
// They leave after the commit. tx must have this plugin, and only one under any name; with several,
// call the method of the one you mean. Errors are those of core.Outbox.Publish; outside a
// transaction it is ErrNoTransaction and nothing was written. After an error roll the transaction
// back.
func Publish(tx *gorm.DB, events ...core.Event) error {
	ob, err := pluginOf(tx)
	if err != nil {
		return err
	}
	return ob.Publish(tx, events...)
}

// Publish does what the function Publish does, for this plugin.
func (o *Outbox) Publish(tx *gorm.DB, events ...core.Event) error {
	if _, err := o.installed(); err != nil {
		return err
	}
	if tx != nil && tx.Error != nil {
		return tx.Error
	}
	ctx, err := TxOf(tx)
	if err != nil {
		return err
	}
	return o.publish(contextOf(tx), ctx, events)
}

// AfterCommit runs fn after the commit of tx, and never when it, or the savepoint around this call,
// is rolled back or nobody knows; see sqltx.AfterCommit for what fn may do. tx may be that of a
// model's own hook. Outside a transaction the error is ErrNoTransaction, in one whose commit cannot
// be heard ErrUntracked; then fn never runs. It works without the plugin too where the pool was
// opened with sqltx.Connector.
func AfterCommit(tx *gorm.DB, fn func()) error {
	if tx != nil && tx.Error != nil {
		return tx.Error
	}
	t, err := TxOf(tx)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}

func (o *Outbox) publish(ctx context.Context, tx core.Tx, events []core.Event) error {
	ob, err := o.installed()
	if err != nil {
		return err
	}
	_, err = ob.Publish(ctx, tx, events...)
	return err
}

func pluginOf(db *gorm.DB) (*Outbox, error) {
	if db == nil || db.Config == nil {
		return nil, fmt.Errorf("%w: the *gorm.DB is nil", ErrNotInstalled)
	}
	var found *Outbox
	for _, p := range db.Plugins {
		if ob, ok := p.(*Outbox); ok {
			if found != nil {
				return nil, errors.New("outbox: the *gorm.DB has several outboxes: call Publish of the one you mean")
			}
			found = ob
		}
	}
	if found == nil {
		return nil, ErrNotInstalled
	}
	return found, nil
}

// TxOf returns the transaction that tx is in, for use with core.Outbox.Publish and other packages.
// Without one it returns an error wrapping ErrNoTransaction. It works with and without the plugin;
// a transaction that neither the plugin nor sqltx.Connector has begun is not tracked, and costs
// what sqltx.TxOf says.
func TxOf(tx *gorm.DB) (core.Tx, error) {
	if tx == nil || tx.Config == nil || tx.Statement == nil {
		return nil, fmt.Errorf("%w: the *gorm.DB is nil", ErrNoTransaction)
	}
	conn, _ := unprepared(tx.Statement.ConnPool) // which would prepare the probe
	if t, ok := conn.(*txPool); ok && t != nil {
		return t, nil
	}
	if _, ok := conn.(gorm.TxCommitter); !ok || reflect.ValueOf(conn).IsZero() {
		return nil, fmt.Errorf("%w: use db.Transaction or db.Begin and give what it gives you", ErrNoTransaction)
	}
	return sqltx.TxOf(contextOf(tx), conn)
}
