package ent_test

import (
	"context"
	"database/sql/driver"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const inSilence = "SELECT 'in silence'"

// A server may end a transaction and tell nobody: a Galera node does while it executes a prepared
// statement. The following statements commit one by one, and COMMIT succeeds. The driver knows, also
// behind wrappers.
func TestEntTransactionEndedInSilence(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		db = fixture.Rewrite(t, db, inSilence, "ROLLBACK")
		e := openEnt(t, db)
		db.Wrap = func(c driver.Connector) driver.Connector { return tracedConnector{c} }
		begins := map[string]func(ob *entoutbox.Outbox) error{
			"WithTx": func(ob *entoutbox.Outbox) error {
				client := entclient.NewClient(entclient.Driver(ob.Driver()))
				return entoutbox.WithTx(t.Context(), client.Tx, func(ctx context.Context, tx *entclient.Tx) error {
					fixture.NoError(t, ob.Publish(ctx, tx, fixture.Event("undone")))
					_, err := tx.ExecContext(ctx, inSilence)
					return err
				})
			},
			"a client without ExecContext": func(ob *entoutbox.Outbox) error {
				client := entplain.NewClient(entplain.Driver(ob.Driver()))
				return entoutbox.WithTx(t.Context(), client.Tx, func(ctx context.Context, _ *entplain.Tx) error {
					return ob.Publish(ctx, nil, fixture.Event("undone"))
				})
			},
		}
		for _, c := range []struct {
			begin string
			below dialect.Driver
		}{
			{"WithTx", e.drv},
			{"WithTx", dialect.Debug(e.drv, func(...any) {})},
			{"WithTx", entsql.OpenDB(dialect.MySQL, db.Open(t))},
			{"a client without ExecContext", silentDriver{e.drv}},
		} {
			ob, err := entoutbox.New(c.below, entoutbox.Config{Outbox: e.ob.Outbox()})
			fixture.NoError(t, err)
			if err := begins[c.begin](ob); err == nil {
				t.Errorf("%s, %T: it committed", c.begin, c.below)
			} else {
				fixture.WantError(t, err, core.ErrCommitUnknown)
			}
			e.wantRows(t)
		}
	})
}

// silentDriver is a driver of an application with transactions of a type of its own. The server
// ends them after the INSERT of an event.
type silentDriver struct{ dialect.Driver }

func (d silentDriver) Tx(ctx context.Context) (dialect.Tx, error) {
	tx, err := d.Driver.Tx(ctx)
	return &silentTx{tx}, err
}

type silentTx struct{ dialect.Tx }

func (t *silentTx) Exec(ctx context.Context, query string, args, v any) error {
	err := t.Tx.Exec(ctx, query, args, v)
	if err == nil && strings.Contains(query, "INSERT INTO `outbox_event`") {
		err = t.Tx.Exec(ctx, inSilence, []any{}, nil)
	}
	return err
}

// tracedConnector wraps connections as libraries for traces do.
type tracedConnector struct{ driver.Connector }

func (c tracedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	return tracedConn{conn, conn.(driver.ExecerContext)}, err
}

type tracedConn struct {
	driver.Conn
	driver.ExecerContext
}

func (c tracedConn) Raw() driver.Conn { return c.Conn }
