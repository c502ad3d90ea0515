package sqltx_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/mark"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

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
