package repository_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Receipts are written to their rows with as many statements as a mark without receipts takes.
// Publishing waits for the marks, and with one statement for each row the relay had a fifth of its
// speed.
func TestReceiptsCostNoStatements(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		var sent atomic.Int64
		db.Wrap = func(c driver.Connector) driver.Connector { return countedConnector{c, &sent} }
		p := fixture.NewProcess(t, db, core.Config{Wake: core.WakePolicy{Disable: true}}) // wake-ups send more
		// more than fit into one statement
		const n = 600
		// mark writes n rows and returns how many statements their mark took.
		mark := func(topic string, receipt func(i int) string) int64 {
			t.Helper()
			events, done := make([]core.Event, n), make([]core.Done, n)
			for i := range events {
				events[i] = core.Event{
					ID: core.NewEventID(), Type: "order.placed", Topic: topic,
					Payload: fmt.Append(nil, i),
				}
				id, err := core.NewRowID(events[i].ID, topic)
				fixture.NoError(t, err)
				done[i] = core.Done{ID: id, Receipt: receipt(i)}
			}
			fixture.NoError(t, p.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := p.Outbox.Publish(ctx, tx, events...)
				return err
			}))
			before := sent.Load()
			if changed, err := p.Repository.MarkDone(t.Context(), done, false); err != nil || changed != n {
				t.Fatalf("MarkDone changed %d rows, %v; want %d", changed, err, n)
			}
			return sent.Load() - before
		}
		plain := mark("plain", func(int) string { return "" })
		if all := mark("all", func(i int) string { return fmt.Sprintf("all/0@%d", i) }); all > plain {
			t.Errorf("%d statements with receipts, %d without", all, plain)
		}
		mark("some", func(i int) string {
			if i%3 == 0 {
				return ""
			}
			return fmt.Sprintf("some/0@%d", i)
		})
		type row struct{ topic, payload, receipt string }
		rows := fixture.Query(t, p.Pool, "SELECT topic, payload, COALESCE(receipt, '') FROM outbox_event",
			func(r *sql.Rows) (x row, err error) {
				var payload []byte
				err = r.Scan(&x.topic, &payload, &x.receipt)
				x.payload = string(payload)
				return x, err
			})
		for _, x := range rows {
			var i int
			_, _ = fmt.Sscan(x.payload, &i)
			want := fmt.Sprintf("%s/0@%d", x.topic, i)
			if x.topic == "plain" || x.topic == "some" && i%3 == 0 {
				want = ""
			}
			if x.receipt != want {
				t.Fatalf("event %s of topic %s has receipt %q, want %q", x.payload, x.topic, x.receipt, want)
			}
		}
		fixture.Check(t, len(rows) == 3*n, "%d rows, want %d", len(rows), 3*n)
	})
}

// countedConnector counts the statements that its connections execute.
type countedConnector struct {
	driver.Connector
	sent *atomic.Int64
}

func (c countedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, c.sent}, nil
}

type countedConn struct {
	driver.Conn
	sent *atomic.Int64
}

// count counts a statement, unless the driver wants to prepare it: then the prepared statement is
// counted.
func (c countedConn) count(err error) {
	if !errors.Is(err, driver.ErrSkip) {
		c.sent.Add(1)
	}
}

func (c countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	c.count(err)
	return rows, err
}

func (c countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	res, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	c.count(err)
	return res, err
}

func (c countedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	c.sent.Add(1)
	return c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c countedConn) CheckNamedValue(v *driver.NamedValue) error {
	if checker, ok := c.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}
