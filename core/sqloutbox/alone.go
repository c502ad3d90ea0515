package sqloutbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// aloneConn is a connection of a driver of database/sql that sends a statement together with BEGIN,
// its settings and COMMIT. The connections of module pgxoutbox are such: a claim is one round trip
// on them. It is looked for behind a *sql.DB, also through wrappers that have the method Raw()
// driver.Conn.
type aloneConn interface {
	// With returns a Querier for use before the next call on the connection. Each of its statements
	// is a transaction of its own, with the isolation READ COMMITTED and with these settings, as
	// after SET LOCAL. Rows.Close returns the error of COMMIT. Query and Exec return
	// driver.ErrBadConn only if nothing was sent because the connection is dead. Another one then
	// repeats the statement.
	With(settings map[string]string) Querier
}

// alone runs statements on connections that are an aloneConn.
type alone struct {
	db     *sql.DB
	unable atomic.Bool // the connections of db are no aloneConn
}

// errUnable says that a connection is no aloneConn.
var errUnable = errors.New("sqloutbox: the connection has no method With")

// run runs one statement as a transaction of its own, and repeats it as sqlkit.Retry does. able
// says whether the connections of the pool can do that. If they cannot, nothing was done.
func (a *alone) run(ctx context.Context, settings map[string]string, fn func(q sqlkit.Querier) error,
) (able bool, err error) {
	if a.unable.Load() {
		return false, nil
	}
	err = sqlkit.Retry(ctx, func() error {
		return sqltx.RetryBegin(a.db, func() (bool, error) { return false, a.once(ctx, settings, fn) })
	})
	if errors.Is(err, errUnable) {
		a.unable.Store(true)
		return false, nil
	}
	return true, err
}

func (a *alone) once(ctx context.Context, settings map[string]string, fn func(q sqlkit.Querier) error) error {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(dc any) error {
		own := aloneConnOf(dc)
		if own == nil {
			return errUnable
		}
		return fn(own.With(settings))
	})
	_ = conn.Close() // gives it back, if Raw has not done that because of driver.ErrBadConn
	return err
}

// aloneConnOf returns the aloneConn behind the connection of a driver, or nil.
func aloneConnOf(dc any) aloneConn {
	for {
		switch c := dc.(type) {
		case aloneConn:
			return c
		case interface{ Raw() driver.Conn }: // wrappers of drivers have this method
			dc = c.Raw()
		default:
			return nil
		}
	}
}
