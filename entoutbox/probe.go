package entoutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Conn is a value of code generated with the feature sql/execquery that may be in a transaction:
// *ent.Tx, its Client(), every mutation, and their Debug versions.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Publish records events in the transaction of conn, in one statement where the database allows it.
// They are sent after the commit. A nil conn stands for ctx's transaction, from WithTx, from
// RunInTx of a Transactor, or from the mutation in an On function. For errors see
// core.Outbox.Publish and TxOf. Outside a transaction the error is core.ErrNoTransaction, and
// nothing was written. After an error roll the transaction back. To know the id of an event, set
// Event.ID to core.NewEventID().
func (o *Outbox) Publish(ctx context.Context, conn Conn, events ...core.Event) error {
	if err := o.ready(); err != nil {
		return err
	}
	var t core.Tx
	if conn != nil {
		var err error
		if t, err = TxOf(ctx, conn); err != nil {
			return err
		}
	} else if _, ok := core.TxFromContext(ctx); !ok {
		return errNil
	}
	return o.own.Publish(ctx, t, events...)
}

// errNil names the ways out, also of a resolver under entgql.Transactioner, whose context carries a
// transaction that only generated code can find.
var errNil = fmt.Errorf("%w: Publish was given nil, and the context has none of WithTx or entoutbox.Context: "+
	"give Publish the *ent.Tx, such as ent.TxFromContext(ctx) under entgql, or put it into the context with "+
	"entoutbox.Context(ctx, tx)", core.ErrNoTransaction)

// AfterCommit runs fn after the commit of conn's transaction. It never runs fn if the transaction,
// or the savepoint around this call, is rolled back, or if the outcome is unknown; see
// sqltx.AfterCommit for the limits of fn. Outside a transaction the error is core.ErrNoTransaction,
// and fn never runs.
func AfterCommit(ctx context.Context, conn Conn, fn func()) error {
	t, err := TxOf(ctx, conn)
	if err != nil {
		return err
	}
	return sqltx.AfterCommit(t, fn)
}

// TxOf returns the transaction of conn, for core.Outbox.Publish and other packages, without a round
// trip to the database. The error wraps core.ErrNoTransaction when conn is in none, and
// core.ErrNotInstalled when its client was not made with Driver.
//
// Clients generated without sql/execquery have no method ExecContext: use WithTx, and
// core.TxFromContext.
func TxOf(ctx context.Context, conn Conn) (core.Tx, error) {
	p, err := inTx(ctx, conn)
	if err != nil {
		return nil, err
	}
	return p.tx.core, nil
}

// inTx finds the transaction of conn. Without an error p.tx is not nil.
func inTx(ctx context.Context, conn Conn) (p probe, err error) {
	if r := reflect.ValueOf(conn); !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil() {
		return p, fmt.Errorf("%w: nil was given in place of one", core.ErrNoTransaction)
	}
	p, err = ask(ctx, func(ctx context.Context) error {
		_, err := conn.ExecContext(ctx, probeText)
		return err
	})
	switch {
	case err != nil:
		return p, err
	case p.tx == nil:
		return p, fmt.Errorf("%w: this %T is in none: begin one with client.Tx and use its client",
			core.ErrNoTransaction, conn)
	}
	return p, nil
}

// probe is in a context that generated code passes to the driver, for one purpose. The driver
// writes itself into the probe, and its transaction if there is one.
type probe struct {
	purpose purpose
	driver  *driver
	tx      *tx
}

type purpose int

const (
	asks   purpose = iota // a statement that is not to be executed
	names                 // a transaction that is not to be begun
	begins                // a transaction of WithTx
)

type probeKey struct{}

// probed returns the probe of a context, if it is for a purpose.
func (d *driver) probed(ctx context.Context, of purpose, t *tx) *probe {
	p, ok := ctx.Value(probeKey{}).(*probe)
	if !ok || p.purpose != of {
		return nil
	}
	p.driver, p.tx = d, t
	return p
}

// probeText is harmless, because other drivers execute it.
const probeText = "SELECT 1 /* outbox:in_transaction */"

// ask finds the driver and the transaction to which a function sends a statement.
func ask(ctx context.Context, send func(ctx context.Context) error) (probe, error) {
	var p probe
	err := send(context.WithValue(ctx, probeKey{}, &p))
	switch {
	case p.driver != nil:
		return p, nil
	case errors.Is(err, sql.ErrTxDone):
		return p, adapter.Errorf("%w: %w", core.ErrNoTransaction, err)
	case err != nil:
		return p, adapter.Errorf("%w: %w", errNotWrapped, err)
	}
	return p, errNotWrapped
}

// below finds the driver, and the transaction, on which generated code works: a mutation, or a Tx.
func below(ctx context.Context, code any) (probe, error) {
	drv, ok := driverOfCode(reflect.ValueOf(code))
	if !ok {
		return probe{}, errNotWrapped
	}
	return ask(ctx, func(ctx context.Context) error { return drv.Exec(ctx, probeText, []any{}, nil) })
}
