package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// keeper is a driver whose connections keep inserts, as those of module pgxoutbox do.
type keeper struct {
	*fakeDriver
	kept    []*sqltx.DeferredInsert
	flushed error
	status  byte
	outcome core.Outcome
	commit  error
}

func (k *keeper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := k.fakeDriver.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &keeperConn{c.(*fakeFullConn), k}, nil
}

type keeperConn struct {
	*fakeFullConn
	k *keeper
}

func (c *keeperConn) TxStatus() byte { return c.k.status }

func (c *keeperConn) Flush(context.Context) error {
	for _, d := range c.k.kept {
		query, args := d.Statement()
		c.k.log = append(c.k.log, fmt.Sprint("flush: ", query, args))
	}
	c.k.kept = nil
	return c.k.flushed
}

func (c *keeperConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if d := sqltx.OfferedInsert(ctx); d != nil {
		values := []any{}
		for _, a := range args {
			values = append(values, a.Value)
		}
		d.Take(query, values)
		c.k.kept = append(c.k.kept, d)
		return driver.RowsAffected(0), nil
	}
	return c.fakeFullConn.ExecContext(ctx, query, args)
}

func (c *keeperConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fakeFullConn.BeginTx(ctx, opts)
	return keeperTx{tx, c.k}, err
}

type keeperTx struct {
	driver.Tx
	k *keeper
}

func (t keeperTx) CommitOutcome() (core.Outcome, error) { return t.k.outcome, t.k.commit }

// A connection may keep an insert, and Flush makes it send the insert. Other connections execute
// it.
func TestFlushSendsKeptInserts(t *testing.T) {
	t.Parallel()
	k := &keeper{fakeDriver: newFake(), status: 'T'}
	for name, keeps := range map[string]bool{"keeper": true, "another": false} {
		var pool *sql.DB
		log := k.fakeDriver
		if keeps {
			pool = k.open(t, sqltx.Connector(k, core.Postgres))
		} else {
			log = newFake()
			pool = log.open(t, sqltx.Connector(log, core.Postgres))
		}
		tx, err := pool.BeginTx(t.Context(), nil)
		must(t, err)
		d := &sqltx.DeferredInsert{}
		must(t, errOf(tx.ExecContext(d.Offer(t.Context()), "INSERT", 7)))
		equal(t, d.Taken(), keeps, "%s: taken", name)
		own, err := sqltx.TxOf(t.Context(), tx)
		must(t, err)
		if err := sqltx.Flush(t.Context(), own); err != nil {
			t.Errorf("%s: Flush: %v", name, err)
		}
		want := "INSERT"
		if keeps {
			want = "flush: INSERT[7]"
		}
		if !slices.Contains(log.statements(), want) || slices.Contains(log.statements(), "SELECT 1") {
			t.Errorf("%s: sent %q, want %q", name, log.statements(), want)
		}
		noError(t, tx.Rollback())
	}
	k.flushed = io.ErrUnexpectedEOF
	_, own := beginTracked(t, k.open(t, sqltx.Connector(k, core.Postgres)))
	wantErr(t, sqltx.Flush(t.Context(), own), io.ErrUnexpectedEOF, "Flush")
	wantErr(t, sqltx.Flush(t.Context(), nil), core.ErrNoTransaction, "Flush without a transaction")
}

// ownKeeper is a transaction that keeps inserts without a connection of Connector.
type ownKeeper struct {
	core.Tx
	flushed int
}

func (*ownKeeper) Tracked() bool         { return true }
func (*ownKeeper) Dialect() core.Dialect { return core.Postgres }

func (k *ownKeeper) Exec(ctx context.Context, _ string, _ ...any) (int64, error) {
	if sqltx.FlushAsked(ctx) {
		k.flushed++
	}
	return 0, io.EOF
}

// Such a transaction learns from the context that it is asked to send them.
func TestFlushAsksOtherKeepers(t *testing.T) {
	t.Parallel()
	k := &ownKeeper{}
	_, _ = k.Exec(t.Context(), "SELECT 1")
	wantErr(t, sqltx.Flush(t.Context(), k), io.EOF, "Flush")
	equal(t, k.flushed, 1, "asked")
}

// The outcome that a driver knows is the one that is reported.
func TestConnectorTakesTheOutcomeOfTheDriver(t *testing.T) {
	t.Parallel()
	deadline := context.DeadlineExceeded // as an error of a commit it proves nothing
	for _, tc := range []struct {
		outcome, want core.Outcome
		err           error
		unknown       bool
	}{
		{core.Committed, core.Committed, nil, false},
		{core.RolledBack, core.RolledBack, deadline, false},
		{core.Unknown, core.Unknown, deadline, true},
		{core.Unknown, core.Unknown, nil, true},
	} {
		k := &keeper{fakeDriver: newFake(), status: 'T', outcome: tc.outcome, commit: tc.err}
		tx, own := beginTracked(t, k.open(t, sqltx.Connector(k, core.Postgres)))
		var heard []core.Outcome
		own.OnOutcome(func(o core.Outcome) { heard = append(heard, o) })
		err := tx.Commit()
		if !slices.Equal(heard, []core.Outcome{tc.want}) || errors.Is(err, core.ErrCommitUnknown) != tc.unknown ||
			tc.err != nil && !errors.Is(err, tc.err) || (err == nil) != (tc.want == core.Committed) {
			t.Errorf("%s, %v: heard %v, Commit: %v", tc.outcome, tc.err, heard, err)
		}
	}
}

// The driver says that a statement has ended the transaction, or that it is aborted.
func TestConnectorAsksTheDriverForTheState(t *testing.T) {
	t.Parallel()
	for status, want := range map[byte]error{'I': core.ErrCommitUnknown, 'E': core.ErrTxAborted} {
		k := &keeper{fakeDriver: newFake(), status: 'T', outcome: core.Committed}
		tx, own := beginTracked(t, k.open(t, sqltx.Connector(k, core.Postgres)))
		own.OnOutcome(func(core.Outcome) {})
		k.status = status
		wantErr(t, tx.Commit(), want, "%c: Commit", status)
	}
}

// The INSERT of Publish is not sent if the driver knows that it would commit by itself, or that the
// server would refuse it. Other statements are.
func TestConnectorRefusesInsertsOutside(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status          byte
		refused, commit error
	}{
		"open":      {'T', nil, nil},
		"failed":    {'E', core.ErrTxAborted, core.ErrTxAborted},
		"ended":     {'I', core.ErrTxAborted, core.ErrCommitUnknown},
		"not known": {0, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeper{fakeDriver: newFake(), status: 'T', outcome: core.Committed}
			tx, own := beginTracked(t, k.open(t, sqltx.Connector(k, core.Postgres)))
			own.OnOutcome(func(core.Outcome) {})
			k.status = tc.status
			stmt, err := tx.PrepareContext(t.Context(), "INSERT c")
			must(t, err)
			defer stmt.Close()
			want := []string{"BEGIN", "PREPARE INSERT c", "UPDATE a"}
			_, err = tx.ExecContext(t.Context(), "UPDATE a")
			must(t, err)
			for _, keep := range []bool{true, false} {
				ctx := mark.Insert(t.Context(), keep)
				_, executed := tx.ExecContext(ctx, "INSERT a", 7)
				_, prepared := stmt.ExecContext(ctx)
				for name, err := range map[string]error{
					"Exec": executed, "Query": readAll(tx.QueryContext(ctx, "INSERT b", 7)), "Stmt": prepared,
				} {
					wantErr(t, err, tc.refused, "%s", name)
				}
				if tc.refused == nil {
					want = append(want, "INSERT a", "INSERT c", "INSERT b")
				}
			}
			wantErr(t, tx.Commit(), tc.commit, "Commit")
			got := slices.DeleteFunc(k.statements(), func(s string) bool { return s == "COMMIT" || s == "ROLLBACK" })
			if !slices.Equal(got, want) {
				t.Errorf("sent %q, want %q", got, want)
			}
		})
	}
}

// Before a function that reads the tables of the outbox, the events that wait are written. Here a
// driver of the test stands in for that of module pgxoutbox.
func ExampleFlush() {
	pool := sql.OpenDB(sqltx.Connector(&keeper{fakeDriver: newFake(), status: 'T'}, core.Postgres))
	defer pool.Close()

	ctx := context.Background()
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback()
	otx, err := sqltx.TxOf(ctx, tx)
	if err != nil {
		panic(err)
	}
	// ... Publish, and then:
	fmt.Println(sqltx.Flush(ctx, otx))
	// Output: <nil>
}

// prepares executes a statement five times without and five times with RETURNING. It returns how
// often the driver prepared one of the two.
func prepares(t *testing.T, ctx context.Context, d *fakeDriver, c sqltx.Conn, query string) (n int) {
	t.Helper()
	before := len(d.statements())
	for range 5 {
		_, err := c.ExecContext(ctx, query, 1)
		must(t, err)
		must(t, readAll(c.QueryContext(ctx, query+" RETURNING n", 1)))
	}
	executed := map[string]int{}
	for _, s := range d.statements()[before:] {
		if strings.HasPrefix(s, "PREPARE") {
			n++
		} else {
			executed[s]++
		}
	}
	if executed[query] != 5 || executed[query+" RETURNING n"] != 5 {
		t.Errorf("executed %v, want each 5 times", executed)
	}
	return n
}

// Some drivers prepare a statement for each execution. Such a driver prepares a marked statement
// twice: once while the connection does not keep it yet, and once to be kept.
func TestMarkedStatementsAreKept(t *testing.T) {
	t.Parallel()
	d := newFake()
	d.skip = true
	db := d.open(t, sqltx.Connector(d, core.MySQL))
	marked := mark.Insert(t.Context(), true)
	for n, step := range []struct {
		ctx   context.Context
		query string
		want  int
	}{
		{t.Context(), "INSERT a", 10},
		{marked, "INSERT a", 4},
		{marked, "INSERT a", 0},
		{t.Context(), "INSERT a", 10},
		{marked, "INSERT b", 4},
	} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		equal(t, prepares(t, step.ctx, d, tx, step.query), step.want, "step %d: prepared so often", n)
		must(t, tx.Commit())
	}
	// A connection keeps a bounded number of them.
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	for n := range 20 {
		prepares(t, marked, d, tx, fmt.Sprintf("INSERT %d", n))
	}
	equal(t, prepares(t, marked, d, tx, "INSERT c"), 10, "the statement after many: prepared so often")
	must(t, tx.Commit())
}

// A connection on loan from its pool keeps no statements, because nobody reports when it is closed.
func TestLentConnectionsKeepNothing(t *testing.T) {
	t.Parallel()
	d := newFake()
	d.skip = true
	db := d.open(t, d)
	for range 2 {
		conn, err := db.Conn(t.Context())
		must(t, err)
		conn, err = sqltx.TrackConn(t.Context(), conn, core.MySQL)
		must(t, err)
		equal(t, prepares(t, mark.Insert(t.Context(), true), d, conn, "INSERT a"), 10, "prepared so often")
		must(t, conn.Close())
	}
}

// Nothing is prepared if the driver itself does not prepare and is not a known one.
func TestOtherDriversAreLeftAlone(t *testing.T) {
	t.Parallel()
	for _, dialect := range []core.Dialect{core.Postgres, core.SQLite, core.MySQL} {
		d := newFake()
		db := d.open(t, sqltx.Connector(d, dialect))
		for range 3 {
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			if got := prepares(t, mark.Insert(t.Context(), true), d, tx, "INSERT a"); got != 0 {
				t.Errorf("%s: prepared %d times", dialect, got)
			}
			must(t, tx.Commit())
		}
	}
}
