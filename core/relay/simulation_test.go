package relay_test

import (
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

var (
	simSeed  = flag.Int64("sim.seed", -1, "run only the schedule of this seed, and show it")
	simCount = flag.Uint64("sim.count", 10_000, "schedules that TestSimulation runs; with -short at most 300")
	simFirst = flag.Uint64("sim.first", 0, "seed of the first of them")
)

// TestSimulation runs the relays of several processes on one table through thousands of schedules.
// A schedule says which call goes on, which call fails and how, which process crashes or stops, and
// how time passes. Everything is drawn from the seed of the schedule, so a failure can be run
// again.
func TestSimulation(t *testing.T) {
	if *simSeed >= 0 {
		synctest.Test(t, func(t *testing.T) {
			r := simulate(uint64(*simSeed))
			t.Logf("\n%s", lines(r.moments))
			if r.err != nil {
				t.Fatalf("seed %d: %v", *simSeed, r.err)
			}
		})
		return
	}
	count := *simCount
	if testing.Short() {
		count = min(count, 300)
	}
	var next, done, steps atomic.Uint64
	var failed atomic.Bool
	start := time.Now()
	t.Run("schedules", func(t *testing.T) {
		for part := range 2 * runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(part), func(t *testing.T) {
				t.Parallel()
				for !failed.Load() {
					n := next.Add(1) - 1
					if n >= count {
						return
					}
					seed := *simFirst + n
					synctest.Test(t, func(t *testing.T) {
						r := simulate(seed)
						steps.Add(r.steps)
						if r.err != nil && failed.CompareAndSwap(false, true) {
							t.Errorf("seed %d, schedule %d: %v\n%s\nall of it: go test ./core/relay -run "+
								"'TestSimulation$' -v -sim.seed=%d",
								seed, n+1, r.err, lines(r.moments[max(0, len(r.moments)-60):]), seed)
						}
					})
					done.Add(1)
				}
			})
		}
	})
	if !failed.Load() && done.Load() != count {
		t.Errorf("%d of %d schedules were run", done.Load(), count)
	}
	d := time.Since(start)
	t.Logf("count: %d schedules", done.Load())
	t.Logf("%d schedules of %d steps on average, %.0f schedules/s", done.Load(), steps.Load()/max(done.Load(), 1),
		float64(done.Load())/d.Seconds())
}

// The same seed gives the same history, for any number of processors. Otherwise no failure could be
// run again.
func TestSimulationReplays(t *testing.T) {
	run := func(seed uint64) (r simResult) {
		synctest.Test(t, func(t *testing.T) { r = simulate(seed) })
		return r
	}
	seeds := 100
	if testing.Short() {
		seeds = 30
	}
	hashes := map[uint64]bool{}
	for seed := range uint64(seeds) {
		first, second := run(seed), run(seed)
		if first.hash != second.hash {
			t.Errorf("seed %d has two histories:\n%s", seed, parting(first.moments, second.moments))
		}
		hashes[first.hash] = true
	}
	if len(hashes) != seeds {
		t.Errorf("%d histories of %d seeds", len(hashes), seeds)
	}
}

// parting shows the first difference between two histories.
func parting(a, b []moment) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	show := func(m []moment) string { return lines(m[max(0, min(n-10, len(m))):min(n+5, len(m))]) }
	return fmt.Sprintf("one goes\n%s\nthe other\n%s", show(a), show(b))
}

type simResult struct {
	err     error
	hash    uint64
	steps   uint64
	moments []moment
}

// simulation is one schedule.
type simulation struct {
	*scheduler
	seed      uint64
	profile   profile
	repo      *outboxtest.Repository
	truth     *truth
	processes []*process
	ghosts    []*incarnation // crashed incarnations with goroutines that still run
	calm      bool           // no more faults
	spent     int
	outage    map[string]uint64 // the step until which a topic is down
	operator  operator
	pending   []*call // copies that the destination accepts later
}

// Bounds on a schedule. A schedule that does not come to rest within them is stuck.
const (
	maxSimSteps = 20_000
	maxSimTime  = 2 * time.Hour
)

var errStuck = errors.New("I1: the schedule does not come to rest")

func simulate(seed uint64) simResult {
	sim := &simulation{
		scheduler: newScheduler(seed), seed: seed, outage: map[string]uint64{},
		operator: operator{rates: map[string]core.Rate{}, pauses: map[string]core.Pause{}},
		repo:     outboxtest.NewRepository(),
	}
	sim.profile = drawProfile(sim.scheduler, seed)
	sim.truth = newTruth(sim.repo, sim.profile.config.DeadPolicy, &sim.operator)
	sim.drawPlans()
	err := sim.run()
	sim.end()
	return simResult{err: err, hash: sim.hash, steps: sim.steps.Load(), moments: sim.history}
}

func (s *simulation) run() error {
	for _, p := range s.processes {
		p.boot()
		s.pass(time.Duration(1+s.rng.IntN(50_000_000)), false) // so that timers of two processes differ
	}
	for {
		synctest.Wait()
		if err := s.truth.failure(); err != nil {
			return err
		}
		if s.steps.Load() > maxSimSteps || time.Since(s.start) > maxSimTime {
			return fmt.Errorf("%w: %s", errStuck, s.truth.unfinished())
		}
		if !s.calm && s.chaosOver() {
			s.becalm()
		}
		if s.calm && len(s.waiting(nil)) == 0 {
			s.judgeLiveness()
		}
		if s.calm && s.atRest() {
			s.truth.judgeEnd(s.profile.faultless)
			return s.truth.failure()
		}
		if n := len(s.pending); n > 0 && s.chance(0.1) {
			s.acceptLate(s.rng.IntN(n))
			continue
		}
		if s.recover() || !s.calm && s.disturb() {
			continue
		}
		s.proceed()
	}
}

// chaosOver reports whether the faults end. They end some time after the last producer has done its
// work.
func (s *simulation) chaosOver() bool {
	return s.steps.Load() > uint64(s.profile.chaos) && (s.producersDone() || s.steps.Load() > maxSimSteps/4)
}

func (s *simulation) producersDone() bool {
	s.truth.mu.Lock()
	defer s.truth.mu.Unlock()
	for _, p := range s.processes {
		if p.inc == nil || p.inc.working > 0 {
			return false
		}
	}
	return true
}

// becalm ends all faults. From here on everything must come to rest by itself.
func (s *simulation) becalm() {
	s.calm = true
	clear(s.outage)
	s.operator.end()
	for _, p := range s.processes {
		p.pausedTo, p.cutTo = 0, 0
	}
	s.note("the trouble is over")
}

func (s *simulation) atRest() bool {
	if len(s.pending) > 0 || !s.producersDone() || len(s.waiting(nil)) > 0 || !s.truth.resting() {
		return false
	}
	for _, p := range s.processes {
		if p.inc == nil || p.inc.stopAsked || relay.Held(p.inc.ob) > 0 {
			return false
		}
	}
	return true
}

// simLate is how late a relay may be that has work to do. It covers a pause after an error of the
// database, and some jitter.
const simLate = 3 * time.Second

// judgeLiveness checks that work is done in time, now that no faults are left.
func (s *simulation) judgeLiveness() {
	for _, p := range s.processes {
		if p.inc == nil || p.inc.stopAsked {
			return // the process is down, or does not relay
		}
		topic, late := relay.LateProbe(p.inc.ob)
		switch {
		case late <= 0:
			p.inc.lateSince = time.Time{}
		case p.inc.lateSince.IsZero(): // the probe may have been under way until now
			p.inc.lateSince = time.Now()
		case time.Since(p.inc.lateSince) > simLate:
			s.truth.mu.Lock()
			s.truth.wrong("I9", "%s has not tried %s, which has been due for %s", p.inc.name(), topic, late)
			s.truth.mu.Unlock()
		}
	}
	s.truth.judgeLiveness(s.profile.relay().MaxPollInterval*5/4 + simLate)
}

// end stops everything, so that no goroutine is left running.
func (s *simulation) end() {
	s.calm = true
	failed := s.truth.failure() != nil
	for _, p := range s.processes {
		if p.inc == nil {
			continue
		}
		if failed || s.steps.Load() > maxSimSteps {
			p.kill()
			continue
		}
		s.ghosts = append(s.ghosts, p.inc)
		p.inc.stop()
		s.note(p.inc.name() + " ends")
	}
	for _, g := range s.ghosts {
		for !g.gone() {
			if calls := s.waiting(nil); len(calls) > 0 {
				s.release(calls[0], goOn)
			} else {
				s.pass(time.Minute, true)
			}
		}
	}
}

// gone reports whether Run has returned.
func (i *incarnation) gone() bool {
	if !i.ended {
		select {
		case err := <-i.stopped:
			i.ended = true
			if err != nil && !i.dead.Load() && !errors.Is(err, core.ErrShutdownTimeout) {
				panic(err)
			}
		default:
		}
	}
	return i.ended
}
