package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// errBuild is wrapped when tests do not compile. The error has the output of the compiler.
var errBuild = errors.New("it does not compile")

// build compiles the tests of a package, with changed texts in place of the named files, and
// returns the program.
func build(ctx context.Context, root, dir, pkg string, changed map[string]string) (program string, err error) {
	program = filepath.Join(dir, "test.bin")
	// Our own packages are not optimized. A mutant compiles nearly all of them anew, and without
	// that it takes two thirds of the time.
	args := []string{"test", "-c", "-ldflags=-s -w", "-gcflags=" + ownPackages + "=-N -l", "-o", program}
	if len(changed) > 0 {
		overlay, err := writeOverlay(root, dir, changed)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errBuild, err, out)
	}
	return program, nil
}

const ownPackages = "github.com/ormoutbox/ormoutbox/..."

// writeOverlay writes the changed files into dir, and the list that go test -overlay reads.
func writeOverlay(root, dir string, changed map[string]string) (string, error) {
	var overlay struct{ Replace map[string]string }
	overlay.Replace = make(map[string]string, len(changed))
	for name, text := range changed {
		mutated := filepath.Join(dir, fmt.Sprintf("%d_%s", len(overlay.Replace), filepath.Base(name)))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(root, filepath.FromSlash(name))] = mutated
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, list, 0o600)
}

// outcome is the result of a run of tests.
type outcome struct {
	passed, failed map[string]bool
	messages       map[string]string // the first message of each test
	output         string
	late           bool // the tests were stopped after the limit
}

// try runs tests of a program that build made.
func try(ctx context.Context, root, program, pkg string, names []string, limit time.Duration) (outcome, error) {
	// The program stops itself after the limit and prints where it was. The context ends a program
	// that cannot do that.
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.v", "-test.run="+pattern(names), "-test.timeout="+limit.String())
	cmd.Dir = filepath.Join(root, filepath.FromSlash(pkg))
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() == nil && err != nil && !errors.As(err, new(*exec.ExitError)) {
		return outcome{}, err
	}
	o := parseOutput(string(out))
	o.late = ctx.Err() != nil || strings.Contains(o.output, "\npanic: test timed out after ")
	return o, nil
}

// pattern returns the expression of -test.run for exactly these tests.
func pattern(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		parts := strings.Split(name, "/")
		for j, part := range parts {
			parts[j] = "^" + regexp.QuoteMeta(part) + "$"
		}
		all[i] = strings.Join(parts, "/")
	}
	return strings.Join(all, "|")
}

var (
	verdictLine = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
	testLine    = regexp.MustCompile(`^=== (?:RUN|CONT|NAME) +(\S+)`)
	messageLine = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
)

// parseOutput reads what a test program prints with -test.v.
func parseOutput(output string) outcome {
	o := outcome{passed: map[string]bool{}, failed: map[string]bool{}, messages: map[string]string{}, output: output}
	current := ""
	for line := range strings.SplitSeq(output, "\n") {
		if m := verdictLine.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "PASS":
				o.passed[m[2]] = true
			case "FAIL":
				o.failed[m[2]] = true
			}
		} else if m := testLine.FindStringSubmatch(line); m != nil {
			current = m[1]
		} else if m := messageLine.FindStringSubmatch(line); m != nil && o.messages[current] == "" {
			o.messages[current] = m[1]
		}
	}
	return o
}

// message returns the first message of a failed test below this one, or of the test itself.
func (o outcome) message(name string) string {
	for _, failed := range slices.Sorted(maps.Keys(o.failed)) {
		if m := o.messages[failed]; m != "" && strings.HasPrefix(failed, name+"/") {
			return m
		}
	}
	return o.messages[name]
}

// failedAbove returns the nearest test above this one that failed, or "".
func (o outcome) failedAbove(name string) string {
	for at := strings.LastIndexByte(name, '/'); at >= 0; at = strings.LastIndexByte(name, '/') {
		if name = name[:at]; o.failed[name] {
			return name
		}
	}
	return ""
}

// refused finds the errors of databases about a statement that is no SQL, or has another number of
// parameters.
var refused = regexp.MustCompile(`SQLSTATE 42|SQLSTATE 08P01|Error (1064|1054|1052|1146|1210|1305)\b|` +
	`syntax error|no such (column|table|function)|` +
	`expected \d+ arguments|missing argument with index|not enough args`)
