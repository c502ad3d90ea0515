package core

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// This file makes the relay keep the rates of destinations. The normal claims pass over a
// destination with a rate. The poller looks for its events apart from the others, as many as it
// gets within a second, and a worker that takes one before its turn parks it. So a slow destination
// holds up no worker, takes little room from the others, and its events are not claimed in vain.

// setRates makes the relay keep these limits. Called under the lock.
func (r *relay) setRates(shares []Rate) {
	if len(shares)+len(r.dests.limited) == 0 {
		return
	}
	now := time.Now()
	was := r.dests.limited
	r.dests.limited = nil
	for _, share := range shares {
		d := r.dests.get(share.Topic)
		fresh := d.limit == nil
		if fresh {
			d.limit = &rateLimit{}
		}
		changed := d.limit.perSecond != share.PerSecond || d.limit.inFlight != share.InFlight
		if changed {
			d.limit.set(share, now)
			r.wakeParked(d, now)
			r.notices.add(func() {
				r.cfg.Logger.Info("outbox: the rate of a destination is limited: this is the share of this relay",
					"component", "outbox", "destination", share.Topic, "per_second", share.PerSecond,
					"in_flight", share.InFlight, "actor", share.Actor, "reason", share.Reason)
			})
		}
		if fresh || changed {
			d.limit.look.ask(now)
		}
		r.dests.limited = append(r.dests.limited, d)
	}
	slices.SortFunc(r.dests.limited, func(a, b *destination) int { return strings.Compare(a.topic, b.topic) })
	for _, d := range was {
		if !slices.Contains(r.dests.limited, d) {
			r.unlimit(d)
		}
	}
	r.wakes.look()
}

// unlimit ends the limit of a destination.
func (r *relay) unlimit(d *destination) {
	l := d.limit
	d.limit = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	for it, ok := l.parked.pop(); ok; it, ok = l.parked.pop() {
		r.crew.queue.push(it)
		r.crew.work.Signal()
	}
	r.notices.add(func() {
		r.cfg.Logger.Info("outbox: the rate of a destination is not limited any more", "component", "outbox",
			"destination", d.topic)
	})
	r.poller.wakeKeys() // its keys were passed over
	r.wakes.poll(time.Now())
}

// nextParked takes a parked item whose turn has come, or nil.
func (r *relay) nextParked(now time.Time) *item {
	for _, d := range r.dests.limited {
		l := d.limit
		for l.parked.len() > 0 && l.open(now, d.underWay) {
			from := l.parked.next(r.mayReplay())
			if from == nil {
				break
			}
			it := from.first()
			if it.state == itemReady && !it.role.suspect && it.path == PathHot &&
				r.writer.marks.held >= r.cfg.MaxUnmarked {
				break // see pick
			}
			l.parked.take(from)
			switch {
			case it.state != itemReady: // it was given back meanwhile
			case it.role.suspect: // it has become a suspect
				r.crew.queue.push(it)
			default:
				return it
			}
		}
	}
	return nil
}

// mayGo reports whether an item from the queue may be published now. If not, the item is parked.
// Suspects do not wait: another one could go meanwhile, and two of them must not be published at
// once.
func (r *relay) mayGo(it *item, now time.Time) bool {
	l := it.dest.limit
	if l == nil || it.role.suspect || l.parked.before(it) == 0 && l.open(now, it.dest.underWay) {
		return true
	}
	l.parked.push(it)
	r.wakeParked(it.dest, now)
	return false
}

// taken notes that an item is about to be published.
func (r *relay) taken(it *item, now time.Time) {
	if l := it.dest.limit; l != nil {
		l.take(now)
		r.wakeParked(it.dest, now)
	}
}

// wakeParked wakes a worker when the turn of the next parked item comes. The end of a publish needs
// no call: its worker looks for the next item.
func (r *relay) wakeParked(d *destination, now time.Time) {
	l := d.limit
	if l.parked.len() == 0 {
		return
	}
	if l.open(now, d.underWay) {
		r.crew.work.Signal()
		return
	}
	wait := l.wait(now)
	switch {
	case wait == 0: // the end of a publish is waited for
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.crew.work.Signal()
		})
	default:
		l.timer.Reset(wait)
	}
}

// looksDue returns the limited destinations whose events the poller looks for now, at most
// maxProbes. Those that wait longest come first.
func (r *relay) looksDue(now time.Time) (due []*destination, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.dests.limited) == 0 || r.life.phase >= phaseClosing || r.crew.noneLeft() {
		return nil, false
	}
	for _, d := range r.dests.limited {
		if !r.dests.looks(d) || !r.o.topics.relays(d.topic) {
			continue
		}
		at, ok := d.limit.lookAt(now, d.items)
		if ok && (!now.Before(at) || r.poller.draining() && d.limit.worthLook(now, d.items)) {
			due = append(due, d)
		}
	}
	slices.SortStableFunc(due, func(a, b *destination) int { return a.limit.look.at().Compare(b.limit.look.at()) })
	if len(due) > maxProbes {
		return due[:maxProbes], true
	}
	return due, false
}

// claimLimited takes rows for the destinations with a rate, as many as they get within a second. A
// destination whose claim fails does not hold up the others.
func (r *relay) claimLimited(ctx context.Context) (res stepResult, err error) {
	due, more := r.looksDue(time.Now())
	var errs []error
	for _, d := range due {
		rows, err := r.claimFor(ctx, d)
		res.rows += rows
		errs = append(errs, err)
	}
	err = errors.Join(errs...)
	res.more = more && err == nil
	return res, err
}

// claimFor takes rows for one destination with a rate. Rows without a key and keys take turns.
func (r *relay) claimFor(ctx context.Context, d *destination) (n int, err error) {
	r.mu.Lock()
	l := d.limit
	if l == nil { // it has ended meanwhile
		r.mu.Unlock()
		return 0, nil
	}
	l.turn++
	ordered, after := l.turn%2 == 0, l.cursor
	r.mu.Unlock()

	next, asked := after, false
	for range 2 {
		req, ok := r.limitedRequest(d, l)
		if !ok || err != nil {
			break
		}
		var rows []Claimed
		asked = true
		rows, err = r.claim(ctx, ordered, func(ctx context.Context) (rows []Claimed, err error) {
			if !ordered {
				return r.repo().ClaimUnordered(ctx, req)
			}
			rows, next, err = r.repo().ClaimHeads(ctx, req, after)
			return rows, err
		})
		n += len(rows)
		ordered = !ordered
	}
	if !asked {
		return 0, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		l.cursor = next
	}
	found := n > 0 || err == nil && next != after && !next.IsZero()
	l.look.end(found, time.Now(), r.cfg.PollInterval, r.cfg.MaxPollInterval, r.random())
	return n, err
}

// limitedRequest returns the request for rows of a destination with this limit. It returns false if
// nothing may be claimed now: commits may have taken the room, and operators and failures may have
// stopped the destination, since the destination was due.
func (r *relay) limitedRequest(d *destination, l *rateLimit) (req ClaimRequest, ok bool) {
	req, verdict := r.claimRequest()
	r.mu.Lock()
	defer r.mu.Unlock()
	if verdict == claimNoRoom || d.limit != l || !r.dests.looks(d) {
		return req, false
	}
	if req.Limit == 0 { // the verdict is claimNothing if every topic has a limit: the poller must wait all the same
		r.wakes.wantRoom = true
		return req, false
	}
	req.Only, req.Except, req.Limit = []string{d.topic}, nil, min(req.Limit, l.room(time.Now(), d.items))
	if req.Limit == 0 {
		return req, false
	}
	req.ClaimNo, req.Run = r.o.claimNo(), min(req.Run, req.Limit)
	l.look.begin()
	return req, true
}

// slowLook returns when the next event of a destination may be claimed that gets less than one a
// second. Zero: no destination is waited for.
func (r *relay) slowLook() (at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, d := range r.dests.limited {
		if !r.dests.looks(d) || !r.o.topics.relays(d.topic) {
			continue
		}
		if slow := d.limit.wait(now) - rateAhead; slow > 0 && (at.IsZero() || now.Add(slow).Before(at)) {
			at = now.Add(slow)
		}
	}
	return at
}
