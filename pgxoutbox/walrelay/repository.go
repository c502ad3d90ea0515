package walrelay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// tableEvery is how often claims ask the table while nothing is known to be open in it.
const tableEvery = time.Second

// repository is the table of a core.Outbox whose events come from the log, and from the table too:
// spilled ones, and events of processes without core.Config.RelayedByLog. It changes only claims,
// and passes the rest on to the table.
type repository struct {
	*sqloutbox.Repository
	skipDead bool
	one      bool // the publisher serves one topic
	source   atomic.Pointer[source]

	mu      sync.Mutex
	askedAt [2]time.Time // claims of rows without keys, and of keys
	found   [2]bool      // the last one found something
	due     dueTime
	cursor  core.KeyID // where the scan of keys goes on
}

// dueTime is the table's last answer to when a row of it becomes due.
type dueTime struct {
	asked time.Time // zero: it has to be asked
	any   bool
	at    time.Time
}

// source is a window and where its events are spilled to.
type source struct {
	*window
	spiller spiller
	// spilling is held while it is not known whether events have got their open rows, and read-held
	// by claims of keys in the table.
	spilling sync.RWMutex
}

var (
	_ core.Repository = (*repository)(nil)
	_ core.Waker      = (*repository)(nil)
)

// Listen implements core.Waker: the window wakes the poller.
func (r *repository) Listen(ctx context.Context, wake func()) error {
	s := r.source.Load()
	if s == nil {
		return errors.New("walrelay: the log is not read")
	}
	for {
		wake()
		select {
		case <-s.signals.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Notify implements core.Waker: no event is published through this outbox.
func (r *repository) Notify(context.Context) error { return errors.ErrUnsupported }

// hurry makes the next claims ask the table.
func (r *repository) hurry() {
	r.mu.Lock()
	r.found, r.due = [2]bool{true, true}, dueTime{}
	r.mu.Unlock()
	if s := r.source.Load(); s != nil {
		signal(s.signals.ready)
	}
}

// narrow reports whether a claim is for one of several destinations: for a probe, or a destination
// with a rate.
func (r *repository) narrow(req *core.ClaimRequest) bool { return len(req.Only) == 1 && !r.one }

// mayAsk reports whether a claim may ask the table.
func (r *repository) mayAsk(req *core.ClaimRequest, kind int) bool {
	if r.narrow(req) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.due.any && !now.Before(r.due.at) {
		r.found, r.due = [2]bool{true, true}, dueTime{}
	}
	if !r.found[kind] && now.Sub(r.askedAt[kind]) < tableEvery {
		return false
	}
	r.askedAt[kind] = now
	return true
}

func (r *repository) asked(req *core.ClaimRequest, kind, rows int, err error) {
	if r.narrow(req) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[kind] = err == nil && rows > 0
}

// ClaimUnordered implements core.Repository.
func (r *repository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	s := r.source.Load()
	if s == nil {
		return nil, nil
	}
	if rows, _ := s.claim(req, false, time.Now()); len(rows) > 0 || !r.mayAsk(&req, 0) {
		return rows, nil
	}
	rows, err := r.Repository.ClaimUnordered(ctx, req)
	r.asked(&req, 0, len(rows), err)
	return rows, err
}

// moreKeys is a place in a scan that is not over.
var moreKeys = core.KeyID{15: 1}

// ClaimHeads implements core.Repository. The scan of the table has a cursor of its own, because
// claims of the log come in between.
func (r *repository) ClaimHeads(ctx context.Context, req core.ClaimRequest, after core.KeyID,
) (rows []core.Claimed, next core.KeyID, err error) {
	s := r.source.Load()
	if s == nil {
		return nil, next, nil
	}
	narrow := r.narrow(&req)
	if !narrow {
		r.mu.Lock()
		after = r.cursor
		r.mu.Unlock()
	}
	rows, more := s.claim(req, true, time.Now())
	switch {
	case len(rows) > 0 && more && after.IsZero():
		return rows, moreKeys, nil
	case len(rows) > 0:
		return rows, after, nil
	case after.IsZero() && !r.mayAsk(&req, 1):
		return nil, core.KeyID{}, nil
	}
	s.spilling.RLock()
	defer s.spilling.RUnlock()
	if !s.caughtUp() {
		return nil, core.KeyID{}, nil
	}
	rows, next, err = r.Repository.ClaimHeads(ctx, req, after)
	r.asked(&req, 1, len(rows), err)
	if !narrow && err == nil {
		r.mu.Lock()
		r.cursor = next
		r.mu.Unlock()
	}
	return rows, next, err
}

// ClaimKey implements core.Repository.
func (r *repository) ClaimKey(ctx context.Context, req core.ClaimRequest, lane core.KeyID) ([]core.Claimed, error) {
	s := r.source.Load()
	if s == nil || !s.isSpilled(lane) { // ClaimHeads brings the events of the log
		return nil, nil
	}
	s.spilling.RLock()
	defer s.spilling.RUnlock()
	if !s.caughtUp() {
		return nil, nil
	}
	return r.Repository.ClaimKey(ctx, req, lane)
}

// tableDue is NextDue of the table, which is asked once in tableEvery while nothing is found in it.
// The poller comes here before each of its pauses, which is after each event if they come slowly.
func (r *repository) tableDue(ctx context.Context, req core.ClaimRequest) (time.Duration, bool, error) {
	r.mu.Lock()
	now, last, active := time.Now(), r.due, r.found[0] || r.found[1]
	r.mu.Unlock()
	if !active && now.Sub(last.asked) < tableEvery {
		return max(last.at.Sub(now), 0), last.any, nil
	}
	d, ok, err := r.Repository.NextDue(ctx, req)
	if err == nil {
		r.mu.Lock()
		if r.due == last { // nothing was opened meanwhile
			r.due = dueTime{asked: now, any: ok, at: now.Add(d)}
		}
		r.mu.Unlock()
	}
	return d, ok, err
}

// forgetDue makes the next NextDue ask the table.
func (r *repository) forgetDue() {
	r.mu.Lock()
	r.due = dueTime{}
	r.mu.Unlock()
}

// NextDue implements core.Repository.
func (r *repository) NextDue(ctx context.Context, req core.ClaimRequest) (d time.Duration, ok bool, err error) {
	s := r.source.Load()
	if s == nil {
		return 0, false, nil
	}
	if s.caughtUp() {
		if d, ok, err = r.tableDue(ctx, req); err != nil {
			return 0, false, err
		}
	}
	if due, is := s.nextDue(req, time.Now()); is && (!ok || due < d) {
		d, ok = due, true
	}
	return d, ok, nil
}

// MarkDone implements core.Repository.
func (r *repository) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (changed int, err error) {
	var rows []core.Done // rows that the table claimed
	s := r.source.Load()
	for _, d := range done {
		if s != nil && s.accept(d.ID) {
			changed++
		} else {
			rows = append(rows, d)
		}
	}
	if len(rows) == 0 {
		return changed, nil
	}
	n, err := r.Repository.MarkDone(ctx, rows, deleteRows)
	return changed + n, err
}

// MarkFailed implements core.Repository. An event of the log that its destination has refused gets
// an open row.
func (r *repository) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	s := r.source.Load()
	changed := make([]bool, len(failures))
	var rows []core.Failure // rows that the table claimed
	var places []int        // where each of them is in failures
	var refused []*event
	var moves []move
	var moved []int
	for i, f := range failures {
		switch {
		case s == nil || !s.has(f.ClaimRef):
			rows, places = append(rows, f), append(places, i)
		case f.Kind == core.FailUnavailable:
			changed[i] = s.release(f.ClaimRef, time.Now().Add(f.Delay))
		default:
			e := s.refuse(f.ClaimRef)
			if e == nil {
				continue
			}
			refused = append(refused, e)
			moves = append(moves, move{row: e.row, commit: e.commit, failure: f})
			moved = append(moved, i)
		}
	}
	if len(moves) > 0 {
		switch err := s.refuseAll(ctx, refused, moves); {
		case err == nil:
			for _, i := range moved {
				changed[i] = true
			}
			r.hurry()
		case errors.Is(err, errNotLeading):
			s.shut() // the claims of this process are over
		default:
			return nil, err
		}
	}
	if len(rows) == 0 {
		return changed, nil
	}
	of, err := r.Repository.MarkFailed(ctx, node, rows)
	r.forgetDue()
	for i, ok := range of {
		changed[places[i]] = ok
	}
	return changed, err
}

// refuseAll gives refused events their open rows.
func (s *source) refuseAll(ctx context.Context, events []*event, moves []move) error {
	s.spilling.Lock()
	defer s.spilling.Unlock()
	_, err := s.spiller.spill(ctx, moves)
	for i, e := range events {
		if err == nil {
			s.refused(e, !moves[i].leaves())
		} else {
			s.keep(e)
		}
	}
	return err
}

// ask asks the table about events of keys that have open rows, at most most. It returns how many
// they were, and whether any of them is in the table now.
func (s *source) ask(ctx context.Context, most int) (asked int, spilled bool, err error) {
	events := s.toAsk(most)
	if len(events) == 0 {
		return 0, false, nil
	}
	moves := make([]move, len(events))
	for i, e := range events {
		moves[i] = move{row: e.row, commit: e.commit, ask: !e.away && !e.topic.elsewhere}
	}
	s.spilling.Lock()
	defer s.spilling.Unlock()
	verdicts, err := s.spiller.spill(ctx, moves)
	if err != nil {
		s.untold(events)
		return 0, false, err
	}
	s.onVerdicts(events, verdicts)
	return len(events), slices.Contains(verdicts, inTable), nil
}

// split separates claims of the log from the table's.
func split(s *source, claims []core.ClaimRef) (ofLog, ofTable []core.ClaimRef, places []int) {
	for i, c := range claims {
		if s != nil && s.has(c) {
			ofLog = append(ofLog, c)
		} else {
			ofTable, places = append(ofTable, c), append(places, i)
		}
	}
	return ofLog, ofTable, places
}

// BeginSuspect implements core.Repository. Events of the log are never suspicious.
func (r *repository) BeginSuspect(ctx context.Context, node string, wait time.Duration,
	claims []core.ClaimRef,
) ([]bool, error) {
	return r.ask(claims, func(claims []core.ClaimRef) ([]bool, error) {
		return r.Repository.BeginSuspect(ctx, node, wait, claims)
	})
}

// Renew implements core.Repository. An event of the log is held while this process has the slot.
func (r *repository) Renew(ctx context.Context, node string, lease time.Duration, claims []core.ClaimRef,
) ([]bool, error) {
	return r.ask(claims, func(claims []core.ClaimRef) ([]bool, error) {
		return r.Repository.Renew(ctx, node, lease, claims)
	})
}

// ask asks the table about the claims that are not of the log.
func (r *repository) ask(claims []core.ClaimRef, table func([]core.ClaimRef) ([]bool, error)) ([]bool, error) {
	s := r.source.Load()
	held := make([]bool, len(claims))
	for i, c := range claims {
		held[i] = s != nil && s.holds(c)
	}
	_, rows, places := split(s, claims)
	if len(rows) == 0 {
		return held, nil
	}
	of, err := table(rows)
	for i, ok := range of {
		held[places[i]] = ok
	}
	if locked := (*core.LockedError)(nil); err != nil && !errors.As(err, &locked) {
		return nil, err
	}
	return held, err
}

// Release implements core.Repository.
func (r *repository) Release(ctx context.Context, node string, claims []core.ClaimRef) (changed int, err error) {
	s := r.source.Load()
	ofLog, rows, _ := split(s, claims)
	for _, c := range ofLog {
		if s.release(c, time.Time{}) {
			changed++
		}
	}
	if len(rows) == 0 {
		return changed, nil
	}
	n, err := r.Repository.Release(ctx, node, rows)
	r.forgetDue()
	return changed + n, err
}
