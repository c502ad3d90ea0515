package relay_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// operator is a person who limits and pauses topics, and pauses a tenant. Relays ask for both while
// the schedule goes on.
type operator struct {
	mu     sync.Mutex
	rates  map[string]core.Rate
	pauses map[string]core.Pause // by the target of the pause
	plans  int                   // replays so far
	edits  int                   // so far
}

// limit changes or ends the rate of a topic. It returns a text that says what it did.
func (o *operator) limit(s *scheduler) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	topic := pickOne(s, []string{"a", "b"})
	r := core.Rate{Topic: topic}
	if s.chance(0.7) {
		r.PerSecond = []float64{0, 0.8, 5, 30}[s.rng.IntN(4)]
		r.InFlight = s.rng.IntN(3)
	}
	delete(o.rates, topic)
	if r.PerSecond > 0 || r.InFlight > 0 {
		o.rates[topic] = r
	}
	return fmt.Sprintf("%s gets %v a second and %d in flight", topic, r.PerSecond, r.InFlight)
}

// pause pauses a topic or the tenant, with or without an end, or ends a pause. It returns a text
// that says what it did.
func (o *operator) pause(s *scheduler) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	what := pickOne(s, []string{"a", "b", "tenant", "all"})
	if _, ok := o.pauses[what]; ok && s.chance(0.7) {
		delete(o.pauses, what)
		return what + " is resumed"
	}
	p := core.Pause{Since: time.Now()}
	switch what {
	case "all":
		p.All = true
	case "tenant":
		p.Tenant = simTenant
	default:
		p.Topic = what
	}
	if s.chance(0.5) {
		p.Until = time.Now().Add(time.Duration(1+s.rng.IntN(10_000)) * time.Millisecond)
	}
	o.pauses[what] = p
	return fmt.Sprintf("%s is paused for %s", what, time.Until(p.Until))
}

// replay publishes some done rows again, each once, as a plan does.
func (s *simulation) replay() bool {
	p := ops.StoredPlan{ID: fmt.Sprint("plan", s.operator.plans), Plan: ops.Plan{Action: ops.ActionReplay}}
	for _, row := range s.repo.Rows() {
		if row.Status == outboxtest.StatusDone && row.ReplayOf.IsZero() && s.chance(0.5) {
			p.IDs = append(p.IDs, row.ID)
		}
	}
	if len(p.IDs) == 0 {
		return false
	}
	s.operator.plans++
	if err := s.repo.InsertPlan(context.Background(), p, "plan", time.Hour); err != nil {
		panic(err)
	}
	p.Version = 1
	_, _, err := s.repo.ChangePlan(context.Background(), ops.PlanChange{Plan: p, IDs: p.IDs})
	if err != nil {
		panic(err)
	}
	what := "replay of"
	for _, id := range p.IDs {
		s.truth.replayed(id, p.ReplayID(id), p.ID)
		what += " " + s.truth.name(id)
	}
	s.note(what)
	return true
}

// replayed registers the row that replays another one. It is a row of its own, in a lane of its
// own.
func (t *truth) replayed(of, id core.RowID, plan string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	row, exists := t.repo.Row(id)
	if !exists {
		t.wrong("I1", "the replay of %s is missing", t.name(of))
		return
	}
	was := t.facts[of]
	t.add(&fact{
		name: was.name + " of " + plan, id: id, lane: row.KeyID, seq: row.KeySeq, committed: true,
		topic: was.topic, tenant: was.tenant,
	})
	if !was.lane.IsZero() && row.KeyID == was.lane {
		t.wrong("I4", "the replay of %s is in the lane of live events", was.name)
	}
}

// edit gives a dead row another content, in a new row. Under SkipDead an ordered row would be
// appended, with a number that the schedule does not expect.
func (s *simulation) edit() bool {
	rows := slices.DeleteFunc(s.repo.Rows(), func(r outboxtest.Row) bool {
		return r.Status != outboxtest.StatusDead || s.truth.policy == core.SkipDead && !r.KeyID.IsZero()
	})
	if len(rows) == 0 {
		return false
	}
	old := pickOne(s.scheduler, rows)
	s.operator.edits++
	id := old.ID
	binary.BigEndian.PutUint32(id[12:], uint32(s.operator.edits)) // no random id: the schedule is repeated
	// Another transaction may hold the row of the key. The schedule cannot wait for it.
	ctx, cancel := context.WithTimeout(context.Background(), time.Nanosecond)
	defer cancel()
	_, _, err := s.repo.EditEvent(ctx, ops.Edit{NewID: id, EditRequest: ops.EditRequest{
		ID:      old.ID,
		Headers: map[string]string{"edit": fmt.Sprint(s.operator.edits)},
		Actor:   "somebody",
		Reason:  "because",
	}})
	if err == nil {
		s.truth.edited(old.ID, id)
	}
	s.note(fmt.Sprintf("edit of %s: %v", s.truth.name(old.ID), err))
	return true
}

// edited registers the row that took the place of a dead one.
func (t *truth) edited(of, id core.RowID) {
	t.administrated(of, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	row, exists := t.repo.Row(id)
	if !exists {
		t.wrong("I1", "the edited row of %s is missing", t.name(of))
		return
	}
	was := t.facts[of]
	if row.KeyID != was.lane || row.KeySeq != was.seq {
		t.wrong("I4", "the edited row of %s has not its place", was.name)
	}
	t.add(&fact{
		name: was.name + " edited", id: id, lane: was.lane, seq: was.seq, committed: true, topic: was.topic,
		tenant: was.tenant, editOf: was,
	})
}

// simTenant is the tenant of some events.
const simTenant = "t"

// end ends all rates and pauses.
func (o *operator) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.rates)
	clear(o.pauses)
}

func (r *simRepository) SetRate(context.Context, core.RateRequest) error { panic("not called") }

// Settings is no step of the schedule, because only the relay's use of the answer matters, but after
// a failure: its success ends the pauses of the relay's other goroutines, and one of them may fail at
// the same moment.
func (r *simRepository) Settings(ctx context.Context) (set core.Settings, err error) {
	if !r.sim.away(r.inc) && r.inc.settingsLost.Swap(false) {
		again := r.sim.park(&call{name: r.inc.name() + " Settings", kind: callThink, inc: r.inc, ctx: ctx})
		if again != goOn {
			return set, errLost
		}
	}
	if r.sim.away(r.inc) {
		r.inc.settingsLost.Store(true)
		return set, errLost
	}
	set.Pauses, set.Rates = r.sim.operator.held(), r.sim.operator.limits()
	r.sim.truth.told(r.inc, set.Pauses)
	return set, nil
}

// limits returns the rates in ascending order of their topics.
func (o *operator) limits() (all []core.Rate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, topic := range slices.Sorted(maps.Keys(o.rates)) {
		all = append(all, o.rates[topic])
	}
	return all
}

// held returns the pauses that hold now.
func (o *operator) held() (all []core.Pause) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(o.pauses)) {
		p := o.pauses[what]
		if !p.Until.IsZero() {
			if p.Left = time.Until(p.Until); p.Left <= 0 {
				continue
			}
		}
		all = append(all, p)
	}
	return all
}

func (r *simRepository) Pause(context.Context, core.PauseRequest) error { panic("not called") }

func (r *simRepository) Resume(context.Context, core.ResumeRequest) (bool, error) {
	panic("not called")
}

// instructions are the pauses of which a relay was told.
type instructions []instruction

// instruction is a pause of which a relay was told, and when it was told so first.
type instruction struct {
	core.Pause
	told time.Time
}

// told notes the pauses of which a relay is told.
func (t *truth) told(inc *incarnation, all []core.Pause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var now instructions
	for _, p := range all {
		now = append(now, instruction{p, time.Now()})
		for _, known := range inc.orders {
			if known.All == p.All && known.Topic == p.Topic && known.Tenant == p.Tenant {
				now[len(now)-1].told = known.told
			}
		}
	}
	inc.orders = now
}

// asked is when the latest claim was decided on. One claim may be several calls.
type asked struct {
	claimNo int64
	at      time.Time
}

// asks notes the call of a claim, and returns when the claim was decided on.
func (t *truth) asks(inc *incarnation, claimNo int64) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if inc.asked.claimNo != claimNo {
		inc.asked = asked{claimNo, time.Now()}
	}
	return inc.asked.at
}

// disobeys reports whether the relay knew at the given time that the events of f are paused. A
// relay that was told at that very moment may not have heard of it yet.
func (o instructions) disobeys(f *fact, at time.Time) bool {
	return slices.ContainsFunc(o, func(p instruction) bool { return p.Covers(f.topic, f.tenant) && p.told.Before(at) })
}

// missed returns a pause of the events of f that was there before a statement of the relay failed,
// which was before the given time: from then on the relay has to ask before it goes on.
func (t *truth) missed(inc *incarnation, f *fact, at time.Time) bool {
	return inc.failed.Before(at) && slices.ContainsFunc(t.operator.held(), func(p core.Pause) bool {
		return p.Covers(f.topic, f.tenant) && p.Since.Before(inc.failed)
	})
}

// failing notes that a statement of the relay has failed.
func (t *truth) failing(inc *incarnation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	inc.failed = time.Now()
}
