package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func trackedPool(t *testing.T, d *fakeDriver, dialect core.Dialect) *sql.DB {
	return d.open(t, sqltx.Connector(d, dialect))
}

func beginTracked(t *testing.T, db *sql.DB) (*sql.Tx, core.Tx) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	ob, err := sqltx.TxOf(t.Context(), tx)
	must(t, err)
	return tx, ob
}

func TestConnectorHearsTheOutcome(t *testing.T) {
	refused := errors.New("connection lost")
	for name, tc := range map[string]struct {
		do   func(t *testing.T, d *fakeDriver, tx *sql.Tx) error
		want core.Outcome
		err  error
	}{
		"commit": {func(_ *testing.T, _ *fakeDriver, tx *sql.Tx) error { return tx.Commit() }, core.Committed, nil},
		"rollback": {
			func(_ *testing.T, _ *fakeDriver, tx *sql.Tx) error { return tx.Rollback() }, core.RolledBack,
			nil,
		},
		"commit fails": {func(_ *testing.T, d *fakeDriver, tx *sql.Tx) error {
			d.fail["COMMIT"] = refused
			return tx.Commit()
		}, core.Unknown, core.ErrCommitUnknown},
		"connection is gone at commit": {func(_ *testing.T, d *fakeDriver, tx *sql.Tx) error {
			d.fail["COMMIT"] = driver.ErrBadConn
			return tx.Commit()
		}, core.Unknown, core.ErrCommitUnknown},
		// The connection asks PostgreSQL, which answers that the transaction is not aborted.
		"ignored error": {func(_ *testing.T, d *fakeDriver, tx *sql.Tx) error {
			d.fail["UPDATE t"] = refused
			_, _ = tx.Exec("UPDATE t")
			return tx.Commit()
		}, core.Committed, nil},
		"ignored error while reading rows": {func(t *testing.T, d *fakeDriver, tx *sql.Tx) error {
			d.rowsFail = refused
			wantIs(t, readAll(tx.Query("SELECT n FROM t FOR UPDATE")), refused)
			return tx.Commit()
		}, core.Committed, nil},
		"ignored error of a prepared statement": {func(t *testing.T, d *fakeDriver, tx *sql.Tx) error {
			d.fail["UPDATE t"] = refused
			stmt, err := tx.Prepare("UPDATE t")
			must(t, err)
			defer stmt.Close()
			_, _ = stmt.Exec()
			return tx.Commit()
		}, core.Committed, nil},
		"ignored error of Prepare": {func(t *testing.T, d *fakeDriver, tx *sql.Tx) error {
			d.fail["PREPARE UPDATE t"] = refused
			if _, err := tx.Prepare("UPDATE t"); err == nil { //nolint:sqlclosecheck // there is no statement
				t.Error("no error")
			}
			return tx.Commit()
		}, core.Committed, nil},
		"COMMIT as text": {func(t *testing.T, _ *fakeDriver, tx *sql.Tx) error {
			_, err := tx.Exec("COMMIT")
			must(t, err)
			return tx.Commit()
		}, core.Unknown, core.ErrCommitUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plain := range []bool{false, true} {
				d := newFake()
				d.plain = plain
				tx, ob := beginTracked(t, trackedPool(t, d, core.Postgres))
				if !ob.Tracked() {
					t.Fatal("not tracked")
				}
				var h heard
				h.on(ob)
				wantIs(t, tc.do(t, d, tx), tc.err)
				h.want(t, tc.want)
			}
		})
	}
}

func TestConnectorFollowsSavepoints(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		d := newFake()
		tx, ob := beginTracked(t, trackedPool(t, d, core.Postgres))
		run := func(query string) {
			t.Helper()
			if !prepared {
				_, err := tx.Exec(query)
				must(t, err)
				return
			}
			stmt, err := tx.Prepare(query)
			must(t, err)
			defer stmt.Close()
			_, err = stmt.Exec()
			must(t, err)
		}
		var kept, gone heard
		kept.on(ob)
		run("SAVEPOINT a")
		gone.on(ob)
		run("ROLLBACK TO SAVEPOINT a")
		gone.want(t, core.RolledBack)
		kept.want(t)
		must(t, tx.Commit())
		kept.want(t, core.Committed)
	}
}

func TestConnectorEndOfContextRollsBack(t *testing.T) {
	d := newFake()
	db := trackedPool(t, d, core.Postgres)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	must(t, err)
	ob, err := sqltx.TxOf(ctx, tx)
	must(t, err)
	ended := make(chan core.Outcome, 1)
	ob.OnOutcome(func(o core.Outcome) { ended <- o })
	cancel()
	if o := <-ended; o != core.RolledBack {
		t.Fatalf("heard %v", o)
	}
	if err := tx.Commit(); err == nil {
		t.Fatal("Commit after the end of the context returned nil")
	}
	if slices.Contains(d.statements(), "COMMIT") {
		t.Fatal("COMMIT was sent")
	}
}

func TestConnectorErrSkipIsNoError(t *testing.T) {
	d := newFake()
	d.skip = true
	tx, ob := beginTracked(t, trackedPool(t, d, core.MySQL))
	var h heard
	h.on(ob)
	_, err := tx.Exec("UPDATE t SET n = ?", 1)
	must(t, err)
	must(t, readAll(tx.Query("SELECT ?", 1)))
	must(t, tx.Commit())
	h.want(t, core.Committed)
	if !slices.Contains(d.statements(), "PREPARE UPDATE t SET n = ?") {
		t.Fatalf("the statement was not prepared after ErrSkip: %q", d.statements())
	}
}

func TestConnectorConnectionEndsWithOpenTransaction(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(driver.Conn)
		want core.Outcome
	}{
		"close": {func(c driver.Conn) { _ = c.Close() }, core.RolledBack},
		"reset session": {
			func(c driver.Conn) { _ = c.(driver.SessionResetter).ResetSession(t.Context()) },
			core.Unknown,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newFake()
			db := trackedPool(t, d, core.Postgres)
			conn, err := db.Conn(t.Context())
			must(t, err)
			var h heard
			must(t, conn.Raw(func(dc any) error { // a transaction that database/sql does not know of
				_, err := dc.(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{})
				return err
			}))
			ob, err := sqltx.TxOf(t.Context(), conn)
			must(t, err)
			h.on(ob)
			must(t, conn.Raw(func(dc any) error { tc.do(dc.(driver.Conn)); return nil }))
			h.want(t, tc.want)
			wantIs(t, ob.Err(), core.ErrNoTransaction)
		})
	}
}

func TestConnectorForwardsOptionalInterfaces(t *testing.T) {
	d := newFake()
	db := trackedPool(t, d, core.Postgres)
	must(t, db.PingContext(t.Context()))
	if !slices.Contains(d.statements(), "PING") {
		t.Error("Ping did not reach the driver")
	}
	_, err := db.Exec("UPDATE t SET s = ?", upper("x"))
	must(t, err)
	if d.checked == 0 {
		t.Error("the driver's CheckNamedValue was not asked")
	}
	stmt, err := db.Prepare("UPDATE t SET s = ?")
	must(t, err)
	defer stmt.Close()
	_, err = stmt.Exec(upper("x"))
	must(t, err)
	_, err = stmt.Exec(1)
	must(t, err)
	if d.converted == 0 {
		t.Error("the statement's ColumnConverter was not asked")
	}
	if d.reset == 0 {
		t.Error("ResetSession did not reach the driver")
	}
	conn, err := db.Conn(t.Context())
	must(t, err)
	must(t, conn.Raw(func(dc any) error {
		if _, ok := dc.(interface{ Raw() driver.Conn }).Raw().(*fakeFullConn); !ok {
			t.Error("Raw is not the driver's connection")
		}
		d.valid = false
		if dc.(driver.Validator).IsValid() {
			t.Error("IsValid was not asked")
		}
		return nil
	}))
	must(t, conn.Close())
	equal(t, db.Driver(), driver.Driver(d), "Driver is not the wrapped one")
	must(t, db.Close())
	if !d.closed {
		t.Error("the connector was not closed")
	}
}

func TestConnectorWorksWithMinimalDriver(t *testing.T) {
	d := newFake()
	d.plain = true
	db := trackedPool(t, d, core.SQLite)
	must(t, db.PingContext(t.Context()))
	rows, err := db.Query("SELECT n", int32(1))
	must(t, err)
	types, err := rows.ColumnTypes()
	must(t, err)
	if types[0].DatabaseTypeName() != "" || types[0].ScanType() == nil {
		t.Errorf("column type %q %v", types[0].DatabaseTypeName(), types[0].ScanType())
	}
	must(t, readAll(rows, nil))
	refused(t, errOf(db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})), "a read-only transaction was accepted")
	if _, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelSerializable}); err == nil {
		t.Error("an isolation level was accepted")
	}
	refused(t, errOf(db.Exec("UPDATE t SET n = @n", sql.Named("n", 1))), "a named parameter was accepted")
}

func TestConnectorRefusesWhatItCannotUse(t *testing.T) {
	for name, tc := range map[string]struct {
		c    driver.Connector
		d    core.Dialect
		want string
	}{
		"nil":             {nil, core.Postgres, "nil driver.Connector"},
		"unknown driver":  {newFake(), "", "name it"},
		"unknown dialect": {newFake(), "oracle", "oracle"},
	} {
		t.Run(name, func(t *testing.T) {
			db := sql.OpenDB(sqltx.Connector(tc.c, tc.d))
			defer db.Close()
			if err := db.PingContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	c := sqltx.Connector(newFake(), core.Postgres)
	if sqltx.Connector(c, "") != c || sqltx.Connector(c, core.Postgres) != c {
		t.Error("a Connector was wrapped twice")
	}
}

func TestTxOf(t *testing.T) {
	d := newFake()
	db := trackedPool(t, d, core.Postgres)
	tx, ob := beginTracked(t, db)
	again, err := sqltx.TxOf(t.Context(), embedded{tx})
	must(t, err)
	if !again.Tracked() || again.Dialect() != core.Postgres {
		t.Fatal("a *sql.Tx that is embedded in another type is not found")
	}
	if got := d.statements(); len(got) != 1 {
		t.Fatalf("the probe reached the database: %q", got)
	}
	if same, err := sqltx.TxOf(t.Context(), struct {
		sqltx.Conn
		core.Tx
	}{tx, ob}); err != nil || same == nil {
		t.Fatalf("a core.Tx is not taken as it is: %v", err)
	}
	must(t, tx.Rollback())

	_, err = sqltx.TxOf(t.Context(), tx)
	wantIs(t, err, core.ErrNoTransaction)
	wantIs(t, err, sql.ErrTxDone)
	for name, conn := range map[string]sqltx.Conn{
		"nil": nil, "nil tx": (*sql.Tx)(nil), "pool": db, "embedded pool": embeddedDB{db},
	} {
		wantErr(t, errOf(sqltx.TxOf(t.Context(), conn)), core.ErrNoTransaction, "%s", name)
	}
	conn, err := db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "BEGIN")
	must(t, err)
	_, err = sqltx.TxOf(t.Context(), conn)
	wantIs(t, err, core.ErrNoTransaction)
}

type (
	embedded   struct{ *sql.Tx }
	embeddedDB struct{ *sql.DB }
)

// SQLite leaves the transaction open when it refuses COMMIT, and not every driver ends it.
func TestConnectorEndsWhatSQLiteRefusedToCommit(t *testing.T) {
	const busy, foreignKey, ioError = sqliteError(5), sqliteError(787), sqliteError(10)
	for _, tc := range []struct {
		dialect core.Dialect
		err     error
		heard   core.Outcome
		want    []string
	}{
		{core.SQLite, busy, core.RolledBack, []string{"BEGIN", "COMMIT", "ROLLBACK"}},
		{core.SQLite, foreignKey, core.RolledBack, []string{"BEGIN", "COMMIT", "ROLLBACK"}},
		{core.SQLite, ioError, core.Unknown, []string{"BEGIN", "COMMIT", "ROLLBACK"}},
		{core.SQLite, nil, core.Committed, []string{"BEGIN", "COMMIT"}},
		{core.Postgres, pgError("23503"), core.RolledBack, []string{"BEGIN", "COMMIT"}},
	} {
		d := newFake()
		d.fail["COMMIT"] = tc.err
		tx, own := beginTracked(t, trackedPool(t, d, tc.dialect))
		var h heard
		h.on(own)
		wantErr(t, tx.Commit(), tc.err, "%v: Commit returns", tc.err)
		h.want(t, tc.heard)
		if got := d.statements(); !slices.Equal(got, tc.want) {
			t.Errorf("%v: the driver was asked %q, want %q", tc.err, got, tc.want)
		}
	}
}

// restarted is a database whose connections have died once it was restarted.
type restarted struct {
	*fakeDriver
	life int   // grows with each restart
	says error // error of BEGIN on a connection of an earlier life
}

func (r *restarted) Connect(context.Context) (driver.Conn, error) {
	return &mortalConn{fakeFullConn: &fakeFullConn{&fakeConn{r.fakeDriver}}, r: r, life: r.life}, nil
}

// mortalConn reports to its pool that it is dead only after a BEGIN has failed, as pgdriver does.
type mortalConn struct {
	*fakeFullConn
	r    *restarted
	life int
	dead bool
}

func (c *mortalConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.life != c.r.life {
		c.dead = true
		return nil, c.r.says
	}
	return c.fakeFullConn.BeginTx(ctx, opts)
}
func (c *mortalConn) IsValid() bool { return !c.dead }

// A pool full of connections that died while nobody used them costs no transaction, whatever the
// driver says of them.
func TestConnectionsThatDiedUnused(t *testing.T) {
	const size = 5
	admin := errors.New("FATAL: terminating connection due to administrator command")
	for what, says := range map[string]error{"ErrBadConn": driver.ErrBadConn, "an error of its own": admin} {
		for name, open := range map[string]func(*restarted) *sql.DB{
			"plain":     func(r *restarted) *sql.DB { return sql.OpenDB(r) },
			"connector": func(r *restarted) *sql.DB { return sql.OpenDB(sqltx.Connector(r, core.Postgres)) },
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				r := &restarted{fakeDriver: newFake(), says: says}
				db := open(r)
				defer db.Close()
				db.SetMaxIdleConns(size)
				begins := map[string]func() (interface{ Rollback() error }, error){
					"Begin": func() (interface{ Rollback() error }, error) {
						return sqltx.Begin(t.Context(), db, nil, core.Postgres)
					},
				}
				if name == "connector" {
					begins["BeginTx"] = func() (interface{ Rollback() error }, error) {
						return db.BeginTx(t.Context(), nil)
					}
				}
				for how, begin := range begins {
					var idle []*sql.Conn
					for range size {
						conn, err := db.Conn(t.Context())
						must(t, err)
						idle = append(idle, conn)
					}
					for _, conn := range idle {
						must(t, conn.Close())
					}
					r.life++
					for n := range 2 * size {
						tx, err := begin()
						if err != nil {
							t.Fatalf("%s, transaction %d after the restart: %v", how, n+1, err)
						}
						must(t, tx.Rollback())
					}
				}
			})
		}
	}
}

// A transaction that was not ended may be open: the next BEGIN on its connection would commit it on
// MySQL and MariaDB.
func TestConnectionWhoseTransactionDidNotEnd(t *testing.T) {
	notPrepared := &mysqlError{Number: 1047, Message: "WSREP has not yet prepared node for application use"}
	deadlock := &mysqlError{Number: 1213, Message: "Deadlock found when trying to get lock"}
	for name, c := range map[string]struct {
		statement string
		fails     error
		text      bool
		kept      bool
	}{
		"ROLLBACK":             {statement: "ROLLBACK", fails: notPrepared},
		"COMMIT":               {statement: "COMMIT", fails: notPrepared},
		"ROLLBACK as text":     {statement: "ROLLBACK", fails: notPrepared, text: true},
		"COMMIT as text":       {statement: "COMMIT", fails: notPrepared, text: true},
		"COMMIT of a deadlock": {statement: "COMMIT", fails: deadlock, kept: true},
		"ROLLBACK that works":  {statement: "ROLLBACK", kept: true},
	} {
		for _, pinned := range []bool{false, true} {
			d := newFake()
			db := d.open(t, sqltx.Connector(d, core.MySQL))
			conn, err := db.Conn(t.Context())
			must(t, err)
			end := func() error { _, err := conn.ExecContext(t.Context(), c.statement); return err }
			if c.text {
				_, err = conn.ExecContext(t.Context(), "BEGIN")
				must(t, err)
			} else {
				tx, err := conn.BeginTx(t.Context(), nil)
				must(t, err)
				if end = tx.Commit; c.statement == "ROLLBACK" {
					end = tx.Rollback
				}
			}
			d.fail[c.statement] = c.fails
			if err := end(); !errors.Is(err, c.fails) {
				t.Errorf("%s: %v, want the error of the server", name, err)
			}
			if pinned {
				next, err := conn.BeginTx(t.Context(), nil)
				if errors.Is(err, driver.ErrBadConn) == c.kept {
					t.Errorf("%s, the next BEGIN on the connection: %v", name, err)
				}
				if err == nil {
					must(t, next.Rollback())
				}
			}
			_ = conn.Close()
			if open := db.Stats().OpenConnections; open != 0 != c.kept {
				t.Errorf("%s (pinned: %t): the pool has %d connections", name, pinned, open)
			}
		}
	}
}

// After a failover the address of the database may lead to another server, and the old one takes
// only reads.
func TestConnectionToAServerThatBecameReadOnly(t *testing.T) {
	for _, c := range []struct {
		dialect  core.Dialect
		fails    error
		readOnly bool // the program wants it
		kept     bool
	}{
		{dialect: core.Postgres, fails: pgError("25006")},
		{dialect: core.Postgres, fails: pgError("25006"), readOnly: true, kept: true},
		{dialect: core.Postgres, fails: pgError("23505"), kept: true},
		{dialect: core.MySQL, fails: &mysqlError{Number: 1290, Message: "--read-only"}},
		{dialect: core.MySQL, fails: &mysqlError{Number: 1836, Message: "read-only mode"}},
	} {
		d := newFake()
		db := d.open(t, sqltx.Connector(d, c.dialect))
		d.fail["INSERT"] = c.fails
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: c.readOnly})
		must(t, err)
		if _, err = tx.ExecContext(t.Context(), "INSERT"); !errors.Is(err, c.fails) {
			t.Errorf("%v: %v", c.fails, err)
		}
		must(t, tx.Rollback())
		if open := db.Stats().OpenConnections; open != 0 != c.kept {
			t.Errorf("%v (read only: %t): the pool has %d connections", c.fails, c.readOnly, open)
		}
		if c.readOnly {
			continue
		}
		if _, err = db.ExecContext(t.Context(), "INSERT"); !errors.Is(err, c.fails) {
			t.Errorf("%v: %v", c.fails, err)
		}
		if open := db.Stats().OpenConnections; open != 0 != c.kept {
			t.Errorf("%v, without a transaction: the pool has %d connections", c.fails, open)
		}
	}
}

// A driver below may do something of its own at the end of a transaction: go-txdb rolls back to a
// savepoint, a tracing driver ends its span.
func TestRollbackIsHeardByTheDriverBelow(t *testing.T) {
	d := newFake()
	db := d.open(t, sqltx.Connector(d, core.MySQL))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, tx.Rollback())
	if d.rollbacks != 1 {
		t.Errorf("the driver heard of %d rollbacks; it was asked for %q", d.rollbacks, d.statements())
	}
}

// When the context of a transaction ends, database/sql rolls back on a goroutine of its own, and
// the caller may have begun the next try before ROLLBACK is answered. The next try finds the events
// that were recorded before the first one.
func TestRollbackIsKnownBeforeItsAnswer(t *testing.T) {
	d := newFake()
	d.silent = make(chan struct{})
	db := sql.OpenDB(sqltx.Connector(d, core.Postgres))
	var r core.Recorder
	r.Record(core.Event{Type: "order.placed"})
	try := func(ctx context.Context) (*sql.Tx, int) {
		tx, err := db.BeginTx(ctx, nil)
		must(t, err)
		otx, err := sqltx.TxOf(ctx, tx)
		must(t, err)
		events, ended, err := r.HandOver()
		must(t, err)
		otx.OnOutcome(ended)
		return tx, len(events)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, first := try(ctx)
	cancel()
	for !slices.Contains(d.statements(), "ROLLBACK") {
		time.Sleep(time.Millisecond)
	}
	second, again := try(t.Context())
	if first != 1 || again != 1 {
		t.Errorf("the first try had %d events, and the second %d", first, again)
	}
	close(d.silent)
	must(t, second.Commit())
	must(t, db.Close())
}
