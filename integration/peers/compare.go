package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// session compares the runs of a suite on a database.
type session struct {
	pair     pair
	program  string
	limit    time.Duration
	logs     string
	progress io.Writer
}

// result is what a session found.
type result struct {
	pair      pair
	tests     int // of the plain run
	subtests  int
	plain     int // passed, subtests too
	with      map[mode]count
	differing []difference
	excepted  []difference
	unstable  []string // differed, but not each time
}

type count struct{ passed, told int }

// difference is a test that the plain suite passes and the suite with the outbox does not.
type difference struct {
	test    string
	modes   []mode
	verdict string // of the last run, "" if the test did not run
	log     string
	reason  string // of an exception
}

// attempts is how often a test must differ before it counts.
const attempts = 3

// compare runs the suite in each mode. What differs runs again, beside the plain suite.
func (s *session) compare(ctx context.Context) (result, error) {
	r := result{pair: s.pair, with: map[mode]count{}}
	first, err := s.once(ctx, plain, 1)
	if err != nil {
		return result{}, err
	}
	for test := range first.verdicts {
		if strings.Contains(test, "/") {
			r.subtests++
		} else {
			r.tests++
		}
	}
	r.plain = first.passed()
	found := map[string]*difference{}
	unstable := map[string]bool{}
	for _, m := range s.pair.suite.modes {
		reference := first
		var lost map[string]bool
		for attempt := 1; attempt <= attempts; attempt++ {
			if attempt > 1 {
				if reference, err = s.once(ctx, plain, attempt); err != nil {
					return result{}, err
				}
			}
			o, err := s.once(ctx, m, attempt)
			if err != nil {
				return result{}, err
			}
			if attempt == 1 {
				r.with[m] = count{o.passed(), o.told}
				if o.told == 0 {
					return result{}, fmt.Errorf("nothing of ours was called: see %s", o.log)
				}
			}
			now := differ(reference, o)
			for test := range lost {
				if !now[test] {
					unstable[test] = true
					delete(lost, test)
				}
			}
			if attempt == 1 {
				lost = now
			}
			if len(lost) == 0 {
				break
			}
			if attempt == attempts {
				for test := range lost {
					if found[test] == nil {
						found[test] = &difference{test: test}
					}
					d := found[test]
					d.modes, d.verdict, d.log = append(d.modes, m), o.verdicts[test], o.log
				}
			}
		}
	}
	for _, test := range slices.Sorted(maps.Keys(found)) {
		d := *found[test]
		if d.reason = s.pair.suite.excepted(test); d.reason != "" {
			r.excepted = append(r.excepted, d)
		} else {
			r.differing = append(r.differing, d)
		}
	}
	r.unstable = slices.Sorted(maps.Keys(unstable))
	return r, nil
}

// once runs the suite once and says so.
func (s *session) once(ctx context.Context, m mode, attempt int) (outcome, error) {
	since := time.Now()
	o, err := s.run(ctx, m, attempt)
	if err == nil {
		fmt.Fprintf(s.progress, "%s, %s: %d of %d tests passed, %d told (%.0f s)\n",
			s.pair, m, o.passed(), len(o.verdicts), o.told, time.Since(since).Seconds())
	}
	return o, err
}

// differ returns the tests that passed in the plain run and did not pass in the other one. If a
// subtest differs, its test is left out.
func differ(reference, o outcome) map[string]bool {
	found := map[string]bool{}
	for test, verdict := range reference.verdicts {
		if verdict == "PASS" && o.verdicts[test] != "PASS" {
			found[test] = true
		}
	}
	for test := range maps.Clone(found) {
		for at := strings.LastIndexByte(test, '/'); at >= 0; at = strings.LastIndexByte(test, '/') {
			test = test[:at]
			delete(found, test)
		}
	}
	return found
}
