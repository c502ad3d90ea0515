package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
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

// go-sql-driver/mysql waits for the answer of ROLLBACK for ever. The tracker does not.
func TestRollbackOfADatabaseThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newFake()
		db := d.open(t, sqltx.Connector(d, core.MySQL))
		for name, end := range map[string]func() error{
			"rollback": func() error {
				tx, err := db.BeginTx(t.Context(), nil)
				must(t, err)
				d.hangs = true
				return tx.Rollback()
			},
			"commit that is refused": func() error {
				tx, err := db.BeginTx(t.Context(), nil)
				must(t, err)
				refused := errors.New("refused")
				exec := func(ctx context.Context, query string) error {
					_, err := tx.ExecContext(ctx, query)
					return err
				}
				must(t, sqltx.Visit(t.Context(), exec, func(v *sqltx.VisitedTx) error {
					v.RefuseCommit(refused)
					return nil
				}))
				d.hangs = true
				if err = tx.Commit(); !errors.Is(err, refused) {
					t.Error(err)
				}
				return err
			},
		} {
			since := time.Now()
			wantErr(t, end(), context.DeadlineExceeded, "%s", name)
			if waited := time.Since(since); waited != 5*time.Second {
				t.Errorf("%s waited %s", name, waited)
			}
			if open := db.Stats().OpenConnections; open != 0 {
				t.Errorf("%s: the pool keeps the connection, whose next answer is that of ROLLBACK", name)
			}
			d.hangs = false
		}
	})
}

// A driver may leave statements without arguments to Prepare.
func TestRollbackOfADriverThatPrepares(t *testing.T) {
	d := newFake()
	d.skip = true
	db := d.open(t, sqltx.Connector(d, core.MySQL))
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	must(t, tx.Rollback())
	if got := d.statements(); !slices.Contains(got, "ROLLBACK") || db.Stats().OpenConnections != 1 {
		t.Errorf("sent %q, %d connections are open", got, db.Stats().OpenConnections)
	}
}
