package sqlkit_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

func TestCheckIdent(t *testing.T) {
	for s, ok := range map[string]bool{
		"a": true, "_a1": true, "Outbox_": true, strings.Repeat("a", 63): true,
		"": false, "1a": false, "a b": false, "a;": false, "a\"": false, "a`": false, "a\n": false, "ä": false,
		strings.Repeat("a", 64): false,
	} {
		if err := sqlkit.CheckIdent(core.Postgres, "name", s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
	if err := sqlkit.CheckIdent(core.MySQL, "name", strings.Repeat("a", 64)); err != nil {
		t.Error(err)
	}
}

func TestRebind(t *testing.T) {
	const in = "a = ? AND b IN (?,?)"
	if got := sqlkit.Rebind(core.Postgres, in); got != "a = $1 AND b IN ($2,$3)" {
		t.Error(got)
	}
	if got := sqlkit.Rebind(core.MySQL, in); got != in {
		t.Error(got)
	}
	if got := sqlkit.List(0) + "/" + sqlkit.List(1) + "/" + sqlkit.List(3); got != "/?/?,?,?" {
		t.Error(got)
	}
}

func TestStatements(t *testing.T) {
	got := sqlkit.Statements("-- one\nCREATE TABLE a (\n    -- two\n    b int\n);\n\nDROP TABLE c;\nSELECT 1")
	if want := []string{"CREATE TABLE a (\n    b int\n)", "DROP TABLE c", "SELECT 1"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

type stateError string

func (e stateError) Error() string    { return string(e) }
func (e stateError) SQLState() string { return string(e) }

func TestRetry(t *testing.T) {
	run := func(ctx context.Context, results ...error) (calls int, err error) {
		err = sqlkit.Retry(ctx, func() error {
			calls++
			return results[min(calls, len(results))-1]
		})
		return calls, err
	}
	deadlock, syntax := stateError("40P01"), stateError("42601")
	synctest.Test(t, func(t *testing.T) {
		if calls, err := run(t.Context(), deadlock, deadlock, nil); calls != 3 || err != nil {
			t.Errorf("%d calls, %v", calls, err)
		}
		if calls, err := run(t.Context(), syntax); calls != 1 || !errors.Is(err, syntax) {
			t.Errorf("%d calls, %v", calls, err)
		}
		start := time.Now()
		calls, err := run(t.Context(), deadlock)
		if calls < 5 || calls > 20 || !errors.Is(err, deadlock) || time.Since(start) > 5*time.Second {
			t.Errorf("%d calls in %s, %v", calls, time.Since(start), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if calls, err := run(ctx, deadlock); calls != 1 || !errors.Is(err, deadlock) {
			t.Errorf("%d calls, %v", calls, err)
		}
	})
}

// A transaction that ends with its context says so.
func TestInTxEndedByContext(t *testing.T) {
	db, err := outboxtest.OpenDB(core.Postgres)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	err = sqlkit.InTx(ctx, db, core.Postgres, func(c sqlkit.Conn) error {
		cancel()
		for { // until database/sql has rolled it back
			if _, err := c.ExecContext(context.WithoutCancel(ctx), "SELECT 1"); err != nil {
				return err
			}
		}
	})
	if !errors.Is(err, context.Canceled) || !errors.Is(err, sql.ErrTxDone) {
		t.Error(err)
	}
}
