package sql_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// unprepared has the drivers of PostgreSQL that prepare no statement by themselves.
var unprepared = map[string]func(t *testing.T, dsn string) driver.Connector{
	"pgdriver": func(_ *testing.T, dsn string) driver.Connector {
		return pgdriver.NewConnector(pgdriver.WithDSN(dsn), pgdriver.WithInsecure(true))
	},
	"pgx, simple protocol": func(t *testing.T, dsn string) driver.Connector {
		return pgxIn(t, dsn, pgx.QueryExecModeSimpleProtocol)
	},
	"pgx, exec": func(t *testing.T, dsn string) driver.Connector { return pgxIn(t, dsn, pgx.QueryExecModeExec) },
}

func pgxIn(t *testing.T, dsn string, mode pgx.QueryExecMode) driver.Connector {
	t.Helper()
	cfg, err := pgx.ParseConfig(dsn)
	fixture.NoError(t, err)
	cfg.DefaultQueryExecMode = mode
	return stdlib.GetConnector(*cfg)
}

// oneConn is an outbox on a pool of one connection.
type oneConn struct {
	*testing.T
	pool      *sql.DB
	ob        *core.Outbox
	published *outboxtest.Publisher
}

func openOneConn(t *testing.T, c driver.Connector, cfg sqloutbox.OpenConfig) *oneConn {
	t.Helper()
	o := &oneConn{T: t, published: &outboxtest.Publisher{}}
	cfg.AutoCreate, cfg.Publisher = true, o.published
	var err error
	o.pool, o.ob, err = sqloutbox.OpenConnector(t.Context(), c, cfg)
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = o.pool.Close() })
	o.pool.SetMaxOpenConns(1)
	o.pool.SetMaxIdleConns(1)
	return o
}

// publish publishes events in a transaction each.
func (o *oneConn) publish(events ...core.Event) error {
	for _, e := range events {
		err := sqltx.NewTransactor(o.pool, "").RunInTx(o.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := o.ob.Publish(ctx, tx, e)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// often publishes events so often that their statements are prepared, and then executed three
// times.
func (o *oneConn) often(events ...core.Event) {
	o.Helper()
	for range 5 {
		fixture.NoError(o.T, o.publish(events...))
	}
}

var (
	unordered = core.Event{Type: "order.placed", Data: 1, Unordered: true}
	ordered   = core.Event{Type: "order.placed", Data: 1, Key: "order/7"}
)

// prepared returns how many INSERTs PostgreSQL has prepared on the connection, and how often they
// were executed at least.
func (o *oneConn) prepared() (statements, executions int) {
	o.Helper()
	fixture.NoError(o.T, o.pool.QueryRowContext(o.Context(), "SELECT count(*), COALESCE(min(generic_plans + "+
		"custom_plans), 0) FROM pg_prepared_statements WHERE statement LIKE '%INSERT' || ' INTO%outbox_event%'").
		Scan(&statements, &executions))
	return statements, executions
}

func (o *oneConn) wantPrepared(statements int) {
	o.Helper()
	if n, _ := o.prepared(); n != statements {
		o.Errorf("%d INSERTs are prepared, want %d", n, statements)
	}
}

// The INSERT of Publish is prepared once for each connection of a driver that does not prepare.
func TestPublishIsPrepared(t *testing.T) {
	t.Parallel()
	for name, connector := range unprepared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOneConn(t, connector(t, testdb.Postgres(t).DSN), sqloutbox.OpenConfig{})
			o.often(unordered, ordered)
			if statements, executions := o.prepared(); statements != 2 || executions != 3 {
				t.Errorf("%d INSERTs are prepared and were executed %d times, want 2 and 3", statements, executions)
			}
			// A number of events that is rare is not prepared.
			fixture.NoError(t, sqltx.NewTransactor(o.pool, "").RunInTx(t.Context(),
				func(ctx context.Context, tx core.Tx) error {
					_, err := o.ob.Publish(ctx, tx, unordered, unordered, unordered)
					return err
				}))
			fixture.NoError(t, o.publish(unordered))
			o.wantPrepared(2)
			o.pool.SetMaxOpenConns(4)
			fixture.NoError(t, o.ob.Drain(t.Context()))
			if got := len(o.published.Accepted()); got != 14 {
				t.Errorf("%d events arrived, want 14", got)
			}
		})
	}
}

// MariaDB and MySQL are not asked to prepare for each execution.
func TestPublishIsPreparedOnMySQL(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		for _, disabled := range []bool{false, true} {
			o := openOneConn(t, db.Connector(t), sqloutbox.OpenConfig{
				DisablePrepare: disabled, Prefix: fmt.Sprintf("d%t_", disabled),
			})
			asked := func() (n int) {
				t.Helper()
				var name string
				fixture.NoError(t, o.pool.QueryRowContext(t.Context(),
					"SHOW SESSION STATUS LIKE 'Com_stmt_prepare'").Scan(&name, &n))
				return n
			}
			o.often(unordered, ordered)
			before := asked()
			o.often(unordered, ordered)
			if grown := asked() - before; disabled == (grown == 0) {
				t.Errorf("disabled: %t: %d statements were prepared for 10 events", disabled, grown)
			}
		}
	})
}

// A prepared INSERT stores what an INSERT stores that is not prepared.
func TestPreparedPublishStoresTheSame(t *testing.T) {
	t.Parallel()
	compare := func(t *testing.T, c driver.Connector) {
		t.Helper()
		o := openOneConn(t, c, sqloutbox.OpenConfig{})
		events := []core.Event{
			{Type: "empty", Payload: []byte{}, Unordered: true},
			{Type: "bytes", Payload: []byte{0, 1, 0xff, '\'', '\\', '$', '1'}, ContentType: "image/png"},
			{
				Type: "all", SchemaVersion: 3, Topic: "t", AggregateType: "a", AggregateID: `7'"\$1`,
				AggregateVersion: 9,
				TenantID:         "acme", Key: "k", Data: map[string]any{"é": "ü\u2028"},
				Headers:    map[string]string{"h": `"'\`},
				OccurredAt: time.Date(1999, 12, 31, 23, 59, 59, 123456000, time.UTC),
			},
			{Type: "large", Payload: bytes.Repeat([]byte("x"), 70_000), Unordered: true},
		}
		o.often(events...)
		o.pool.SetMaxOpenConns(4)
		fixture.NoError(t, o.ob.Drain(t.Context()))
		first := map[string]core.Delivery{}
		got := o.published.Accepted()
		fixture.Must(t, len(got) == 5*len(events), "%d events arrived, want %d", len(got), 5*len(events))
		for _, d := range got {
			if !first[d.Type].OccurredAt.IsZero() {
				d.ID, d.RowID, d.KeySeq = first[d.Type].ID, first[d.Type].RowID, first[d.Type].KeySeq
				if d.Type != "all" {
					d.OccurredAt = first[d.Type].OccurredAt
				}
			} else {
				first[d.Type] = d
			}
			if !reflect.DeepEqual(d, first[d.Type]) {
				t.Errorf("%+v, want %+v", d, first[d.Type])
			}
		}
	}
	for name, connector := range unprepared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			compare(t, connector(t, testdb.Postgres(t).DSN))
		})
	}
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		compare(t, testdb.MariaDB(t).Connector(t))
	})
}

// Nothing is prepared if that is turned off, or behind a pooler. A pooler is recognised by the
// process id that it tells the driver, which is not the server's.
func TestPublishIsNotPrepared(t *testing.T) {
	t.Parallel()
	for name, connector := range unprepared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			for what, o := range map[string]*oneConn{
				"disabled": openOneConn(t, connector(t, db.DSN), sqloutbox.OpenConfig{DisablePrepare: true}),
				"pooler":   openOneConn(t, connector(t, pooler(t, db.DSN)), sqloutbox.OpenConfig{}),
			} {
				if o.often(unordered, ordered); t.Failed() {
					t.Fatal(what)
				}
				o.wantPrepared(0)
			}
		})
	}
}

// Deallocated statements are prepared again if the connection has seen the deallocation. If it has
// not, one Publish fails, and then nothing is prepared.
func TestPreparedPublishIsDeallocated(t *testing.T) {
	t.Parallel()
	for name, connector := range unprepared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOneConn(t, connector(t, testdb.Postgres(t).DSN), sqloutbox.OpenConfig{})
			o.often(unordered, ordered)
			for _, text := range []string{"DISCARD ALL", " deallocate all"} {
				fixture.MustExec(t, o.pool, text)
				o.wantPrepared(0)
				o.often(unordered, ordered)
				o.wantPrepared(2)
			}
			conn, err := o.pool.Conn(t.Context())
			fixture.NoError(t, err)
			fixture.NoError(t, conn.Raw(func(dc any) error {
				own := dc.(interface{ Raw() driver.Conn }).Raw().(driver.ExecerContext)
				_, err := own.ExecContext(t.Context(), "DEALLOCATE ALL", nil)
				return err
			}))
			fixture.NoError(t, conn.Close())
			if err := o.publish(unordered); err == nil {
				t.Error("a statement that the server does not know was executed")
			}
			o.often(unordered, ordered)
			o.wantPrepared(0)
		})
	}
}

// If an INSERT cannot be prepared at the begin of a transaction, that transaction is not aborted.
func TestPreparingAbortsNoTransaction(t *testing.T) {
	t.Parallel()
	for name, connector := range unprepared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := openOneConn(t, connector(t, testdb.Postgres(t).DSN), sqloutbox.OpenConfig{})
			fixture.NoError(t, o.publish(unordered, unordered)) // the next transaction prepares
			fixture.MustExec(t, o.pool, "CREATE TABLE business (n integer)")
			fixture.MustExec(t, o.pool, "ALTER TABLE outbox_event RENAME TO elsewhere")
			err := sqltx.NewTransactor(o.pool, "").RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				_, err := tx.Exec(ctx, "INSERT INTO business VALUES ($1)", 1)
				return err
			})
			fixture.NoError(t, err)
			if n := fixture.Count(t, o.pool, "SELECT count(*) FROM business"); n != 1 {
				t.Errorf("%d rows were written, want 1", n)
			}
			fixture.MustExec(t, o.pool, "ALTER TABLE elsewhere RENAME TO outbox_event")
			fixture.NoError(t, o.publish(unordered))
		})
	}
}

// If a prepared INSERT, or its preparation, does not end in time, its connection is not used again.
// So no statement reads the answer of another one.
func TestPreparedPublishIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, connector := range unprepared {
		for what, before := range map[string]int{"executed": 3, "prepared": 2} {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				db := testdb.Postgres(t)
				o := openOneConn(t, connector(t, db.DSN), sqloutbox.OpenConfig{})
				for range before {
					fixture.NoError(t, o.publish(unordered))
				}
				lock, err := db.Open(t).BeginTx(t.Context(), nil)
				fixture.NoError(t, err)
				_, err = lock.ExecContext(t.Context(), "LOCK TABLE outbox_event") // the INSERT waits for this lock
				fixture.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				err = sqltx.NewTransactor(o.pool, "").RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
					_, err := o.ob.Publish(ctx, tx, unordered)
					return err
				})
				fixture.Check(t, err != nil, "the INSERT did not wait")
				fixture.NoError(t, lock.Rollback())
				for n := range 5 {
					var got int
					fixture.NoError(t, o.pool.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d", n)).Scan(&got))
					fixture.Check(t, got == n, "SELECT %d returned %d", n, got)
				}
				fixture.NoError(t, o.publish(unordered))
			})
		}
	}
}

// pooler returns the DSN of a proxy before a PostgreSQL server. As a pooler of connections does, it
// tells its clients a process id of its own.
func pooler(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	fixture.NoError(t, err)
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go poolerLink(client, server)
		}
	}()
	u.Host = listener.Addr().String()
	q := u.Query()
	q.Set("sslmode", "disable")
	u.RawQuery = q.Encode()
	return u.String()
}

func poolerLink(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	for ready := false; !ready; { // the messages of the server until it is ready
		head := make([]byte, 5)
		if _, err := io.ReadFull(server, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(server, body); err != nil {
			return
		}
		if head[0] == 'K' {
			binary.BigEndian.PutUint32(body, binary.BigEndian.Uint32(body)+100_000)
		}
		ready = head[0] == 'Z'
		if _, err := client.Write(slices.Concat(head, body)); err != nil {
			return
		}
	}
	_, _ = io.Copy(client, server)
}
