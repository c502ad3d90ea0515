package sqltx_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// sqliteError has the method of the error of modernc.org/sqlite.
type sqliteError int

func (e sqliteError) Error() string { return "sqlite error" }
func (e sqliteError) Code() int     { return int(e) }

// The test checks which outcome is reported after an ignored error if COMMIT then returns nil.
func TestTrackerIgnoredError(t *testing.T) {
	duplicate, deadlock := &mysqlError{1062, "duplicate"}, &mysqlError{1213, "deadlock"}
	constraint, full := sqliteError(1555), sqliteError(13)
	other := errors.New("whatever")
	for name, tc := range map[string]struct {
		dialect  core.Dialect
		err      error
		rollback bool // to the savepoint before the statement
		want     core.Outcome
		aborted  bool
	}{
		"mysql constraint":                      {core.MySQL, duplicate, false, core.Committed, false},
		"mysql deadlock":                        {core.MySQL, deadlock, false, core.Unknown, true},
		"mysql deadlock, savepoint":             {core.MySQL, deadlock, true, core.Unknown, true},
		"mysql unknown error":                   {core.MySQL, other, false, core.Unknown, true},
		"sqlite constraint":                     {core.SQLite, constraint, false, core.Committed, false},
		"sqlite disk full":                      {core.SQLite, full, false, core.Unknown, true},
		"postgres":                              {core.Postgres, other, false, core.Unknown, false},
		"postgres, savepoint":                   {core.Postgres, other, true, core.Committed, false},
		"unknown dialect":                       {"", other, false, core.Unknown, false},
		"unknown dialect, savepoint":            {"", other, true, core.Unknown, false},
		"sqlite constraint that rolls all back": {core.SQLite, constraint, false, core.Unknown, true},
	} {
		t.Run(name, func(t *testing.T) {
			query := "INSERT INTO t VALUES (1)"
			if name == "sqlite constraint that rolls all back" {
				query = "INSERT OR ROLLBACK INTO t VALUES (1)"
			}
			tr := sqltx.NewTracker(tc.dialect)
			got := []core.Outcome{}
			tr.OnOutcome(func(o core.Outcome) { got = append(got, o) })
			tr.Observe("SAVEPOINT a", nil)
			tr.Observe(query, tc.err)
			if tc.rollback {
				tr.Observe("ROLLBACK TO SAVEPOINT a", nil)
			}
			equal(t, errors.Is(tr.Err(), core.ErrTxAborted), tc.aborted, "Err: %v", tr.Err())
			if err := tr.Commit(succeed); errors.Is(err, core.ErrCommitUnknown) != (tc.want == core.Unknown) {
				t.Errorf("COMMIT was answered well, and Commit returned %v", err)
			}
			if len(got) != 1 || got[0] != tc.want {
				t.Errorf("heard %v, want %v", got, tc.want)
			}
		})
	}
}

// Several statements sent as one may hide transaction control from the first words.
func TestTrackerSeveralStatementsInOne(t *testing.T) {
	for query, want := range map[string]core.Outcome{
		"UPDATE t SET n = 1; UPDATE t SET n = 2;":  core.Committed,
		"UPDATE t SET s = 'a; b'":                  core.Committed,
		"SAVEPOINT a;":                             core.Committed,
		"UPDATE t SET n = 1; ROLLBACK TO a":        core.Unknown,
		"UPDATE t SET n = 1;\n-- done\nCOMMIT":     core.Unknown,
		"UPDATE t SET n = 1; /* again */ ROLLBACK": core.Unknown,
	} {
		tr := sqltx.NewTracker(core.MySQL)
		got := core.Outcome(99)
		tr.OnOutcome(func(o core.Outcome) { got = o })
		tr.Observe(query, nil)
		if err := tr.Commit(succeed); errors.Is(err, core.ErrCommitUnknown) != (want == core.Unknown) {
			t.Errorf("%q: Commit returned %v", query, err)
		}
		equal(t, got, want, "%q: heard", query)
	}
}

// A caller that can ask the database ends the doubt. After a rollback nothing more is sent, not
// even COMMIT.
func TestTrackerResolve(t *testing.T) {
	duplicate, deadlock := sqliteError(1555), &mysqlError{1213, "deadlock"}
	for name, tc := range map[string]struct {
		dialect core.Dialect
		err     error
		open    bool
		want    core.Outcome
	}{
		"mysql, open":    {core.MySQL, deadlock, true, core.Committed},
		"mysql, gone":    {core.MySQL, deadlock, false, core.RolledBack},
		"sqlite, open":   {core.SQLite, duplicate, true, core.Committed},
		"sqlite, gone":   {core.SQLite, duplicate, false, core.RolledBack},
		"postgres, open": {core.Postgres, context.Canceled, true, core.Committed},
		"postgres, gone": {core.Postgres, pgError("23505"), false, core.RolledBack},
	} {
		t.Run(name, func(t *testing.T) {
			tr := track(tc.dialect, "+a")
			tr.Observe("INSERT INTO t VALUES (1)", tc.err)
			if !errors.Is(tr.Doubt(), tc.err) {
				t.Errorf("the doubt is %v", tr.Doubt())
			}
			tr.Resolve(tc.open)
			if tr.Doubt() != nil {
				t.Errorf("the doubt is still %v", tr.Doubt())
			}
			sent := false
			_, before := tr.Before("INSERT INTO t VALUES (2)")
			afterwards := tr.Err()
			err := tr.Commit(func() error { sent = true; return nil })
			for what, got := range map[string]error{"Before": before, "Err": afterwards, "Commit": err} {
				if errors.Is(got, core.ErrTxAborted) == tc.open || !tc.open && !errors.Is(got, tc.err) {
					t.Errorf("%s returned %v", what, got)
				}
			}
			if sent != tc.open || tr.heard["a"] != tc.want {
				t.Errorf("COMMIT sent: %t, heard %v", sent, tr.heard)
			}
		})
	}
}

// On PostgreSQL a statement that succeeds proves that the failed ones before it did not abort the
// transaction. They never reached the server.
func TestTrackerSuccessEndsTheDoubt(t *testing.T) {
	for query, want := range map[string]core.Outcome{
		"SELECT 1": core.Committed, "SAVEPOINT s": core.Committed,
		"": core.Unknown, "-- nothing": core.Unknown,
	} {
		tr := track(core.Postgres, "+a", "!SELECT 1", query)
		err := tr.Commit(succeed)
		if tr.heard["a"] != want || (err == nil) != (want == core.Committed) {
			t.Errorf("%q: heard %v, error %v", query, tr.heard, err)
		}
	}
}

func TestTrackerBefore(t *testing.T) {
	tr := sqltx.NewTracker(core.MySQL)
	for query, want := range map[string]bool{"SELECT 1": false, "COMMIT": false, "CALL p()": true, "FROBNICATE": true} {
		if opaque, err := tr.Before(query); opaque != want || err != nil {
			t.Errorf("%s: opaque %t, error %v", query, opaque, err)
		}
	}
}

// A callback that panics is a mistake, but the others hear of the commit, and the Tracker is not
// locked for ever.
func TestTrackerCallbackPanics(t *testing.T) {
	tr := track(core.Postgres, "+a")
	tr.OnOutcome(func(core.Outcome) { panic("oh no") })
	tr.follow("b")
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = tr.Commit(succeed)
	}()
	if want := outcomes("a b", "", ""); !maps.Equal(tr.heard, want) {
		t.Errorf("heard %v, want %v", tr.heard, want)
	}
	answered := make(chan error, 1)
	go func() { answered <- tr.Err() }()
	select {
	case err := <-answered:
		if !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("Err is %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the Tracker is locked")
	}
}
