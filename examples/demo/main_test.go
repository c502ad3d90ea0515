package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary run as the shop, as the program itself does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childCommand {
		os.Exit(childMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func noEnv(string) string { return "" }

// patience is enough for a busy machine.
const patience = "-timeout=5m"

// runJSON runs the whole demonstration and returns what it printed for machines.
func runJSON(t *testing.T, args ...string) (code int, r result) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"-json", patience}, args...), noEnv, &stdout, &stderr)
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %q; standard error: %s", err, stdout.String(), stderr.String())
	}
	if r.Files != "" {
		t.Cleanup(func() { os.RemoveAll(r.Files) })
	}
	t.Logf("exit code %d: %+v", code, r)
	return code, r
}

// inTime repeats a demonstration until all kills come in time. On a busy machine, the shop may have
// ended by itself before its parent reads how far it is.
func inTime(t *testing.T, kills func() bool) {
	t.Helper()
	for range 5 {
		if kills() || t.Failed() {
			return
		}
	}
	t.Error("in no run did all kills come in time")
}

func TestDemoBalances(t *testing.T) {
	t.Parallel()
	inTime(t, func() bool {
		code, r := runJSON(t, "-orders=80", "-kills=4", "-seed=7")
		if code != exitBalanced || !r.OK {
			t.Fatalf("exit code %d, problems %q", code, r.Problems)
		}
		if r.Committed != 80 || r.Delivered != 80 || r.Lost != 0 || r.Ghosts != 0 || r.OutOfOrder != 0 {
			t.Errorf("%+v, want 80 committed and delivered and nothing else", r)
		}
		// A kill leaves rows to be found in the table.
		return r.Kills == 4 && r.Hot > 0 && r.Cold > 0
	})
}

func TestDemoIsLaidOutForPeopleAndCleansUp(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var stdout, stderr bytes.Buffer
	env := map[string]string{"ORDERS": "40", "KILLS": "2"}
	inTime(t, func() bool {
		stdout.Reset()
		code := run(t.Context(), []string{patience}, func(k string) string { return env[k] }, &stdout, &stderr)
		if code != exitBalanced {
			t.Fatalf("exit code %d: %s%s", code, stdout.String(), stderr.String())
		}
		return strings.Count(stdout.String(), "killed -9") == 2
	})
	out := stdout.String()
	for _, row := range []string{
		"committed 40", "delivered 40", "lost 0", "ghosts 0", "out of order 0", "duplicates",
		"kills 2", "The ledger balances",
	} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), row) {
			t.Errorf("%q is not shown", row)
		}
	}
	if strings.ContainsAny(out, "\r\x1b") {
		t.Error("control characters although it is not a terminal")
	}
	if stderr.Len() > 0 {
		t.Errorf("standard error: %s", stderr.String())
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, err %v", left, err)
	}
	if t.Failed() {
		t.Log(out)
	}
}

func TestDemoNoticesARemovedRow(t *testing.T) {
	t.Parallel()
	for table, want := range map[string]result{
		"outbox": {Committed: 60, Delivered: 59, Lost: 1},
		"ledger": {Committed: 60, Delivered: 59, Lost: 1},
		"orders": {Committed: 59, Delivered: 59, Ghosts: 1},
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			code, r := runJSON(t, "-orders=60", "-kills=3", "-tamper="+table)
			if code != exitFailed || r.OK || r.Balanced || len(r.Problems) == 0 {
				t.Errorf("exit code %d, want %d and a problem", code, exitFailed)
			}
			if r.Committed != want.Committed || r.Delivered != want.Delivered || r.Lost != want.Lost ||
				r.Ghosts != want.Ghosts {
				t.Errorf("%+v, want %+v", r, want)
			}
			if _, err := os.Stat(filepath.Join(r.Files, ordersFile)); err != nil {
				t.Errorf("the files were not kept: %v", err)
			}
		})
	}
}

func TestDemoGivesUpInTime(t *testing.T) {
	t.Parallel()
	code, r := runJSON(t, "-orders=1000", "-timeout=100ms")
	if code != exitFailed || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "not finished after 100ms") {
		t.Errorf("exit code %d, problems %q", code, r.Problems)
	}
}

func TestDemoTellsWhyTheShopFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ordersFile), []byte("this is not a database, as its first bytes say"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s, err := newSupervisor(dir, options{orders: 10, seed: 1}, &screen{out: &bytes.Buffer{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.run(t.Context()); err == nil || !strings.Contains(err.Error(), "not a database") {
		t.Errorf("err = %v, want the reason", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"no orders":           {args: []string{"-orders=0"}, want: "0 orders"},
		"negative kills":      {args: []string{"-kills=-1"}, want: "-1 kills"},
		"more kills":          {args: []string{"-orders=3", "-kills=4"}, want: "4 kills"},
		"negative timeout":    {args: []string{"-timeout=-1s"}, want: "timeout"},
		"unknown table":       {args: []string{"-tamper=users"}, want: `"users"`},
		"no kill to tamper":   {args: []string{"-tamper=outbox", "-kills=0"}, want: "at least once"},
		"argument":            {args: []string{"now"}, want: `"now"`},
		"unknown flag":        {args: []string{"-fast"}, want: "-fast"},
		"environment":         {env: map[string]string{"ORDERS": "many"}, want: `ORDERS="many"`},
		"environment, others": {env: map[string]string{"KILLS": "x"}, want: `KILLS="x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), tc.args, func(k string) string { return tc.env[k] }, &stdout, &stderr)
			if code != exitUsage || !strings.Contains(stderr.String(), tc.want) || stdout.Len() > 0 {
				t.Errorf("exit code %d, standard error %q, output %q; want %d and %q", code, stderr.String(),
					stdout.String(), exitUsage, tc.want)
			}
		})
	}
}
