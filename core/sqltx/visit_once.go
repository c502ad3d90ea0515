package sqltx

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
)

// QueryOnce is QueryContext for a text with values in it, which hardly comes again. pgx does not
// prepare it: that would be another round trip.
func (t *VisitedTx) QueryOnce(ctx context.Context, query string) (*sql.Rows, error) {
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	if mode := t.visited.execMode(); mode != nil {
		return conn.QueryContext(ctx, query, mode)
	}
	return conn.QueryContext(ctx, query)
}

// execMode returns pgx.QueryExecModeExec if the driver is pgx, and prepares statements unless it
// gets this argument. A wrapper of pgx might not know the argument.
func (c *trackingConn) execMode() any {
	if c.modeAsked {
		return c.mode
	}
	c.modeAsked = true
	const exec = 4
	if mode := pgxModeOf(pgxConn(c.inner)); mode.IsValid() && mode.Int() < exec {
		once := reflect.New(mode.Type()).Elem()
		once.SetInt(exec)
		if fmt.Sprint(once.Interface()) == "exec" {
			c.mode = once.Interface()
		}
	}
	return c.mode
}
