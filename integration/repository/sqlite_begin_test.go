package repository_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// cutBegin is a driver that runs BEGIN IMMEDIATE and then reports that its context has ended, as
// modernc.org/sqlite does for a context that ends meanwhile.
type cutBegin struct {
	driver.Connector
	mu  sync.Mutex
	cut func() // ends the context of the caller; nil: nothing is cut
}

func (c *cutBegin) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return cutConn{countedConn{conn, new(atomic.Int64)}, c}, nil
}

type cutConn struct {
	countedConn
	by *cutBegin
}

func (c cutConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if query != "BEGIN IMMEDIATE" {
		return c.countedConn.ExecContext(ctx, query, args)
	}
	res, err := c.countedConn.ExecContext(context.WithoutCancel(ctx), query, args)
	c.by.mu.Lock()
	cut := c.by.cut
	c.by.cut = nil
	c.by.mu.Unlock()
	if cut != nil {
		cut()
	}
	if err == nil {
		err = ctx.Err()
	}
	return res, err
}

// A call whose context ends while it begins leaves no transaction open on the program's pool: other
// processes can write, and what the program writes is there.
func TestSQLiteCallsThatAreCutWhileTheyBegin(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	cutter := &cutBegin{}
	db.Wrap = func(c driver.Connector) driver.Connector {
		cutter.Connector = c
		return cutter
	}
	p := fixture.NewProcess(t, db, core.Config{})
	keys, err := sqlonce.New(p.Pool, sqlonce.Config{Dialect: core.SQLite})
	fixture.NoError(t, err)
	fixture.NoError(t, keys.Migrate(t.Context()))
	request := func(owner string) once.Request {
		return once.Request{Key: once.Key{Scope: "s", ID: "k"}, Owner: owner, Lease: time.Millisecond, TTL: time.Hour}
	}
	_, err = keys.Acquire(t.Context(), request("first")) // a key whose lease is over is taken in a transaction
	fixture.NoError(t, err)
	fixture.Await(t, "the lease is over", func() bool {
		const now = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
		return fixture.Count(t, p.Pool, "SELECT COUNT(*) FROM idempotency_key WHERE lease_until < "+now) == 1
	})
	other, err := sql.Open("sqlite", strings.Replace(db.DSN, "busy_timeout(30000)", "busy_timeout(50)", 1))
	fixture.NoError(t, err)
	defer func() { _ = other.Close() }()
	fixture.MustExec(t, p.Pool, "CREATE TABLE note (n INTEGER)")

	notes := 0
	for name, call := range map[string]func(ctx context.Context) error{
		"pause": func(ctx context.Context) error {
			return p.Outbox.Pause(ctx, core.PauseRequest{Topic: "a", Actor: "ann", Reason: "a test"})
		},
		"redrive": func(ctx context.Context) error {
			_, err := p.Outbox.Redrive(ctx, core.AdminRequest{IDs: []core.RowID{{1}}, Actor: "ann", Reason: "a test"})
			return err
		},
		"migrate": p.Repository.Migrate,
		"key": func(ctx context.Context) error {
			_, err := keys.Acquire(ctx, request("second"))
			return err
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cutter.mu.Lock()
		cutter.cut = cancel
		cutter.mu.Unlock()
		err := call(ctx)
		cutter.mu.Lock()
		begun := cutter.cut == nil
		cutter.cut = nil
		cutter.mu.Unlock()
		cancel()
		fixture.Check(t, begun, "%s has not begun a transaction (%v)", name, err)
		fixture.Check(t, err != nil, "%s: the context ended, and it says nothing", name)
		_, err = p.Pool.ExecContext(t.Context(), "INSERT INTO note VALUES (1)")
		fixture.NoError(t, err)
		notes++
		var n int
		fixture.NoError(t, other.QueryRowContext(t.Context(), "SELECT count(*) FROM note").Scan(&n))
		fixture.Check(t, n == notes, "%s: another process sees %d of %d rows", name, n, notes)
		_, err = other.ExecContext(t.Context(), "INSERT INTO note VALUES (2)")
		fixture.Check(t, err == nil, "%s: another process cannot write: %v", name, err)
		notes++
	}
}
