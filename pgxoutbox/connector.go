package pgxoutbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// Config configures Connector.
type Config struct {
	// Conn is the configuration of pgx, as pgx.ParseConfig returns it. Required.
	Conn pgx.ConnConfig
	// Options are options of stdlib.GetConnector: functions that are called before and after a
	// connection is made, and before it is used again. They must not keep the *pgx.Conn that they
	// get; use Conn instead.
	Options []stdlib.OptionOpenDB
	// Eager writes events in Publish, as every other connector does. By default events wait, and
	// are written together with COMMIT, or before the first statement that might notice that they
	// are not there yet. That saves a round trip, and the lock of a key is held only during the
	// commit. Errors of the events, such as core.ErrDuplicateEvent, then come from Commit, or from
	// the statement before which the events were written. Event.Eager chooses for one event.
	Eager bool
	// CancelGrace is how long Commit waits for the answer of the server when the context of the
	// transaction ends during the commit. The server is asked to cancel the commit. Without an
	// answer the connection is closed, and the outcome is unknown (core.ErrCommitUnknown). 0: 5 s.
	CancelGrace time.Duration
	// EagerBegin sends BEGIN when a transaction begins. By default BEGIN goes together with the
	// first statement of the transaction, which saves a round trip. That differs in three ways. The
	// clock of the transaction, now(), is read at its first statement. The first statement, and not
	// BeginTx, returns the error of a connection that has died or of a BEGIN that is refused. A
	// transaction without a statement does not reach the server.
	EagerBegin bool
}

// Connector returns a connector for sql.OpenDB. Every transaction of the pool is tracked, as with
// sqltx.Connector. Events wait for COMMIT, and BEGIN for the first statement; see Config.
//
// Commit returns an error wrapping core.ErrCommitUnknown if the connection was lost while the
// answer of the server was awaited. After any other error nothing is committed. Errors that come
// from the INSERT of the events name them and wrap the error of the server.
//
// If Config.Conn was not made by pgx.ParseConfig, connecting fails with an error. The result is
// safe for use by several goroutines.
func Connector(cfg Config) driver.Connector {
	if cfg.Conn.Host == "" { // pgx would panic
		return sqltx.Connector(unusable{}, core.Postgres)
	}
	if !cfg.EagerBegin {
		cfg.Conn = *cfg.Conn.Copy()
		install(&cfg.Conn)
	}
	return sqltx.Connector(&connector{cfg: cfg, inner: stdlib.GetConnector(cfg.Conn, cfg.Options...)}, core.Postgres)
}

// unusable is the connector of a Config that pgx cannot use.
type unusable struct{}

var errConfig = errors.New("pgxoutbox: Config.Conn is required: take it from pgx.ParseConfig")

func (unusable) Connect(context.Context) (driver.Conn, error) { return nil, errConfig }
func (unusable) Driver() driver.Driver                        { return stdlib.GetDefaultDriver() }

type connector struct {
	cfg   Config
	inner driver.Connector
}

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	dc, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	std, ok := dc.(*stdlib.Conn)
	if !ok {
		_ = dc.Close()
		return nil, fmt.Errorf("pgxoutbox: pgx made a connection of type %T", dc)
	}
	return &conn{std: std, session: newSession(std.Conn(), &c.cfg)}, nil
}

func (c *connector) Driver() driver.Driver { return c.inner.Driver() }

// Conn returns the connection of pgx behind a connection of a pool that was opened with Connector.
// Call it within sql.Conn.Raw, with what Raw gives, and use the result only there:
//
//	err := sqlConn.Raw(func(dc any) error {
//		conn, err := pgxoutbox.Conn(dc)
//		if err != nil {
//			return err
//		}
//		_, err = conn.CopyFrom(ctx, table, columns, rows)
//		return err
//	})
//
// If a transaction is open, the statements of the result are part of it. Do not end the transaction
// with them. Any other dc is an error.
func Conn(dc any) (*pgx.Conn, error) {
	for {
		switch c := dc.(type) {
		case *conn:
			return c.session.lend(context.Background())
		case interface{ Raw() driver.Conn }:
			dc = c.Raw()
		default:
			return nil, fmt.Errorf("pgxoutbox: Conn was given a %T, which is no connection of Connector", dc)
		}
	}
}
