package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestPattern(t *testing.T) {
	t.Parallel()
	got := pattern([]string{"TestClaim/a+b", "TestMark"})
	if want := `^TestClaim$/^a\+b$|^TestMark$`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseOutput(t *testing.T) {
	t.Parallel()
	o := parseOutput(`=== RUN   TestClaim
=== RUN   TestClaim/lease
=== PAUSE TestClaim/lease
=== RUN   TestClaim/fence
    claim_test.go:7: starts
=== CONT  TestClaim/lease
    claim_test.go:12: claimed by two
        and more
=== NAME  TestClaim/fence
    claim_test.go:20: ends
=== NAME  TestClaim/lease
    claim_test.go:14: again
--- FAIL: TestClaim (0.00s)
    --- FAIL: TestClaim/lease (0.02s)
    --- PASS: TestClaim/fence (0.01s)
--- SKIP: TestMark (0.00s)
FAIL
`)
	if got := strings.Join(slices.Sorted(maps.Keys(o.failed)), " "); got != "TestClaim TestClaim/lease" {
		t.Errorf("failed: %s", got)
	}
	if got := strings.Join(slices.Sorted(maps.Keys(o.passed)), " "); got != "TestClaim/fence" {
		t.Errorf("passed: %s", got)
	}
	for _, name := range []string{"TestClaim", "TestClaim/lease"} {
		if got := o.message(name); got != "claimed by two" {
			t.Errorf("%s said %q", name, got)
		}
	}
	if got := o.message("TestMark"); got != "" {
		t.Errorf("TestMark said %q", got)
	}
}

// A statement that no database runs makes every test fail, and so proves nothing about a test.
func TestRefusedStatements(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		`ERROR: syntax error at or near "FRM" (SQLSTATE 42601)`,
		`ERROR: could not determine data type of parameter $4 (SQLSTATE 42P18)`,
		`ERROR: bind message supplies 3 parameters, but prepared statement "" requires 2 (SQLSTATE 08P01)`,
		`expected 2 arguments, got 3`,
		`Error 1064 (42000): You have an error in your SQL syntax`,
		`Error 1054 (42S22): Unknown column 'x' in 'WHERE'`,
		`SQL logic error: near "FRM": syntax error (1)`,
		`SQL logic error: no such column: x (1)`,
	} {
		if !refused.MatchString(said) {
			t.Errorf("not seen: %s", said)
		}
	}
	for _, said := range []string{
		`ERROR: duplicate key value violates unique constraint "c1_event_pkey" (SQLSTATE 23505)`,
		`Error 1213 (40001): Deadlock found when trying to get lock; try restarting transaction`,
		`claimed [1 2], want [2]`,
	} {
		if refused.MatchString(said) {
			t.Errorf("taken for a refused statement: %s", said)
		}
	}
}
