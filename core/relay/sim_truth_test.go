package relay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// truth records what really happened in a simulation, and checks the invariants. No process can see
// it.
type truth struct {
	policy   core.DeadPolicy
	repo     *outboxtest.Repository
	operator *operator

	mu        sync.Mutex
	shift     time.Duration // how far the clock of the database was moved
	jumped    bool          // the clock jumped, so leases end at any time
	facts     map[core.RowID]*fact
	names     sync.Map // names of the facts, for callers that do not hold the mutex
	ordered   []*fact  // in the order of their names
	violation error

	answers int            // the number of answers of destinations
	acked   map[string]int // by topic: the number of the last answer that was an acknowledgement
	asked   time.Time      // the time of the last claim
	idle    time.Time      // since when a row could be claimed and no process claimed
}

// fact is the truth about one row.
type fact struct {
	name string
	id   core.RowID
	lane core.KeyID
	seq  int64

	committed bool
	copies    int  // how many times the destination accepted it
	done      bool // the row was DONE once
	discarded bool // a person discarded the row
	wasDead   bool
	editOf    *fact // the dead row in whose place this one is; nil: none

	suspicious    bool  // the row was a suspect at its last claim
	suspectCounts bool  // a death counts, under the claim that follows
	suspectClaim  int64 // the claim under which a publish of a suspect was begun; 0: none in the latest claim
	suspectLosses int   // claims lost after that and since the last redrive

	claims, publishes int // each claim allows one publish
	holder            string
	claimNo           int64
	numbers           map[string]bool // the claims so far, as node/number
	lease             time.Time       // by the clock of the database; zero: the row is free

	// The fields below are reasons for copies beyond the first, and for attempts.
	expiries, lostAcks, lateCopies int
	refusals                       int // answers that count as a refusal, since the last redrive
	firstRefusal                   int // the number of the first of them
	topic, tenant                  string
	forbidden                      bool
	flights                        []*flight // publishes that have not returned
}

// stuck returns how many publishes the relay may have given up.
func (f *fact) stuck() (n int) {
	for _, fl := range f.flights {
		if fl.stuck() {
			n++
		}
	}
	return n
}

func newTruth(repo *outboxtest.Repository, policy core.DeadPolicy, o *operator) *truth {
	return &truth{repo: repo, policy: policy, operator: o, facts: map[core.RowID]*fact{}, acked: map[string]int{}}
}

// expect registers a row that may be inserted.
func (t *truth) expect(name string, e core.Event) {
	id, err := core.NewRowID(e.ID, e.Topic)
	if err != nil {
		panic(err)
	}
	f := &fact{name: name, id: id, topic: e.Topic, tenant: e.TenantID}
	if e.Key != "" && !e.Unordered {
		f.lane = core.NewKeyID(e.TenantID, e.Topic, e.Key)
	}
	t.add(f)
}

func (t *truth) add(f *fact) {
	t.facts[f.id] = f
	t.ordered = append(t.ordered, f)
	t.names.Store(f.id, f.name)
}

func (t *truth) fact(id core.RowID) *fact {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.facts[id]
}

func (t *truth) name(id core.RowID) string {
	if name, ok := t.names.Load(id); ok {
		return name.(string)
	}
	return id.String()
}

// wrong notes the first violation of an invariant. The caller holds the mutex.
func (t *truth) wrong(invariant, format string, args ...any) {
	if t.violation == nil {
		t.violation = fmt.Errorf(invariant+": "+format, args...)
	}
}

func (t *truth) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.violation
}

// now reads the clock of the database.
func (t *truth) now() time.Time { return time.Now().Add(t.shift).UTC().Truncate(time.Microsecond) }

func (t *truth) jump(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shift += d
	t.jumped = true
	t.repo.ShiftClock(d)
}

func (t *truth) inserted(req core.InsertRequest, places []core.Inserted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range req.Rows {
		f := t.facts[req.Rows[i].ID]
		f.seq = places[i].KeySeq
		if req.Rows[i].Hot {
			f.holder, f.claimNo, f.lease = req.Node, req.ClaimNo, t.now().Add(req.Lease)
			t.number(f, req.Node, req.ClaimNo)
			f.claims++
		}
	}
}

// ended records which rows a transaction has left in the table.
func (t *truth) ended(ids []core.RowID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range ids {
		_, exists := t.repo.Row(id)
		t.facts[id].committed = exists
	}
}

func (t *truth) claimed(inc *incarnation, req core.ClaimRequest, rows []core.Claimed, asked time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	t.asked = time.Now()
	for i := range rows {
		f := t.facts[rows[i].ID]
		switch {
		case !f.committed:
			t.wrong("I2", "%s was claimed and never committed", f.name)
		case f.done || f.discarded:
			t.wrong("I5", "%s had ended and was claimed", f.name)
		case rows[i].ClaimNo != req.ClaimNo:
			t.wrong("I6", "%s: claim %d came back as %d", f.name, req.ClaimNo, rows[i].ClaimNo)
		case f.lease.After(now) && !f.lease.After(now.Add(req.MaxLease)):
			t.wrong("I6", "%s was claimed by %s while %s held it", f.name, req.Node, f.holder)
		case inc.orders.disobeys(f, asked):
			t.wrong("I10", "%s was claimed by %s, which knew that it is paused", f.name, req.Node)
		case t.missed(inc, f, asked):
			t.wrong("I11", "%s was claimed by %s, which had to ask whether it is paused", f.name, req.Node)
		}
		if !f.lease.IsZero() {
			f.expiries++
			if f.holder != req.Node && f.suspectClaim == f.claimNo && f.suspectClaim > 0 && f.suspectCounts {
				f.suspectLosses++
			}
		}
		f.suspicious, f.suspectClaim = rows[i].LostClaims >= core.Suspicious, 0
		if lost := rows[i].LostClaims - core.Suspicious; lost > f.suspectLosses {
			t.wrong("I7", "%s has lost %d claims, but %d of them in publishes of a suspect", f.name, rows[i].LostClaims,
				f.suspectLosses)
		}
		f.holder, f.claimNo, f.lease = req.Node, rows[i].ClaimNo, now.Add(req.Lease)
		f.claims++
		t.number(f, req.Node, req.ClaimNo)
		t.look(f)
	}
}

// number notes a claim of a row. The pair of node and number must be new for it.
func (t *truth) number(f *fact, node string, claimNo int64) {
	name := fmt.Sprintf("%s/%d", node, claimNo)
	if f.numbers[name] {
		t.wrong("I6", "%s: claim %s came twice", f.name, name)
	}
	if f.numbers == nil {
		f.numbers = map[string]bool{}
	}
	f.numbers[name] = true
}

// look compares a row with its fact.
func (t *truth) look(f *fact) {
	row, exists := t.repo.Row(f.id)
	switch {
	case !exists && f.committed && !f.done && !f.discarded:
		t.wrong("I1", "%s was deleted before it was published", f.name)
	case exists && f.done && row.Status != outboxtest.StatusDone:
		t.wrong("I5", "%s was done and is %s", f.name, row.Status)
	}
}

func (t *truth) marked(done []core.Done) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range done {
		f := t.facts[d.ID]
		if f.copies == 0 {
			t.wrong("I1", "%s was marked done and nobody had accepted it", f.name)
		}
		if !f.discarded {
			f.done, f.lease = true, time.Time{}
		}
		t.look(f)
	}
}

func (t *truth) failed(node string, failures []core.Failure, changed []bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, failure := range failures {
		f := t.facts[failure.ID]
		t.look(f)
		if i >= len(changed) || !changed[i] {
			continue
		}
		if f.holder != node || f.claimNo != failure.ClaimNo {
			t.wrong("I7", "%s: a failure of claim %d of %s was written, but claim %d of %s holds", f.name,
				failure.ClaimNo, node, f.claimNo, f.holder)
		}
		f.lease = time.Time{}
		row, _ := t.repo.Row(f.id)
		if failure.Code != "lost_claims" && row.Attempts > f.refusals+f.stuck() {
			t.wrong("I7", "%s: %d attempts after %d refusals", f.name, row.Attempts, f.refusals)
		}
		if failure.Kind == core.FailDead {
			f.wasDead = true
			if !f.forbidden && row.Attempts < simAttempts && row.LostClaims < simKillerLosses {
				t.wrong("I7", "%s is dead after %d attempts and %d lost claims", f.name, row.Attempts, row.LostClaims)
			}
			if !f.forbidden && row.LostClaims < simKillerLosses && t.acked[f.topic] < f.firstRefusal {
				t.wrong("I7", "%s is dead, and its destination acknowledged nothing since it refused it first", f.name)
			}
		}
	}
}

func (t *truth) suspectBegun(inc *incarnation, node string, wait time.Duration, claims []core.ClaimRef, held []bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range claims {
		if f := t.facts[c.ID]; i < len(held) && held[i] {
			if f.holder != node || f.claimNo != c.ClaimNo {
				t.wrong("I6", "%s: a publish of the suspect under claim %d of %s was begun, but claim %d of %s holds",
					f.name, c.ClaimNo, node, f.claimNo, f.holder)
			}
			if wait == 0 && !inc.acked[f.topic] {
				t.wrong("I7", "a death of %s shall count against %s, but %s has acknowledged nothing to it", inc.name(),
					f.name, f.topic)
			}
			f.suspectClaim, f.suspectCounts = c.ClaimNo, wait == 0
		}
	}
}

func (t *truth) renewed(node string, lease time.Duration, claims []core.ClaimRef, held []bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, c := range claims {
		if f := t.facts[c.ID]; i < len(held) && held[i] {
			if f.holder != node || f.claimNo != c.ClaimNo {
				t.wrong("I6", "%s: claim %d of %s was renewed, but claim %d of %s holds", f.name, c.ClaimNo, node,
					f.claimNo, f.holder)
			}
			f.lease = t.now().Add(lease)
		}
	}
}

func (t *truth) released(node string, claims []core.ClaimRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range claims {
		if f := t.facts[c.ID]; f.holder == node && f.claimNo == c.ClaimNo {
			f.lease = time.Time{}
		}
	}
}

// picked notes that a worker asks the table about a row that it has taken, before it publishes it.
func (t *truth) picked(inc *incarnation, claims []core.ClaimRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range claims {
		if _, ok := inc.picked[c.ID]; !ok {
			inc.picked[c.ID] = time.Now()
		}
	}
}

// begun records that a process begins a publish.
func (t *truth) begun(inc *incarnation, f *fact, node string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.publishes++
	at, ok := inc.picked[f.id]
	if !ok {
		at = time.Now()
	}
	if delete(inc.picked, f.id); inc.orders.disobeys(f, at) {
		t.wrong("I10", "%s is published by %s, which knew that it is paused", f.name, node)
	}
	if t.missed(inc, f, at) {
		t.wrong("I11", "%s is published by %s, which had to ask whether it is paused", f.name, node)
	}
	if !t.jumped && f.suspicious && f.holder == node && !f.done && f.suspectClaim != f.claimNo {
		t.wrong("I6", "%s is suspicious, and its publish by %s was not written down", f.name, node)
	}
	if f.publishes > f.claims {
		t.wrong("I6", "%s: publish %d of %d claims", f.name, f.publishes, f.claims)
	}
	if !t.jumped && !f.done && (f.holder != node || !f.lease.After(t.now())) {
		t.wrong("I6", "%s is published by %s, which does not hold it", f.name, node)
	}
}

// accepted records a copy that the destination accepts.
func (t *truth) accepted(id core.RowID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.facts[id]
	if !f.committed {
		t.wrong("I2", "%s was published and never committed", f.name)
	}
	if f.copies == 0 {
		t.judgeOrder(f)
	}
	f.copies++
	if allowed := f.expiries + f.lostAcks + f.lateCopies + f.stuck(); f.copies-1 > allowed {
		t.wrong("I3", "%s: %d copies; %d expired leases, %d lost answers and %d late copies account for %d",
			f.name, f.copies, f.expiries, f.lostAcks, f.lateCopies, allowed+1)
	}
}

// answered records the answer of a publish that a process gets.
func (t *truth) answered(f *fact, ack bool) {
	t.answers++
	if ack {
		t.acked[f.topic] = t.answers
		return
	}
	f.refusals++
	if f.firstRefusal == 0 {
		f.firstRefusal = t.answers
	}
}

// judgeLiveness runs once the faults are over and every goroutine waits only for time. It checks
// that claimable rows are claimed within the limit.
func (t *truth) judgeLiveness(limit time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	i := slices.IndexFunc(t.repo.Rows(), func(r outboxtest.Row) bool {
		return (r.Status == outboxtest.StatusNew || r.Status == outboxtest.StatusRetry) && !r.AvailableAt.After(now) &&
			!r.LeaseUntil.After(now) && t.head(r)
	})
	switch {
	case i < 0:
		t.idle = time.Time{}
	case t.idle.IsZero():
		t.idle = time.Now()
	case time.Since(t.idle) > limit && time.Since(t.asked) > limit:
		t.wrong("I9", "%s could be claimed for %s, and nobody asked", t.name(t.repo.Rows()[i].ID), time.Since(t.idle))
	}
}

// head reports whether the row is the first of its lane that is open or blocks.
func (t *truth) head(row outboxtest.Row) bool {
	return row.KeyID.IsZero() || !slices.ContainsFunc(t.repo.Rows(), func(o outboxtest.Row) bool {
		open := o.Status == outboxtest.StatusNew || o.Status == outboxtest.StatusRetry ||
			o.Status == outboxtest.StatusDead && t.policy == core.BlockKey
		return open && o.KeyID == row.KeyID && o.KeySeq < row.KeySeq
	})
}

// passed reports whether later events of its lane may precede f, because a person ended f, or
// because DEAD events are skipped. A destination may have accepted the dead row of an edited one
// all the same: then the event was published at its place already.
func (t *truth) passed(f *fact) bool {
	return f.discarded || t.policy == core.SkipDead && f.wasDead || f.editOf != nil && f.editOf.accepted()
}

// accepted reports whether the destination has accepted the event, in this row or in one that it
// took the place of.
func (f *fact) accepted() bool { return f != nil && (f.copies > 0 || f.editOf.accepted()) }

// replaces reports whether the row has its place from the other one.
func (f *fact) replaces(o *fact) bool {
	return f.editOf != nil && (f.editOf == o || f.editOf.replaces(o))
}

func (t *truth) judgeOrder(f *fact) {
	if f.lane.IsZero() {
		return
	}
	for _, o := range t.ordered {
		switch {
		case o.lane != f.lane || !o.committed:
		case o.seq < f.seq && o.copies == 0 && !t.passed(o):
			t.wrong("I4", "%s was published before %s", f.name, o.name)
		case o.seq > f.seq && o.copies > 0 && !t.passed(f):
			t.wrong("I4", "%s was published after %s", f.name, o.name)
		case o != f && o.seq == f.seq && !f.replaces(o) && !o.replaces(f):
			t.wrong("I4", "%s and %s have the same place", f.name, o.name)
		}
	}
}

// resting reports whether no work is left, at any time: all rows are done, discarded, dead, or
// behind a dead row.
func (t *truth) resting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, row := range t.repo.Rows() {
		switch row.Status {
		case outboxtest.StatusNew, outboxtest.StatusRetry:
			if !t.blocked(row) || row.LeaseUntil.After(now) {
				return false
			}
		case outboxtest.StatusDone, outboxtest.StatusDead, outboxtest.StatusDiscarded:
		}
	}
	return true
}

// unfinished names the rows that are not at rest.
func (t *truth) unfinished() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var rows []string
	for _, row := range t.repo.Rows() {
		if (row.Status == outboxtest.StatusNew || row.Status == outboxtest.StatusRetry) && !t.blocked(row) {
			rows = append(rows, fmt.Sprintf("%s is %s, due in %s, leased to %s for %s", t.name(row.ID), row.Status,
				row.AvailableAt.Sub(t.now()),
				row.ClaimedBy, row.LeaseUntil.Sub(t.now())))
		}
	}
	return strings.Join(rows, "; ")
}

// blocked reports whether the row waits behind a dead one.
func (t *truth) blocked(row outboxtest.Row) bool {
	return t.policy == core.BlockKey && !row.KeyID.IsZero() &&
		slices.ContainsFunc(t.repo.Rows(), func(o outboxtest.Row) bool {
			return o.KeyID == row.KeyID && o.KeySeq < row.KeySeq && o.Status == outboxtest.StatusDead
		})
}

// judgeEnd checks the invariants that hold when everything is at rest.
func (t *truth) judgeEnd(faultless bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.ordered {
		t.look(f)
		row, exists := t.repo.Row(f.id)
		switch {
		case !f.committed:
			if exists {
				t.wrong("I2", "%s exists and never committed", f.name)
			}
		case f.copies == 0 && !f.discarded && row.Status != outboxtest.StatusDead && !t.blocked(row):
			t.wrong("I1", "%s was lost: it is %s", f.name, row.Status)
		case faultless && f.copies != 1:
			t.wrong("I3", "%s: %d copies without any fault", f.name, f.copies)
		case exists && !row.LeaseUntil.IsZero() && row.LeaseUntil.After(t.now()):
			t.wrong("I8", "%s is leased to %s at rest", f.name, row.ClaimedBy)
		}
	}
}

// administrated records a redrive or a discard.
func (t *truth) administrated(id core.RowID, redrive bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.facts[id]
	f.holder, f.claimNo, f.lease = "", 0, time.Time{}
	if redrive {
		f.refusals, f.forbidden, f.suspectLosses = 0, false, 0
		return
	}
	f.discarded = true
}
