package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// tracked shows a tracker a script and collects what it reports. A step "+x" registers callback x,
// "!query" is a statement that failed, anything else one that succeeded.
type tracked struct {
	*sqltx.Tracker
	heard map[string]core.Outcome
	order []string
	twice []string
}

func track(d core.Dialect, script ...string) *tracked {
	tr := &tracked{Tracker: sqltx.NewTracker(d), heard: map[string]core.Outcome{}}
	tr.steps(script...)
	return tr
}

func (tr *tracked) steps(script ...string) {
	for _, s := range script {
		switch {
		case strings.HasPrefix(s, "+"):
			tr.follow(s[1:])
		case strings.HasPrefix(s, "!"):
			tr.Observe(s[1:], errors.New("failed"))
		default:
			tr.Observe(s, nil)
		}
	}
}

func (tr *tracked) follow(name string) {
	tr.OnOutcome(func(o core.Outcome) {
		if _, again := tr.heard[name]; again {
			tr.twice = append(tr.twice, name)
		}
		tr.heard[name] = o
		tr.order = append(tr.order, name)
	})
}

func succeed() error { return nil }

func outcomes(committed, rolledBack, unknown string) map[string]core.Outcome {
	all := map[string]core.Outcome{}
	for o, names := range map[core.Outcome]string{
		core.Committed: committed, core.RolledBack: rolledBack,
		core.Unknown: unknown,
	} {
		for n := range strings.FieldsSeq(names) {
			all[n] = o
		}
	}
	return all
}

// wants fails the test unless these callbacks were told of these outcomes. The rest says when.
func (tr *tracked) wants(t *testing.T, committed, rolledBack, unknown, format string, args ...any) {
	t.Helper()
	if want := outcomes(committed, rolledBack, unknown); !maps.Equal(tr.heard, want) {
		t.Errorf("%s: heard %v, want %v", fmt.Sprintf(format, args...), tr.heard, want)
	}
}

func TestTrackerFollowsSavepoints(t *testing.T) {
	for name, tt := range map[string]struct {
		script                         string // its steps, with | between them
		committed, rolledBack, unknown string
	}{
		"none":                 {"+a | INSERT INTO x VALUES (1) | +b", "a b", "", ""},
		"rolled back to":       {"+a | SAVEPOINT s | +b | ROLLBACK TO SAVEPOINT s | +c", "a c", "b", ""},
		"rolled back to twice": {"SAVEPOINT s | +a | ROLLBACK TO s | +b | ROLLBACK TO s | +c", "c", "a b", ""},
		"released":             {"+a | SAVEPOINT s | +b | RELEASE SAVEPOINT s | +c", "a b c", "", ""},
		"released, then outer": {
			"SAVEPOINT o | +a | SAVEPOINT i | +b | RELEASE i | +c | ROLLBACK TO o | +d",
			"d", "a b c", "",
		},
		"inner": {
			"SAVEPOINT o | +a | SAVEPOINT i | +b | ROLLBACK TO i | +c | RELEASE o",
			"a c", "b", "",
		},
		"outer drops inner":         {"SAVEPOINT o | +a | SAVEPOINT i | +b | ROLLBACK TO o | +c", "c", "a b", ""},
		"inner is gone after outer": {"SAVEPOINT o | SAVEPOINT i | ROLLBACK TO o | +a | ROLLBACK TO i", "", "", "a"},
		"release drops inner":       {"SAVEPOINT o | SAVEPOINT i | RELEASE o | +a | ROLLBACK TO i", "", "", "a"},
		"released is gone":          {"SAVEPOINT s | RELEASE s | +a | ROLLBACK TO s", "", "", "a"},
		"released twice":            {"SAVEPOINT s | +a | RELEASE s | RELEASE s", "", "", "a"},
		"unknown name":              {"+a | ROLLBACK TO never | +b", "", "", "a b"},
		"one name twice": {
			"+a | SAVEPOINT s | +b | SAVEPOINT s | +c | ROLLBACK TO s | +d",
			"a b d", "c", "",
		},
		"one name twice, and again": {
			"SAVEPOINT s | +a | SAVEPOINT s | +b | ROLLBACK TO s | +c | ROLLBACK TO s | +d",
			"a d", "b c", "",
		},
		"one name twice, one released": {
			"SAVEPOINT s | +a | SAVEPOINT s | +b | RELEASE s | +c | ROLLBACK TO s | +d",
			"d", "a b c", "",
		},
		"two spellings": {`+a | SAVEPOINT s | +b | SAVEPOINT "s" | +c | ROLLBACK TO s | +d`, "a d", "", "b c"},
		"two spellings, marks clamped": {
			"SAVEPOINT s | +a | SAVEPOINT S | +b | ROLLBACK TO s | +c | ROLLBACK TO S | +d",
			"d", "", "a b c",
		},
		"two spellings, the last": {
			`+a | SAVEPOINT s | +b | SAVEPOINT "s" | +c | ROLLBACK TO "s" | +d`,
			"a b d", "c", "",
		},
		"a quote in a quoted name": {
			`SAVEPOINT "s" | +a | SAVEPOINT "s""t" | +b | ROLLBACK TO "s" | +c`,
			"", "", "a b c",
		},
		// Releasing "B" takes savepoint a2 with it on PostgreSQL, so ROLLBACK TO a goes back to a0
		// there.
		"a spelling that hides a release": {
			`SAVEPOINT a | +a | SAVEPOINT "B" | SAVEPOINT a | SAVEPOINT b | RELEASE "B" | +b | ROLLBACK TO a`,
			"", "", "a b",
		},
		"case":                     {"+a | SAVEPOINT Sp | +b | rollback to sP | +c", "a c", "b", ""},
		"quotes are the same name": {"+a | SAVEPOINT \"s\" | +b | ROLLBACK TO `s` | +c", "a c", "b", ""},
		"quotes with blanks":       {`+a | SAVEPOINT "my s" | +b | ROLLBACK TO "my t"`, "", "", "a b"},
		"brackets":                 {"+a | SAVEPOINT [s] | +b | ROLLBACK TO SAVEPOINT [s]", "a", "b", ""},
		"blanks, comments, semicolons": {
			"+a |  -- x\n/* y */ savepoint\n/* z */ s ; | +b | ROLLBACK /**/ WORK\tTO s--x",
			"a", "b", "",
		},
		"SQL Server's words": {"+a | SAVE TRAN s | +b | ROLLBACK TRAN s | +c", "a c", "b", ""},
		"words that only look like that": {
			"SELECT 'COMMIT' | UPDATE commit SET savepoint = 1 | SELECT 1 -- ; ROLLBACK | +a",
			"a", "", "",
		},
		"words that nobody knows": {"+a | COMMITMENT | +b", "", "", "a b"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := track(core.SQLite, strings.Split(tt.script, " | ")...)
			before := maps.Clone(tr.heard)
			err := tr.Commit(succeed)
			for n, o := range tr.heard {
				if _, known := before[n]; !known && o == core.Committed && err != nil ||
					err != nil && !errors.Is(err, core.ErrCommitUnknown) {
					t.Errorf("%s was reported as %s, and Commit returned %v", n, o, err)
				}
			}
			if want := outcomes(tt.committed, tt.rolledBack, tt.unknown); !maps.Equal(tr.heard, want) ||
				tr.twice != nil {
				t.Errorf("heard %v (twice %v), want %v", tr.heard, tr.twice, want)
			}
			tr = track(core.SQLite, strings.Split(tt.script, " | ")...)
			tr.RolledBack()
			for n, o := range tr.heard {
				if o == core.Committed {
					t.Errorf("after a rollback %s is reported as committed", n)
				}
			}
			if len(tr.heard) != len(outcomes(tt.committed, tt.rolledBack, tt.unknown)) {
				t.Errorf("after a rollback only %v was heard", tr.heard)
			}
		})
	}
}

func TestTrackerReportsInOrderWhenItKnows(t *testing.T) {
	tr := track(core.Postgres, "+a", "SAVEPOINT s", "+b", "+c")
	if len(tr.heard) != 0 {
		t.Fatalf("heard %v while everything is open", tr.heard)
	}
	tr.steps("ROLLBACK TO s", "+d", "+e")
	must(t, tr.Commit(func() error {
		equal(t, len(tr.heard), 2, "heard %v before COMMIT", tr.heard)
		return nil
	}))
	if want := []string{"b", "c", "a", "d", "e"}; !slices.Equal(tr.order, want) {
		t.Errorf("reported in the order %v, want %v", tr.order, want)
	}
}

func TestTrackerControlBehindTheDriver(t *testing.T) {
	for _, query := range []string{
		"COMMIT", "commit;", "COMMIT WORK", "COMMIT AND CHAIN", "END", "end transaction", "ROLLBACK", "ROLLBACK WORK",
		"ROLLBACK TRANSACTION", "ABORT", "BEGIN", "BEGIN IMMEDIATE",
		"START TRANSACTION", "/* x */ COMMIT", "-- x\nROLLBACK", ";;COMMIT", "PREPARE TRANSACTION 'x'",
	} {
		for _, d := range []core.Dialect{core.Postgres, core.MySQL, core.SQLite} {
			for _, end := range []func(*tracked){
				func(tr *tracked) { _ = tr.Commit(succeed) },
				func(tr *tracked) { _ = tr.Commit(func() error { return sql.ErrTxDone }) },
				func(tr *tracked) { tr.RolledBack() },
			} {
				tr := track(d, "SAVEPOINT s", "+a", query, "+b")
				if !errors.Is(tr.Err(), core.ErrTxAborted) {
					t.Errorf("%s: Err is %v", query, tr.Err())
				}
				tr.steps("SAVEPOINT s", "+c", "ROLLBACK TO s")
				end(tr)
				tr.wants(t, "", "", "a b c", "%s", query)
			}
		}
	}
}

func TestTrackerHiddenControl(t *testing.T) {
	for _, query := range []string{
		"SELECT 1; ROLLBACK TO s", "UPDATE x SET y = 1;\n/* z */ commit",
		"SAVEPOINT t; RELEASE s", "x;;-- y\nROLLBACK",
	} {
		tr := track(core.SQLite, "+a", "SAVEPOINT s", "+b", query, "+c")
		if tr.Err() != nil {
			t.Errorf("%s: a doubt makes the transaction unusable: %v", query, tr.Err())
		}
		tr.steps("ROLLBACK TO s")
		_ = tr.Commit(succeed)
		tr.wants(t, "", "", "a b c", "%s", query)
	}
	for _, query := range []string{"SELECT 1;", "INSERT INTO x VALUES ('a; b')", "SELECT ';'; SELECT 2"} {
		tr := track(core.SQLite, "+a", query)
		_ = tr.Commit(succeed)
		equal(t, tr.heard["a"], core.Committed, "%s", query)
	}
}

func TestTrackerFailedStatement(t *testing.T) {
	for _, tt := range []struct {
		dialect core.Dialect
		aborted bool
	}{{core.Postgres, false}, {core.MySQL, true}, {core.SQLite, true}, {"other", false}} {
		tr := track(tt.dialect, "+a", "!INSERT INTO x VALUES (1)", "+b")
		equal(t, errors.Is(tr.Err(), core.ErrTxAborted), tt.aborted, "%s: Err is %v", tt.dialect, tr.Err())
		_ = tr.Commit(succeed)
		tr.wants(t, "", "", "a b", "%s", tt.dialect)
		tr = track(tt.dialect, "+a", "!INSERT INTO x VALUES (1)")
		tr.RolledBack()
		tr.wants(t, "", "a", "", "%s, after a rollback", tt.dialect)
	}
	tr := track(core.MySQL, "+a")
	tr.Observe("INSERT INTO x VALUES (1)", driver.ErrSkip)
	tr.Observe("INSERT INTO x VALUES (1)", fmt.Errorf("wrapped: %w", driver.ErrSkip))
	_ = tr.Commit(succeed)
	if tr.Err() == nil || tr.heard["a"] != core.Committed {
		t.Errorf("a statement that the driver skipped: %v", tr.heard)
	}
}

func TestTrackerCommit(t *testing.T) {
	lost := errors.New("connection reset")
	for name, tt := range map[string]struct {
		dialect core.Dialect
		err     error
		want    core.Outcome
		unknown bool
	}{
		"accepted":            {core.Postgres, nil, core.Committed, false},
		"lost":                {core.Postgres, lost, core.Unknown, true},
		"bad connection":      {core.Postgres, driver.ErrBadConn, core.Unknown, true},
		"context":             {core.Postgres, context.Canceled, core.Unknown, true},
		"never sent":          {core.Postgres, sql.ErrTxDone, core.RolledBack, false},
		"serialization":       {core.Postgres, pgError("40001"), core.RolledBack, false},
		"deferred constraint": {core.Postgres, pgError("23503"), core.RolledBack, false},
		"completion unknown":  {core.Postgres, pgError("40003"), core.Unknown, true},
		"server shut down":    {core.Postgres, pgError("57P01"), core.Unknown, true},
		"rolled back instead": {
			core.Postgres, errors.New("commit unexpectedly resulted in rollback"),
			core.RolledBack, false,
		},
		"deadlock":             {core.MySQL, &mysqlError{1213, ""}, core.RolledBack, false},
		"server gone":          {core.MySQL, &mysqlError{1053, ""}, core.Unknown, true},
		"deferred foreign key": {core.SQLite, sqliteError(787), core.RolledBack, false},
		"disk":                 {core.SQLite, sqliteError(10), core.Unknown, true},
		"wrapped with what is known": {
			core.MySQL, fmt.Errorf("orm: %w", &mysqlError{1213, ""}), core.RolledBack,
			false,
		},
	} {
		tr := track(tt.dialect, "+a")
		err := tr.Commit(func() error { return tt.err })
		if tr.heard["a"] != tt.want || errors.Is(err, core.ErrCommitUnknown) != tt.unknown ||
			tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: heard %s, error %v", name, tr.heard["a"], err)
		}
		if err := track(tt.dialect).Commit(func() error { return tt.err }); errors.Is(err, core.ErrCommitUnknown) ||
			!errors.Is(err, tt.err) {
			t.Errorf("%s: without anybody waiting: %v", name, err)
		}
	}
}

type pgError string

func (e pgError) Error() string    { return "SQLSTATE " + string(e) }
func (e pgError) SQLState() string { return string(e) }

func TestTrackerUnseenAndAbort(t *testing.T) {
	tr := track(core.Postgres, "+a", "SAVEPOINT s", "+b")
	tr.Unseen()
	tr.steps("+c", "ROLLBACK TO s")
	if tr.Err() != nil {
		t.Errorf("Unseen makes Err return %v", tr.Err())
	}
	_ = tr.Commit(succeed)
	tr.wants(t, "", "b c", "a", "unseen")

	cause, later := errors.New("cause"), errors.New("later")
	tr = track(core.Postgres, "+a")
	tr.Abort(cause)
	tr.Abort(later)
	if err := tr.Err(); !errors.Is(err, core.ErrTxAborted) || !errors.Is(err, cause) || errors.Is(err, later) {
		t.Errorf("aborted: %v", err)
	}
	_ = tr.Commit(succeed)
	tr.wants(t, "", "", "a", "aborted")
}

func TestTrackerAfterTheEnd(t *testing.T) {
	for _, end := range []func(*tracked){
		func(tr *tracked) { _ = tr.Commit(succeed) },
		func(tr *tracked) { tr.RolledBack() },
	} {
		tr := track(core.Postgres, "+a")
		end(tr)
		before := tr.heard["a"]
		if !errors.Is(tr.Err(), core.ErrNoTransaction) {
			t.Errorf("Err after the end is %v", tr.Err())
		}
		tr.steps("+late", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT", "!x")
		tr.RolledBack()
		reason := errors.New("reason")
		if err := tr.Commit(func() error { return reason }); err != reason { //nolint:errorlint // it is not wrapped
			t.Errorf("Commit after the end returned %v", err)
		}
		if tr.heard["a"] != before || tr.heard["late"] != core.Unknown || tr.twice != nil {
			t.Errorf("heard %v (twice %v)", tr.heard, tr.twice)
		}
	}
}

func TestTrackerCallbackRegistersAnother(t *testing.T) {
	tr := track(core.Postgres, "SAVEPOINT s")
	tr.OnOutcome(func(core.Outcome) { tr.follow("during the rollback") })
	tr.steps("ROLLBACK TO s")
	tr.OnOutcome(func(core.Outcome) { tr.follow("during the commit") })
	_ = tr.Commit(succeed)
	if want := map[string]core.Outcome{
		"during the rollback": core.Committed,
		"during the commit":   core.Unknown,
	}; !maps.Equal(tr.heard, want) {
		t.Errorf("heard %v, want %v", tr.heard, want)
	}
}

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
	tr.wants(t, "a b", "", "", "at the end")
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

// MySQL and MariaDB commit before some statements, and each further statement then stands for
// itself.
func TestTrackerImplicitCommit(t *testing.T) {
	for _, query := range []string{
		"CREATE TABLE t (n INT)", "create index i on t (n)", "ALTER TABLE t ADD m INT", "DROP TABLE t", "TRUNCATE t",
		"RENAME TABLE t TO u", "GRANT SELECT ON t TO u", "LOCK TABLES t WRITE", "CALL p()", "ANALYZE TABLE t",
		"SET autocommit = 1", "/*!50000 CREATE */ TABLE t (n INT)", "CREATE OR REPLACE TABLE t (n INT)",
	} {
		for _, mark := range []string{"", "!"} { // it may have committed even when it failed
			tr := track(core.MySQL, "+a", mark+query, "+b")
			if !errors.Is(tr.Err(), core.ErrTxAborted) {
				t.Errorf("%s%s: Err is %v, want ErrTxAborted", mark, query, tr.Err())
			}
			tr.RolledBack()
			tr.wants(t, "", "", "a b", "%s%s", mark, query)
		}
		for _, d := range []core.Dialect{core.Postgres, core.SQLite} {
			if verb, _, _ := strings.Cut(query, " "); !slices.Contains([]string{"CREATE", "create", "ALTER", "DROP"},
				verb) {
				continue
			}
			tr := track(d, "+a", query)
			_ = tr.Commit(succeed)
			if tr.Err() == nil || tr.heard["a"] != core.Committed {
				t.Errorf("%s, %s: heard %v, want that it is part of the transaction", d, query, tr.heard)
			}
		}
	}
	for _, query := range []string{
		"CREATE TEMPORARY TABLE t (n INT)", "CREATE OR REPLACE TEMPORARY TABLE t (n INT)", "DROP TEMPORARY TABLE t",
		"DROP PREPARE p", "REPLACE INTO t VALUES (1)", "DELETE FROM t", "/*!40101 SET NAMES utf8 */", "",
	} {
		tr := track(core.MySQL, "+a", query)
		_ = tr.Commit(succeed)
		equal(t, tr.heard["a"], core.Committed, "%q: heard %v", query, tr.heard)
	}
}

// The part of a comment that MySQL and MariaDB execute may be transaction control.
func TestTrackerExecutedComment(t *testing.T) {
	for _, query := range []string{
		"/*! ROLLBACK */", "/*!50000 COMMIT*/", "/*M!100100 ROLLBACK */",
		"/* x */ /*!ROLLBACK*/", "SELECT 1; /*! COMMIT */",
	} {
		tr := track(core.MySQL, "+a", query)
		_ = tr.Commit(succeed)
		equal(t, tr.heard["a"], core.Unknown, "%s: heard %v", query, tr.heard)
	}
}

// A rollback tells the mark at which the changes began that are rolled back.
func TestTrackerTellsWhatIsRolledBack(t *testing.T) {
	began := core.MarkRecorders()
	tr := sqltx.NewTracker(core.Postgres)
	var told []core.RecorderMark
	tr.OnRollback("a", func(core.RecorderMark) { t.Error("a function that was replaced was called") })
	tr.OnRollback("a", func(to core.RecorderMark) { told = append(told, to) })
	record := func() core.RecorderMark {
		new(core.Recorder).Record(core.Event{Type: "a"})
		return core.MarkRecorders()
	}
	first := record()
	tr.Observe("SAVEPOINT a", nil)
	second := record()
	tr.Observe("SAVEPOINT b", nil)
	record()
	tr.Observe("ROLLBACK TO b", nil)
	tr.Observe("ROLLBACK TO a", nil)
	tr.RolledBack()
	tr.RolledBack()
	if want := []core.RecorderMark{second, first, began}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	tr = sqltx.NewTracker(core.Postgres)
	tr.OnRollback("a", func(core.RecorderMark) { t.Error("a commit is no rollback") })
	must(t, tr.End(core.Committed, nil))
}
