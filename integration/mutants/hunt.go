package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// verdict is the result of trying a mutant.
type verdict string

// Only the first verdict is a success.
const (
	caught     verdict = "caught"
	survived   verdict = "survived"            // a test that has to fail passed
	stale      verdict = "does not apply"      // the code has changed
	broken     verdict = "does not compile"    // so it proves nothing
	badSQL     verdict = "statement refused"   // the database takes it for no SQL, so it proves nothing
	noSuchTest verdict = "no such test"        // the test does not exist, or was skipped
	redTest    verdict = "test is red"         // the test fails without the mutant, too
	endless    verdict = "did not end in time" // the tests hang instead of failing
	crashed    verdict = "tests crashed"       // the tests crash instead of failing
)

// result is the verdict on one mutant, and the reason.
type result struct {
	*mutant
	verdict verdict
	detail  string // one line: the message of the first test, or the problem
	output  string // output of the tools, when the mutant was not caught
	took    time.Duration
}

// baseline is a run of the tests of one package without a mutant.
type baseline struct {
	pkg   string
	tests int
	red   int
	took  time.Duration
}

// hunter tries mutants.
type hunter struct {
	options
	mutants []mutant
	out     reporter
	work    string // a folder for built programs

	mu       sync.Mutex
	problems map[test]problem // problems of tests without a mutant
}

// problem is the reason why a test can prove nothing.
type problem struct {
	verdict verdict
	detail  string
	output  string
}

// hunt tries the mutants and returns how many were not caught. It returns an error if it could not
// go on.
func hunt(ctx context.Context, opts options, mutants []mutant, out reporter) (missed int, err error) {
	work, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	since := time.Now()
	h := &hunter{options: opts, mutants: mutants, out: out, work: work, problems: map[test]problem{}}
	all := packages(mutants)
	out.begin(len(mutants), len(all), opts.parallel)

	baselines := atOnce(opts.parallel, len(all), func(i int) (baseline, error) { return h.baseline(ctx, all[i]) })
	for b := range baselines {
		if b.err != nil {
			err = errors.Join(err, b.err)
			continue
		}
		out.baseline(b.value)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return 0, err
	}

	tried := 0
	for r := range atOnce(opts.parallel, len(mutants), func(i int) (result, error) { return h.try(ctx, &mutants[i]) }) {
		if r.err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", r.value.name, r.err))
			continue
		}
		tried++
		if r.value.verdict != caught {
			missed++
		}
		out.result(r.value, tried, len(mutants), time.Since(since))
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return missed, err
	}
	out.end(len(mutants), missed, time.Since(since))
	return missed, nil
}

// done is the result of a piece of work.
type done[T any] struct {
	value T
	err   error
}

// atOnce does n pieces of work, some of them at a time, and returns the result of each as it ends.
func atOnce[T any](workers, n int, do func(i int) (T, error)) <-chan done[T] {
	next, results := make(chan int), make(chan done[T])
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				value, err := do(i)
				results <- done[T]{value, err}
			}
		})
	}
	go func() {
		for i := range n {
			next <- i
		}
		close(next)
		wg.Wait()
		close(results)
	}()
	return results
}

// patience is how much longer than the tests of one mutant the tests of a package may run without a
// mutant. Without a mutant all of them run to their end, while tests of other packages are
// compiled.
const patience = 5

// baseline runs the named tests of a package on the unchanged code.
func (h *hunter) baseline(ctx context.Context, pkg string) (baseline, error) {
	since := time.Now()
	names := testsOf(h.mutants, pkg)
	o, err := h.buildAndTry(ctx, pkg, names, nil, patience*h.limit)
	if err != nil {
		return baseline{}, fmt.Errorf("the tests of %s without a mutant: %w", pkg, err)
	}
	b := baseline{pkg: pkg, tests: len(names), took: time.Since(since)}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		p := problem{output: o.output}
		switch {
		case o.passed[name]:
			continue
		case o.failed[name]:
			p.verdict, p.detail = redTest, name+" fails without the mutant, too: "+o.message(name)
		case o.late:
			p.verdict = redTest
			p.detail = fmt.Sprintf("%s did not end in %s without the mutant", name, patience*h.limit)
		default:
			p.verdict, p.detail = noSuchTest, name+" did not run in "+pkg
			if above := o.failedAbove(name); above != "" {
				p.verdict, p.detail = redTest, above+" fails without the mutant, too: "+o.message(above)
			}
		}
		b.red++
		h.problems[test{pkg: pkg, name: name}] = p
	}
	return b, nil
}

// try tries one mutant.
func (h *hunter) try(ctx context.Context, m *mutant) (result, error) {
	since := time.Now()
	r, err := h.judge(ctx, m)
	r.mutant, r.took = m, time.Since(since)
	if r.verdict == caught {
		r.output = ""
	}
	return r, err
}

func (h *hunter) judge(ctx context.Context, m *mutant) (result, error) {
	changed, err := m.apply(h.root)
	if err != nil {
		return result{verdict: stale, detail: err.Error()}, nil //nolint:nilerr // the error is the result
	}
	byPackage := map[string][]string{}
	for _, t := range m.tests {
		if p, ok := h.problems[t]; ok {
			return result{verdict: p.verdict, detail: p.detail, output: p.output}, nil
		}
		byPackage[t.pkg] = append(byPackage[t.pkg], t.name)
	}
	detail := ""
	for _, t := range m.tests {
		names := byPackage[t.pkg]
		if names == nil {
			continue // this test was tried with the first test of its package
		}
		delete(byPackage, t.pkg)
		o, err := h.buildAndTry(ctx, t.pkg, names, changed, h.limit)
		switch {
		case errors.Is(err, errBuild):
			return result{verdict: broken, detail: "the mutant does not compile", output: err.Error()}, nil
		case err != nil:
			return result{}, err
		}
		if r := h.verdictOf(o, names); r.verdict != caught {
			return r, nil
		} else if detail == "" {
			detail = r.detail
		}
	}
	return result{verdict: caught, detail: detail}, nil
}

// verdictOf judges a run of tests that have to fail.
func (h *hunter) verdictOf(o outcome, names []string) result {
	r := result{output: o.output}
	if said := refused.FindString(o.output); said != "" {
		r.verdict, r.detail = badSQL, fmt.Sprintf("the database did not run the statement: %q", said)
		return r
	}
	for _, name := range names {
		switch {
		case o.failed[name]:
			if r.detail == "" {
				r.detail = name + ": " + o.message(name)
			}
			continue
		case o.late:
			r.verdict, r.detail = endless, fmt.Sprintf("%s did not end in %s", name, h.limit)
		case o.passed[name]:
			r.verdict, r.detail = survived, name+" passes"
		default:
			r.verdict, r.detail = crashed, name+" neither failed nor passed"
		}
		return r
	}
	r.verdict = caught
	return r
}

// buildAndTry compiles the tests of a package with the changed texts and runs the tests named.
func (h *hunter) buildAndTry(
	ctx context.Context, pkg string, names []string, changed map[string]string, limit time.Duration,
) (outcome, error) {
	dir, err := os.MkdirTemp(h.work, "")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(dir) // a test program has some 30 MB
	program, err := build(ctx, h.root, dir, pkg, changed)
	if err != nil {
		return outcome{}, errors.Join(ctx.Err(), err)
	}
	o, err := try(ctx, h.root, program, pkg, names, limit)
	return o, errors.Join(ctx.Err(), err)
}
