package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mode says what stands between a suite and its database: see suites/told.go.txt.
type mode string

const (
	plain    mode = "plain"
	nothing  mode = "nothing"   // an OnAll function that returns nothing
	events   mode = "events"    // one that returns one event for each row
	tracking mode = "sqltx"     // sqltx.Connector
	native   mode = "pgxoutbox" // pgxoutbox.Connector
)

// outcome is the result of a run of a suite.
type outcome struct {
	verdicts map[string]string // PASS, FAIL or SKIP by the name of a test
	told     int               // calls of the OnAll function, or pools that were opened with a connector
	log      string            // the file with the output
	ended    error             // how the program ended if not by itself
}

func (o outcome) passed() int {
	n := 0
	for _, verdict := range o.verdicts {
		if verdict == "PASS" {
			n++
		}
	}
	return n
}

// run runs the program of a suite once, on a new database.
func (s *session) run(ctx context.Context, m mode, attempt int) (o outcome, err error) {
	dir, err := os.MkdirTemp("", "peers-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir)
	d := s.pair.database
	dsn, drop, err := d.create(ctx)
	if err != nil {
		return outcome{}, err
	}
	defer func() { err = errors.Join(err, drop()) }()

	args := []string{"-test.v=test2json", "-test.timeout=" + s.limit.String()}
	if d.run != "" {
		args = append(args, "-test.run="+d.run)
	}
	if skip := s.pair.suite.skip; skip != "" {
		args = append(args, "-test.skip="+skip)
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit+10*time.Second) // the program ends itself before
	defer cancel()
	cmd := exec.CommandContext(ctx, s.program, args...)
	cmd.Dir, cmd.WaitDelay = filepath.Dir(s.program), 5*time.Second
	calls := filepath.Join(dir, "calls")
	cmd.Env = append(os.Environ(), "PEERS_MODE="+string(m), "PEERS_CALLS="+calls)
	cmd.Env = append(cmd.Env, d.env(dsn, dir)...)
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		return outcome{}, err
	}
	o.verdicts = verdicts(out)
	only := regexp.MustCompile(d.only)
	maps.DeleteFunc(o.verdicts, func(test, _ string) bool { return !only.MatchString(test) })
	if panicked.Match(out) || ctx.Err() != nil {
		o.ended = errors.New("it did not run to its end")
	}
	told, err := os.ReadFile(calls)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return outcome{}, err
	}
	o.told = len(told)
	name := fmt.Sprintf("%s-%s-%s-%d.log", strings.ToLower(s.pair.suite.name), d.name, m, attempt)
	o.log = filepath.Join(s.logs, name)
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return outcome{}, err
	}
	if err := os.WriteFile(o.log, bytes.ReplaceAll(out, []byte{mark}, nil), 0o644); err != nil {
		return outcome{}, err
	}
	if o.passed() == 0 {
		return outcome{}, fmt.Errorf("no test of the %s run passed: see %s", m, o.log)
	}
	return o, nil
}

// mark stands before what the testing package itself prints, if go test -json asked for it. So a
// verdict is found behind a line that a test did not end.
const mark = 0x16

var (
	verdict  = regexp.MustCompile(`\x16 *--- (PASS|FAIL|SKIP): (\S+) \(`)
	panicked = regexp.MustCompile(`(?m)^panic: |^fatal error: |^exit status `)
)

// verdicts finds the result of each test and subtest in the output of a run.
func verdicts(output []byte) map[string]string {
	found := map[string]string{}
	for _, m := range verdict.FindAllSubmatch(output, -1) {
		found[string(m[2])] = string(m[1])
	}
	return found
}
