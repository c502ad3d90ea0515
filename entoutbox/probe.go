package entoutbox

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"entgo.io/ent/dialect"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// Conn is a value of code generated with the feature sql/execquery that may be in a transaction:
// *ent.Tx, its Client(), every mutation, and their Debug versions.
type Conn interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// TxOf returns the transaction of conn, for core.Outbox.Publish and other packages, without a round
// trip to the database. The error wraps core.ErrNoTransaction when conn is in none, and
// core.ErrNotInstalled when its client was not made with Driver.
//
// Clients generated without sql/execquery have no method ExecContext: use WithTx, and
// core.TxFromContext.
func TxOf(ctx context.Context, conn Conn) (core.Tx, error) {
	t, err := find(ctx, conn)
	if err != nil {
		return nil, err
	}
	return t.core, nil
}

// probe is in a context that the generated code passes to the driver. The driver writes its answer
// into the probe.
type probe struct {
	seen   bool
	driver *driver
	tx     *tx
}

type probeKey struct{}

const (
	probeMark = "outbox:in_transaction"
	// driver and tx answer the probe without executing it. Other drivers execute it, so it must be
	// harmless on every database.
	probeQuery = "SELECT 1 /* " + probeMark + " */"
)

func find(ctx context.Context, conn Conn) (*tx, error) {
	if isNil(conn) {
		return nil, fmt.Errorf("%w: nil was given in place of one", core.ErrNoTransaction)
	}
	var p probe
	_, err := conn.ExecContext(context.WithValue(ctx, probeKey{}, &p), probeQuery)
	switch {
	case p.tx != nil:
		return p.tx, nil
	case p.seen:
		return nil, fmt.Errorf("%w: this %T is in none: begin one with client.Tx and use what it gives you",
			core.ErrNoTransaction, conn)
	case errors.Is(err, sql.ErrTxDone):
		return nil, adapter.Errorf("%w: %w", core.ErrNoTransaction, err)
	case err != nil:
		return nil, adapter.Errorf("%w: %w", errNotWrapped, err)
	}
	return nil, errNotWrapped
}

// driverBelow returns the driver of this package on which a client works.
func driverBelow(ctx context.Context, drv dialect.Driver) (*driver, error) {
	var p probe
	err := drv.Exec(context.WithValue(ctx, probeKey{}, &p), probeQuery, []any{}, nil)
	switch {
	case p.driver != nil:
		return p.driver, nil
	case err != nil:
		return nil, adapter.Errorf("%w: %w", errNotWrapped, err)
	}
	return nil, errNotWrapped
}

// answer recognises a probe, even if drivers in between have added comments. It writes the driver
// and the transaction into the probe, nil for none.
func (d *driver) answer(ctx context.Context, query string, t *tx) bool {
	if !strings.Contains(query, probeMark) {
		return false
	}
	p, ok := ctx.Value(probeKey{}).(*probe)
	if !ok {
		return false
	}
	p.seen, p.driver, p.tx = true, d, t
	return true
}

// driverResult is the result of a probe.
type driverResult struct{}

var _ sqldriver.Result = driverResult{}

func (driverResult) LastInsertId() (int64, error) { return 0, nil }
func (driverResult) RowsAffected() (int64, error) { return 0, nil }

func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
