package core

import (
	"context"
	"errors"
	"slices"
	"time"
)

const (
	wokenLanes = 64   // lanes that asked for a look, in one round
	headLanes  = 1000 // lanes that one head scan looks at
	// Between looks for a kind of rows that had none, while there are many of the other kind.
	idlePause = 50 * time.Millisecond
	// Between polls that found nothing although something seemed to be due.
	minPoll = 20 * time.Millisecond
)

// poller is the state of the poller between its rounds; guarded by relay.mu, except turn. No round
// of the zero value begins.
type poller struct {
	turn   chan struct{} // held during a round
	rounds uint
	cursor KeyID // where the head scan resumes
	sweep  sweep
	drains int // calls of Drain: they look at everything, so sweeps do not rest
}

func newPoller() poller { return poller{turn: make(chan struct{}, 1)} }

// begin waits until no other round is under way: Run and the calls of Drain take turns. end ends
// the round. Both are called without the lock.
func (p *poller) begin(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *poller) end() { <-p.turn }

// count counts a round. It reports whether the round claims ordered rows first: the kinds take
// turns, so that neither starves the other when there is little room.
func (p *poller) count() (orderedFirst bool) {
	p.rounds++
	return p.rounds%2 == 0
}

// draining reports whether a call of Drain is under way.
func (p *poller) draining() bool { return p.drains > 0 }

// heads returns where the next page of the head scan begins. It returns false while the keys rest.
func (p *poller) heads(now time.Time) (after KeyID, ok bool) {
	return p.cursor, p.draining() || !p.sweep.resting(now)
}

// page notes a page of the head scan, as sweep does, and where the next one begins.
func (p *poller) page(after, next KeyID, rows int, now time.Time, most time.Duration) (more bool) {
	p.cursor = next
	return p.sweep.page(after, next, rows, now, most)
}

// wakeKeys ends the rest of the keys: some of them were passed over.
func (p *poller) wakeKeys() { p.sweep.restUntil = time.Time{} }

// poll claims the rows that the fast path does not have: after a crash, when the fast path was
// full, for a retry or a delay, or from another producer. After a full batch it polls again at
// once. Otherwise it sleeps until a row becomes due, a wake-up comes, or the interval is over.
func (r *relay) poll(ctx context.Context) {
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
			failures = 0
			r.life.pollFails.Store(nil)
			r.db.succeeded()
		}
		var wait time.Duration
		switch {
		case err != nil:
			if failures++; failures >= pollsFailed {
				r.life.pollFails.Store(&err)
			}
			wait = errorPause(failures, r.random())
			r.cfg.Logger.Warn("outbox: cannot poll", "component", "outbox", "failures", failures, "next_try", wait,
				"err", errorText(err))
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
			wait = spread(interval, r.random())
		default:
			wait = r.idleWait(ctx, spread(interval, r.random()))
			interval = min(2*interval, r.cfg.MaxPollInterval)
		}
		idle = idleKinds{} // before and after a pause, both kinds are asked for
		if woken := r.sleepPoll(ctx, wait); woken {
			interval = r.cfg.PollInterval
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// idleWait shortens wait to the moment when the next row becomes due.
func (r *relay) idleWait(ctx context.Context, wait time.Duration) time.Duration {
	req, verdict := r.claimRequest()
	if verdict != claimWorth {
		return wait
	}
	callCtx, cancel := context.WithTimeout(ctx, dbTimeout)
	defer cancel()
	due, ok, err := r.repo().NextDue(callCtx, req)
	if err != nil || !ok {
		return wait
	}
	return min(wait, max(due, minPoll))
}

// sleepPoll waits until the pause is over or a poll is asked for, and reports the second.
func (r *relay) sleepPoll(ctx context.Context, wait time.Duration) (woken bool) {
	end := time.Now().Add(wait)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		at := r.wantedAt()
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
		case <-r.wakes.kick:
		case <-timer.C:
		}
	}
}

// wantedAt returns when a poll is wanted. Zero: when the pause is over.
func (r *relay) wantedAt() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.wakes.next()
	if !r.crew.noneLeft() {
		if probe := r.dests.nextAsk(); !probe.IsZero() && (at.IsZero() || probe.Before(at)) {
			at = probe
		}
		if look := r.dests.nextLook(time.Now()); !look.IsZero() && (at.IsZero() || look.Before(at)) {
			at = look
		}
	}
	return at
}

func (r *relay) wakePoller() {
	r.mu.Lock()
	defer r.unlock()
	r.wakes.poll(time.Now())
}

// nextFirstLook returns when the next lane wants its first look.
func (r *relay) nextFirstLook() (at time.Time, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wakes.nextFirstLook()
}

// waitRoom waits until there is room for a claim. Wake-ups do not end the wait, because a poll
// could do nothing.
func (r *relay) waitRoom(ctx context.Context) {
	timer := time.NewTimer(r.cfg.PollInterval)
	defer timer.Stop()
	select {
	case <-r.wakes.roomKick:
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
func (r *relay) round(ctx context.Context, idle *idleKinds) (res roundResult, err error) {
	if err := r.poller.begin(ctx); err != nil {
		return res, err
	}
	defer r.poller.end()
	r.mu.Lock()
	began, heard := time.Now(), r.wakes.answered()
	orderedFirst := r.poller.count()
	if heard {
		orderedFirst = r.wakes.heard.orderedFirst(orderedFirst)
	}
	r.unlock()

	rows, wakeErr := r.claimWoken(ctx)
	steps := []claimStep{idle.unless(&idle.unordered, r.claimUnordered), idle.unless(&idle.ordered, r.claimHeads)}
	if orderedFirst {
		slices.Reverse(steps)
	}
	errs, kinds := []error{wakeErr}, [4]int{}
	for i, step := range append(steps, r.claimProbes, r.claimLimited) {
		did, err := step(ctx)
		rows += did.rows
		kinds[i] = did.rows
		res.more = res.more || did.more
		errs = append(errs, err)
	}
	r.mu.Lock()
	res.noRoom = r.wakes.wantRoom
	r.wakes.heard.found(orderedFirst, kinds[0], kinds[1], res.more)
	if heard {
		r.wakes.heard.took(began, time.Now(), rows)
	}
	r.mu.Unlock()
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

// claimVerdict says whether a claim is worth it.
type claimVerdict uint8

const (
	claimWorth   claimVerdict = iota
	claimNoRoom               // nothing fits, or no worker is left to publish
	claimNothing              // nothing is wanted: every destination is stopped, paused or limited, or the relay ends
)

// claimRequest returns the request for the rows that may be claimed now. It has a claim number if a
// claim is worth it.
func (r *relay) claimRequest() (req ClaimRequest, verdict claimVerdict) {
	r.mu.Lock()
	defer r.mu.Unlock()
	req = ClaimRequest{
		Node: r.cfg.Node, Lease: r.cfg.ClaimLease, MaxLease: r.cfg.MaxLease, Limit: r.inflight.room(r.cfg),
		MaxBytes: max(r.cfg.ColdBytes-r.inflight.cold.bytes, 1), Run: r.cfg.KeyRun, Keys: headLanes,
		AtOnce: max(r.cfg.Workers, r.crew.handovers.most), SkipDead: r.cfg.DeadPolicy == SkipDead,
		Served: r.o.topics.named, ExceptTenants: r.dests.pausedTenants(),
	}
	if r.dests.paused.all {
		return req, claimNothing
	}
	if r.o.topics.all() {
		req.Except = r.dests.passedOver()
	} else if req.Only = r.dests.working(r.o.topics.served); len(req.Only) == 0 {
		return req, claimNothing
	}
	if r.life.phase >= phaseClosing {
		return req, claimNothing
	}
	if req.Limit == 0 || r.crew.noneLeft() {
		r.wakes.wantRoom = true
		return req, claimNoRoom
	}
	req.ClaimNo = r.o.claimNo()
	return req, claimWorth
}

func (r *relay) claimUnordered(ctx context.Context) (stepResult, error) {
	req, verdict := r.claimRequest()
	if verdict != claimWorth {
		return stepResult{}, nil
	}
	rows, err := r.claim(ctx, false, func(ctx context.Context) ([]Claimed, error) {
		return r.repo().ClaimUnordered(ctx, req)
	})
	var size int64
	for i := range rows {
		size += int64(len(rows[i].Event.Payload))
	}
	return stepResult{asked: err == nil, rows: len(rows), more: len(rows) >= req.Limit ||
		size > 0 && size >= req.MaxBytes/2}, err
}

func (r *relay) claimHeads(ctx context.Context) (stepResult, error) {
	req, verdict := r.claimRequest()
	if verdict != claimWorth {
		return stepResult{}, nil
	}
	r.mu.Lock()
	after, ok := r.poller.heads(time.Now())
	r.mu.Unlock()
	if !ok {
		return stepResult{}, nil
	}
	var next KeyID
	rows, err := r.claim(ctx, true, func(ctx context.Context) (rows []Claimed, err error) {
		rows, next, err = r.repo().ClaimHeads(ctx, req, after)
		return rows, err
	})
	if err != nil {
		return stepResult{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	more := r.poller.page(after, next, len(rows), time.Now(), r.cfg.MaxPollInterval)
	return stepResult{asked: true, rows: len(rows), more: more}, nil
}

// claimWoken claims from the lanes that asked for a look and are due.
func (r *relay) claimWoken(ctx context.Context) (n int, err error) {
	r.mu.Lock()
	due := r.wakes.takeLanes(time.Now(), wokenLanes)
	r.mu.Unlock()
	for i, w := range due {
		req, verdict := r.claimRequest()
		switch verdict {
		case claimNothing: // the first acknowledgement of a destination, or the end of a pause, asks for a poll
			return n, nil
		case claimNoRoom:
			r.wakeAgain(due[i:]...)
			return n, nil
		case claimWorth:
		}
		rows, err := r.claim(ctx, true, func(ctx context.Context) ([]Claimed, error) {
			return r.repo().ClaimKey(ctx, req, w.lane)
		})
		n += len(rows)
		if len(rows) == 0 {
			r.mu.Lock()
			r.wakes.tryAgain(w, time.Now())
			r.mu.Unlock()
		}
		if err != nil {
			r.wakeAgain(due[i+1:]...)
			return n, err
		}
	}
	return n, nil
}

// wakeAgain puts wake-ups back.
func (r *relay) wakeAgain(lanes ...laneWake) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakes.putBack(lanes...)
}
