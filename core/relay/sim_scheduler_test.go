package relay_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// scheduler holds the token of a simulation. A call that touches the world (the table, the
// destination, a transaction) parks here. Once every goroutine is blocked, the scheduler lets
// exactly one call go on, chosen by the seed among the parked calls sorted by name. A bubble of
// synctest alone does not do that: there, goroutines that wake at the same instant run in any
// order.
type scheduler struct {
	rng   *rand.Rand
	start time.Time

	mu      sync.Mutex
	parked  []*call
	arrived chan struct{} // something was parked

	steps   atomic.Uint64
	hash    uint64
	history []moment
}

// call is one step that waits for the token. None of its fields depends on when it arrived.
type call struct {
	name    string
	kind    callKind
	inc     *incarnation
	ctx     context.Context // the context of the call
	resume  chan verdict
	topic   string
	fact    *fact                           // the row of a publish
	judged  bool                            // a publish whose context has ended: it was decided whether it hangs
	late    func(receipt string, err error) // a publish: tells the relay how it ended after it had given up
	hangs   time.Time                       // the time until which the call ignores the end of its context
	outcome uint64                          // the result of the effect, for the history
}

type callKind uint8

const (
	callThink   callKind = iota // a producer, between two statements
	callCommit                  // a producer, before COMMIT
	callDB                      // a statement, before its effect
	callInsert                  // a statement in the transaction of a producer
	callPublish                 // a publish, before the destination sees it
	callAnswer                  // any call, between its effect and its answer
	callStep                    // a claim, before its second statement and those after it
	callHear                    // a producer, between the commit and its answer
)

// verdict is how a call goes on.
type verdict uint8

const (
	goOn        verdict = iota
	slow                // has its effect, and parks again before the answer
	noEffect            // returns an error and has no effect
	answerLost          // returns an error and has its effect
	timedOut            // a publish: given up, and the destination never had it
	late                // a publish: given up, and the destination accepts it later
	refuse              // a publish: refused
	forbid              // a publish: refused as permanent
	unavailable         // a publish: the destination is down
	keyless             // a publish: the destination is down for the key of the event
	heldBack            // a publish: the destination is down, and says for how long
	cutOff              // a commit: the connection broke before COMMIT
	locked              // a mark: another transaction holds some of the rows
	died                // the process is dead; its last call had no effect
	diedAfter           // the process is dead, but COMMIT had arrived
)

var verdictNames = [...]string{
	"", "slow", "no effect", "answer lost", "timed out", "late", "refused", "forbidden", "unavailable",
	"key unavailable", "held back", "cut off", "locked", "died", "died after",
}

// moment is an entry of the history.
type moment struct {
	at      time.Duration
	what    string
	verdict verdict
	outcome uint64
	parked  uint64 // hash of the calls that wait at this moment
}

func (m moment) String() string {
	s := fmt.Sprintf("%12s  %s", m.at, m.what)
	if m.verdict != goOn {
		s += "  -> " + verdictNames[m.verdict]
	}
	return s
}

func newScheduler(seed uint64) *scheduler {
	return &scheduler{
		rng: rand.New(rand.NewPCG(seed, 0x6f7574626f78)), start: time.Now(),
		arrived: make(chan struct{}, 1),
	}
}

// park waits for the token. A call of a dead process does not go on.
func (s *scheduler) park(c *call) verdict {
	c.resume = make(chan verdict)
	s.mu.Lock()
	if c.inc.dead.Load() {
		s.mu.Unlock()
		return died
	}
	s.parked = append(s.parked, c)
	s.mu.Unlock()
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	return <-c.resume
}

// waiting returns the parked calls that keep accepts, sorted by name.
func (s *scheduler) waiting(keep func(*call) bool) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []*call
	for _, c := range s.parked {
		if keep == nil || keep(c) {
			calls = append(calls, c)
		}
	}
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.name, b.name) })
	return calls
}

// release lets a call go on and returns when all goroutines are blocked again. Calls with equal
// names go on together.
func (s *scheduler) release(c *call, v verdict) {
	var twins []*call
	s.mu.Lock()
	s.parked = slices.DeleteFunc(s.parked, func(o *call) bool {
		twin := o.name == c.name
		if twin {
			twins = append(twins, o)
		}
		return twin
	})
	s.mu.Unlock()
	s.steps.Add(1)
	for _, t := range twins {
		t.resume <- v
	}
	synctest.Wait()
	var outcome uint64
	for _, t := range twins {
		outcome += t.outcome
	}
	s.record(moment{what: c.name, verdict: v, outcome: outcome})
}

// pass lets time pass: at most d. If early is set, it returns as soon as a call parks.
func (s *scheduler) pass(d time.Duration, early bool) {
	s.steps.Add(1)
	select {
	case <-s.arrived:
	default:
	}
	if early {
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-s.arrived:
		}
		timer.Stop()
	} else {
		time.Sleep(d)
	}
	synctest.Wait()
	s.record(moment{what: "time passes"})
}

// note records an action of the scheduler itself.
func (s *scheduler) note(what string) {
	synctest.Wait()
	s.steps.Add(1)
	s.record(moment{what: what})
}

func (s *scheduler) record(m moment) {
	m.at = time.Since(s.start)
	s.mu.Lock()
	for _, c := range s.parked {
		m.parked += digest(c.name)
	}
	s.mu.Unlock()
	s.hash = digest(s.hash, m.at, m.what, m.verdict, m.outcome, m.parked)
	s.history = append(s.history, m)
}

// lines formats a part of a history.
func lines(history []moment) string {
	var b strings.Builder
	for _, m := range history {
		fmt.Fprintln(&b, m)
	}
	return b.String()
}

func (s *scheduler) chance(p float64) bool { return p > 0 && s.rng.Float64() < p }

func pickOne[T any](s *scheduler, of []T) T { return of[s.rng.IntN(len(of))] }
