package relay

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

const (
	wokenLanes = 64   // lanes that asked for a look, in one round
	headLanes  = 1000 // lanes that one head scan looks at
	// Between looks for a kind of rows that had none, while there are many of the other kind.
	idlePause = 50 * time.Millisecond
	// Between polls that found nothing although something seemed to be due.
	minPoll = 20 * time.Millisecond
	// Looks at an empty table in place of rounds, until the next round. A round shows whether claims work,
	// and finds keys that a look does not reach.
	restLooks = 6
)

// poller is the state of the poller between its rounds. The zero value has made none.
type poller struct {
	rounds uint
	cursor core.KeyID // where the head scan resumes
	sweep  sweep
	drains int // calls of Drain: they look at everything, so sweeps do not rest
}

// turns lets Run and the calls of Drain take turns with their rounds.
type turns chan struct{}

// begin waits until no other round is under way. end ends the round.
func (t turns) begin(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) end() { <-t }

// count counts a round. It reports whether the round claims ordered rows first: the kinds take
// turns, so that neither starves the other when there is little room.
func (p *poller) count() (orderedFirst bool) {
	p.rounds++
	return p.rounds%2 == 0
}

// draining reports whether a call of Drain is under way.
func (p *poller) draining() bool { return p.drains > 0 }

// heads returns where the next page of the head scan begins. It returns false while the keys rest.
func (p *poller) heads(now time.Time) (after core.KeyID, ok bool) {
	return p.cursor, p.draining() || !p.sweep.resting(now)
}

// rest returns how long the keys rest.
func (p *poller) rest(now time.Time) time.Duration {
	if _, ok := p.heads(now); ok {
		return 0
	}
	return p.sweep.restUntil.Sub(now)
}

// page notes a page of the head scan, as sweep does, and where the next one begins.
func (p *poller) page(after, next core.KeyID, rows int, now time.Time, most time.Duration) (more bool) {
	p.cursor = next
	return p.sweep.page(after, next, rows, now, most)
}

// onePage reports whether the last sweep was a single page. Then NextDue has looked at every key.
func (p *poller) onePage(now time.Time) bool {
	return p.cursor.IsZero() && p.sweep.pages <= 1 && !p.sweep.resting(now)
}

// wakeKeys ends the rest of the keys: some of them were passed over.
func (p *poller) wakeKeys() { p.sweep.restUntil = time.Time{} }

// poll claims the rows that the fast path does not have: after a crash, when the fast path was
// full, for a retry or a delay, or from another producer. After a full batch it polls again at
// once. Otherwise it sleeps until a row becomes due, a wake-up comes, or the interval is over.
func (r *engine) poll(ctx context.Context) {
	interval, failures := r.cfg.PollInterval, 0
	var idle idleKinds
	for {
		r.life.vitals.stamp(&r.life.vitals.turned)
		news := r.db.news()
		res, err := r.round(ctx, &idle)
		if ctx.Err() != nil || r.noPool(err) {
			return
		}
		if err == nil && failures > 0 {
			r.ob.Logger.Info("outbox: polls again")
			failures = 0
			r.life.pollFails.Store(nil)
			r.db.succeeded()
		}
		var woken bool
		switch {
		case err != nil:
			if failures++; failures >= pollsFailed {
				r.life.pollFails.Store(&err)
			}
			wait := errorPause(failures, r.random())
			r.ob.Logger.Warn("outbox: cannot poll", "failures", failures, "next_try", wait,
				"error", errtext.Of(err))
			// a wake-up must not repeat a failing query without a pause
			switch pause(wait, news, ctx.Done()) {
			case pauseStopped:
				return
			case pauseCut:
				failures = 1 // not 0: the end of the outage is news for other goroutines
			case pauseOver:
			}
			continue
		case res.noRoom:
			r.waitRoom(ctx)
			continue
		case res.more:
			continue
		case idle.passed: // a kind of rows was passed over: ask for it before the pause
			idle = idleKinds{}
			continue
		case res.found:
			interval = r.cfg.PollInterval
			woken = r.sleepPoll(ctx, pace.Spread(interval, r.random()))
		default:
			woken = r.rest(ctx, &interval)
		}
		idle = idleKinds{} // before and after a pause, both kinds are asked for
		if woken {
			interval = r.cfg.PollInterval
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// rest sleeps after a round that found nothing, and reports whether a poll is asked for. While no row
// waits at all, a look takes the place of the next rounds: it is one statement and only reads.
func (r *engine) rest(ctx context.Context, interval *time.Duration) (woken bool) {
	for look := range restLooks {
		wait, empty := r.idleWait(ctx, pace.Spread(*interval, r.random()))
		if look > 0 && !empty {
			return false
		}
		*interval = min(2**interval, r.cfg.MaxPollInterval)
		if woken = r.sleepPoll(ctx, wait); woken || !empty || ctx.Err() != nil {
			return woken
		}
		r.life.vitals.stamp(&r.life.vitals.turned)
	}
	return false
}

// idleWait shortens wait to the moment when the next row becomes due, but a row of a key waits until
// the keys have rested. empty: no row waits, not even for its time.
func (r *engine) idleWait(ctx context.Context, wait time.Duration) (_ time.Duration, empty bool) {
	req, verdict := r.claimRequest(ctx)
	if verdict != claimWorth {
		return wait, false
	}
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	due, ok, err := r.repo().NextDue(callCtx, req)
	rest := ask(r, func(s *state) time.Duration { return s.poller.rest(time.Now()) })
	if err == nil && ok && due < rest {
		req.Keys = 0
		if due, ok, err = r.repo().NextDue(callCtx, req); !ok || due > rest {
			due, ok = rest, true
		}
	}
	if err != nil {
		r.doubt()
	}
	if err != nil {
		return wait, false
	}
	if !ok {
		r.life.vitals.stamp(&r.life.vitals.claimed)
		return wait, ask(r, func(s *state) bool { return s.poller.onePage(time.Now()) })
	}
	return min(wait, max(due, minPoll)), false
}

// sleepPoll waits until the pause is over or a poll is asked for, and reports the second.
func (r *engine) sleepPoll(ctx context.Context, wait time.Duration) (woken bool) {
	end := time.Now().Add(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		at := ask(r, (*state).wantedAt)
		now := time.Now()
		if !at.IsZero() && at.Before(end) {
			if woken = !at.After(now); woken {
				return true
			}
			timer.Reset(at.Sub(now))
		} else {
			if !now.Before(end) {
				return false
			}
			timer.Reset(end.Sub(now))
		}
		select {
		case <-ctx.Done():
			return false
		case <-r.signals.poll:
		case <-timer.C:
		}
	}
}

// wantedAt returns when a poll is wanted. Zero: when the pause is over.
func (s *state) wantedAt() time.Time {
	at := s.wakes.next()
	if !s.crew.noneLeft() {
		if probe := s.dests.nextAsk(); !probe.IsZero() && (at.IsZero() || probe.Before(at)) {
			at = probe
		}
		if look := s.dests.nextLook(time.Now()); !look.IsZero() && (at.IsZero() || look.Before(at)) {
			at = look
		}
	}
	return at
}

// waitRoom waits until there is room for a claim. Wake-ups do not end the wait, because a poll
// could do nothing.
func (r *engine) waitRoom(ctx context.Context) {
	timer := time.NewTimer(r.cfg.PollInterval)
	defer timer.Stop()
	select {
	case <-r.signals.room:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// roundResult is the result of a round of claims.
type roundResult struct {
	found  bool // rows were found
	more   bool // another round should follow at once
	noRoom bool // nothing was asked for, because nothing fits
}

// idleKinds skips ordered or unordered rows for idlePause after a claim of that kind came back
// empty, while rounds for the other kind follow each other.
type idleKinds struct {
	unordered, ordered time.Time
	passed             bool // a kind was passed over
}

// round claims the due rows once: woken lanes, unordered rows, a page of lane heads, probes of
// stopped destinations, and rows of limited ones.
func (r *engine) round(ctx context.Context, idle *idleKinds) (res roundResult, err error) {
	if err := r.turns.begin(ctx); err != nil {
		return res, err
	}
	defer r.turns.end()
	if err := r.current(ctx); err != nil {
		return res, err
	}
	began := time.Now()
	var heard, orderedFirst bool
	r.do(func(s *state) {
		heard, orderedFirst = s.wakes.answered(), s.poller.count()
		if heard {
			orderedFirst = s.wakes.heard.orderedFirst(orderedFirst)
		}
	})

	rows, wakeErr := r.claimWoken(ctx)
	steps := []claimStep{idle.unless(&idle.unordered, r.claimUnordered), idle.unless(&idle.ordered, r.claimHeads)}
	if orderedFirst {
		slices.Reverse(steps)
	}
	errs, kinds := []error{wakeErr}, [4]int{}
	for i, step := range append(steps, r.claimProbes, r.claimLimited) {
		_ = r.current(ctx) // a step that failed has put in doubt what operators have set
		did, err := step(ctx)
		rows += did.rows
		kinds[i] = did.rows
		res.more = res.more || did.more
		errs = append(errs, err)
	}
	r.do(func(s *state) {
		res.noRoom = s.wakes.wantRoom
		s.wakes.heard.found(orderedFirst, kinds[0], kinds[1], res.more)
		if heard {
			s.wakes.heard.took(began, time.Now(), rows)
		}
	})
	res.found = rows > 0
	return res, errors.Join(errs...)
}

// stepResult is the result of a step of a round.
type stepResult struct {
	asked bool // a claim was sent
	rows  int  // rows that the claim returned
	more  bool // another round should follow at once
}

type claimStep func(context.Context) (stepResult, error)

// unless returns a step that is skipped for a while after it found nothing.
func (k *idleKinds) unless(until *time.Time, step claimStep) claimStep {
	return func(ctx context.Context) (stepResult, error) {
		now := time.Now()
		if now.Before(*until) {
			k.passed = true
			return stepResult{}, nil
		}
		res, err := step(ctx)
		*until = time.Time{}
		if res.asked && res.rows == 0 && !res.more {
			*until = now.Add(idlePause)
		}
		return res, err
	}
}

// claimVerdict is the decision whether to claim.
type claimVerdict uint8

const (
	claimWorth   claimVerdict = iota
	claimNoRoom               // nothing fits, or no worker is left to publish
	claimNothing              // nothing is wanted: every destination is stopped, paused or limited, or the relay ends
	claimUnsure               // what operators have set could not be read since a failure, or the caller gave up
)

// claimRequest returns the request for the rows that may be claimed now. It has a claim number if a
// claim is worth it.
func (r *engine) claimRequest(ctx context.Context) (req core.ClaimRequest, verdict claimVerdict) {
	_ = r.current(ctx)
	if ctx.Err() != nil {
		return req, claimUnsure
	}
	r.do(func(s *state) { req, verdict = s.claimRequest() })
	req.Lease = r.life.clocks.lease(r.cfg.ClaimLease, r.cfg.MaxLease)
	return req, verdict
}

func (s *state) claimRequest() (req core.ClaimRequest, verdict claimVerdict) {
	if !s.operators.known() {
		s.operators.putOff = true
		return req, claimUnsure
	}
	req = core.ClaimRequest{
		Node: s.ob.Node, MaxLease: s.cfg.MaxLease, Limit: s.inflight.room(s.cfg),
		MaxBytes: max(s.cfg.ColdBytes-s.inflight.cold.bytes, 1), Run: s.cfg.KeyRun, Keys: headLanes,
		AtOnce: max(s.cfg.Workers, s.crew.handovers.most), SkipDead: s.ob.DeadPolicy == core.SkipDead,
		Served: s.topics.named, ExceptTenants: s.dests.pausedTenants(),
	}
	if s.dests.paused.all {
		return req, claimNothing
	}
	if s.topics.all() {
		req.Except = s.dests.passedOver()
	} else if req.Only = s.dests.working(s.topics.served); len(req.Only) == 0 {
		return req, claimNothing
	}
	if s.phase >= phaseClosing {
		return req, claimNothing
	}
	if req.Limit == 0 || s.crew.noneLeft() {
		s.wakes.wantRoom = true
		return req, claimNoRoom
	}
	req.ClaimNo = s.claimNo()
	return req, claimWorth
}

func (r *engine) claimUnordered(ctx context.Context) (stepResult, error) {
	req, verdict := r.claimRequest(ctx)
	if verdict != claimWorth {
		return stepResult{}, nil
	}
	rows, err := r.claim(ctx, false, func(ctx context.Context) ([]core.Claimed, error) {
		return r.repo().ClaimUnordered(ctx, req)
	})
	var size int64
	for i := range rows {
		size += int64(len(rows[i].Event.Payload))
	}
	return stepResult{asked: err == nil, rows: len(rows), more: len(rows) >= req.Limit ||
		size > 0 && size >= req.MaxBytes/2}, err
}

func (r *engine) claimHeads(ctx context.Context) (stepResult, error) {
	req, verdict := r.claimRequest(ctx)
	if verdict != claimWorth {
		return stepResult{}, nil
	}
	var after core.KeyID
	if !ask(r, func(s *state) (ok bool) {
		after, ok = s.poller.heads(time.Now())
		return ok
	}) {
		return stepResult{}, nil
	}
	var next core.KeyID
	rows, err := r.claim(ctx, true, func(ctx context.Context) (rows []core.Claimed, err error) {
		rows, next, err = r.repo().ClaimHeads(ctx, req, after)
		return rows, err
	})
	if err != nil {
		return stepResult{}, err
	}
	more := ask(r, func(s *state) bool {
		return s.poller.page(after, next, len(rows), time.Now(), s.cfg.MaxPollInterval)
	})
	return stepResult{asked: true, rows: len(rows), more: more}, nil
}

// claimWoken claims from the lanes that asked for a look and are due.
func (r *engine) claimWoken(ctx context.Context) (n int, err error) {
	due := ask(r, func(s *state) []laneWake { return s.wakes.takeLanes(time.Now(), wokenLanes) })
	for i, w := range due {
		req, verdict := r.claimRequest(ctx)
		switch verdict {
		case claimNothing: // the first acknowledgement of a destination, or the end of a pause, asks for a poll
			return n, nil
		case claimNoRoom, claimUnsure:
			r.wakeAgain(due[i:]...)
			return n, nil
		case claimWorth:
		}
		rows, err := r.claim(ctx, true, func(ctx context.Context) ([]core.Claimed, error) {
			return r.repo().ClaimKey(ctx, req, w.lane)
		})
		n += len(rows)
		if len(rows) == 0 {
			r.do(func(s *state) { s.wakes.tryAgain(w, time.Now()) })
		}
		if err != nil {
			r.wakeAgain(due[i+1:]...)
			return n, err
		}
	}
	return n, nil
}

// wakeAgain puts wake-ups back.
func (r *engine) wakeAgain(lanes ...laneWake) { r.do(func(s *state) { s.wakes.putBack(lanes...) }) }
