package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func trackConn(t *testing.T, db *sql.DB, d core.Dialect) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	must(t, err)
	tracked, err := sqltx.TrackConn(t.Context(), conn, d)
	must(t, err)
	t.Cleanup(func() { _ = tracked.Close() })
	return tracked
}

func TestTrackConnFollowsTransactions(t *testing.T) {
	d := newFake()
	db := d.open(t, d)
	conn := trackConn(t, db, core.SQLite)
	tx, err := conn.BeginTx(t.Context(), nil)
	must(t, err)
	own, err := sqltx.TxOf(t.Context(), tx)
	must(t, err)
	if !own.Tracked() || own.Dialect() != core.SQLite {
		t.Fatalf("tracked %v, dialect %s", own.Tracked(), own.Dialect())
	}
	var before, inside heard
	before.on(own)
	_, err = tx.ExecContext(t.Context(), "SAVEPOINT a")
	must(t, err)
	inside.on(own)
	stmt, err := tx.PrepareContext(t.Context(), "ROLLBACK TO SAVEPOINT a") // unusual, but followed too
	must(t, err)
	defer stmt.Close()
	_, err = stmt.ExecContext(t.Context())
	must(t, err)
	inside.want(t, core.RolledBack)
	must(t, tx.Commit())
	before.want(t, core.Committed)
	must(t, conn.Close())
	if open := db.Stats().InUse; open != 0 {
		t.Fatalf("%d connections are still out", open)
	}
	if want := []string{
		"BEGIN", "SAVEPOINT a", "PREPARE ROLLBACK TO SAVEPOINT a", "ROLLBACK TO SAVEPOINT a",
		"COMMIT",
	}; !slices.Equal(d.statements(), want) {
		t.Fatalf("the driver was asked %q, want %q", d.statements(), want)
	}
	must(t, db.PingContext(t.Context())) // the pool has one connection, and has it again
}

func TestTrackConnOfConnectorIsTheSame(t *testing.T) {
	d := newFake()
	conn, err := trackedPool(t, d, core.Postgres).Conn(t.Context())
	must(t, err)
	again, err := sqltx.TrackConn(t.Context(), conn, "")
	must(t, err)
	if again != conn {
		t.Fatal("a connection that is tracked was wrapped again")
	}
	must(t, conn.Close())
}

func TestTrackConnOfTrackConnIsTheSame(t *testing.T) {
	d := newFake()
	conn := trackConn(t, d.open(t, d), core.MySQL)
	again, err := sqltx.TrackConn(t.Context(), conn, core.MySQL)
	must(t, err)
	if again != conn {
		t.Fatal("a connection that is tracked was wrapped again")
	}
}

func TestTrackConnRefuses(t *testing.T) {
	d := newFake()
	db := d.open(t, d)
	refused(t, errOf(sqltx.TrackConn(t.Context(), nil, core.SQLite)), "nil was accepted")
	conn, err := db.Conn(t.Context())
	must(t, err)
	refused(t, errOf(sqltx.TrackConn(t.Context(), conn, "")), "an unknown driver was accepted without a dialect")
	refused(t, errOf(sqltx.TrackConn(t.Context(), conn, "oracle")), "an unknown dialect was accepted")
	must(t, conn.PingContext(t.Context())) // it is as it was
	must(t, conn.Close())
	refused(t, errOf(sqltx.TrackConn(t.Context(), conn, core.SQLite)), "a closed connection was accepted")
}

// After the end of its context the caller gets an error, and the pool has its connection back.
func TestTrackConnAfterTheEndOfTheContext(t *testing.T) {
	d := newFake()
	db := d.open(t, d)
	conn, err := db.Conn(t.Context())
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := sqltx.TrackConn(ctx, conn, core.SQLite); err == nil {
		t.Fatal("tracked for a context that has ended")
	}
	//nolint:errorlint // database/sql does not wrap it
	if err := conn.Close(); err != nil && err != sql.ErrConnDone {
		t.Fatal(err)
	}
	must(t, db.PingContext(t.Context()))
}

// A driver that loses its connection costs the pool nothing but that connection.
func TestTrackConnOfALostConnection(t *testing.T) {
	d := newFake()
	d.fail["ROLLBACK"] = driver.ErrBadConn
	db := d.open(t, d)
	conn := trackConn(t, db, core.SQLite)
	tx, err := conn.BeginTx(t.Context(), nil)
	must(t, err)
	own, err := sqltx.TxOf(t.Context(), tx)
	must(t, err)
	var h heard
	h.on(own)
	_ = tx.Rollback()
	h.want(t, core.RolledBack)
	_ = conn.Close()
	if open := db.Stats().InUse; open != 0 {
		t.Fatalf("%d connections are still out", open)
	}
}
