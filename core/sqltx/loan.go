package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

// TrackConn returns a connection whose transactions are tracked, although its pool was opened
// without Connector. If the pool was opened with it, that is conn itself. It is for authors of
// adapters: transactions begun on the result are followed exactly, savepoints and prepared
// statements included.
//
// The result takes conn over. Closing it gives the connection back to its pool, and conn must not
// be used any more. If d is empty, it comes from the driver, as for Connector. After an error,
// close conn.
func TrackConn(ctx context.Context, conn *sql.Conn, d core.Dialect) (*sql.Conn, error) {
	if conn == nil {
		return nil, errors.New("sqltx: TrackConn was given a nil *sql.Conn")
	}
	tracked := false
	var err error
	if raw := conn.Raw(func(dc any) error {
		if _, tracked = dc.(interface{ tracking() *trackingConn }); tracked {
			return nil
		}
		d, err = dialectOfConn(dc, d)
		return nil
	}); raw != nil {
		return nil, raw
	}
	if tracked || err != nil {
		return conn, err
	}
	l := &loan{taken: make(chan lent, 1), done: make(chan error, 1), back: make(chan struct{})}
	go l.hold(conn)
	got := <-l.taken
	if got.err != nil {
		return nil, got.err
	}
	own := lentConn{
		trackingConn: &trackingConn{inner: got.conn, dialect: d, lender: poolOf(conn)},
		giveBack:     l.giveBack,
	}
	tracking, err := own.open(ctx)
	if err != nil {
		_ = own.Close()
		return nil, err
	}
	return tracking, nil
}

func dialectOfConn(dc any, d core.Dialect) (core.Dialect, error) {
	if d != "" {
		return d, checkDialect(d)
	}
	return dialectOf(dc)
}

// loan takes the driver's connection out of a *sql.Conn while a call of Raw holds it.
type loan struct {
	taken chan lent
	done  chan error // the result of Raw
	back  chan struct{}
}

type lent struct {
	conn driver.Conn
	err  error
}

func (l *loan) hold(conn *sql.Conn) {
	defer close(l.back)
	asked := false
	err := conn.Raw(func(dc any) error {
		asked = true
		own, ok := dc.(driver.Conn)
		if !ok {
			l.taken <- lent{err: errors.New("sqltx: the connection of the driver is none")}
			return nil
		}
		l.taken <- lent{conn: own}
		return <-l.done
	})
	if !asked {
		l.taken <- lent{err: err}
	}
	_ = conn.Close()
}

// giveBack ends the loan, and returns when the pool has its connection again. With
// driver.ErrBadConn the pool closes the connection.
func (l *loan) giveBack(err error) {
	l.done <- err
	<-l.back
}

// lentConn is a connection that its *sql.DB does not own.
type lentConn struct {
	*trackingConn
	giveBack func(error)
}

func (c *trackingConn) tracking() *trackingConn { return c }

// open returns the connection as a *sql.Conn.
func (c lentConn) open(ctx context.Context) (*sql.Conn, error) {
	pool := sql.OpenDB(lentConnector{c})
	pool.SetMaxIdleConns(-1) // so that closing the *sql.Conn closes the lentConn
	conn, err := pool.Conn(ctx)
	// Closing the pool ends its background work. The connection in use stays usable.
	return conn, errors.Join(err, pool.Close())
}

// ResetSession does nothing: the pool that owns the connection calls it on the connection itself.
func (c lentConn) ResetSession(context.Context) error { return nil }

// Close gives the connection back. A connection with an open transaction must not go back to the
// pool.
func (c lentConn) Close() error {
	if c.giveBack == nil {
		return nil
	}
	t := c.tracker
	if t == nil {
		var err error
		if c.dead || c.unended { // not every driver reports it to its pool
			err = driver.ErrBadConn
		}
		c.giveBack(err)
		return nil
	}
	c.tracker = nil
	c.giveBack(driver.ErrBadConn)
	t.RolledBack()
	return nil
}

type lentConnector struct{ conn lentConn }

func (c lentConnector) Connect(context.Context) (driver.Conn, error) { return c.conn, nil }

func (c lentConnector) Driver() driver.Driver {
	return unusableDriver{errors.New("sqltx: this pool has one connection, which is out")}
}
