package relay

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// This file makes the relay keep the rates of destinations. The normal claims pass over a
// destination with a rate. The poller looks for its events apart from the others, as many as it
// gets within a second, and a worker that takes one before its turn parks it. So a slow destination
// holds up no worker, takes little room from the others, and its events are not claimed in vain.

// setRates makes the relay keep these limits.
func (s *state) setRates(shares []core.Rate) {
	if len(shares)+len(s.dests.limited) == 0 {
		return
	}
	now := time.Now()
	was := s.dests.limited
	s.dests.limited = nil
	for _, share := range shares {
		d := s.dests.get(share.Topic)
		fresh := d.limit == nil
		if fresh {
			d.limit = &rateLimit{}
		}
		changed := d.limit.perSecond != share.PerSecond || d.limit.inFlight != share.InFlight
		if changed {
			d.limit.set(share, now)
			s.wakeParked(d, now)
			s.effects.Call(func() {
				s.ob.Logger.Info("outbox: the rate of a destination is limited: this is the share of this relay",
					"destination", share.Topic, "per_second", share.PerSecond,
					"in_flight", share.InFlight, "actor", share.Actor, "reason", share.Reason)
			})
		}
		if fresh || changed {
			d.limit.look.ask(now)
		}
		s.dests.limited = append(s.dests.limited, d)
	}
	slices.SortFunc(s.dests.limited, func(a, b *destination) int { return strings.Compare(a.topic, b.topic) })
	for _, d := range was {
		if !slices.Contains(s.dests.limited, d) {
			s.unlimit(d)
		}
	}
	s.wakes.look()
}

// unlimit ends the limit of a destination.
func (s *state) unlimit(d *destination) {
	l := d.limit
	d.limit = nil
	if l.timer != nil {
		l.timer.Stop()
	}
	for it, ok := l.parked.pop(); ok; it, ok = l.parked.pop() {
		s.crew.queue.push(it)
		s.crew.wake()
	}
	s.effects.Call(func() {
		s.ob.Logger.Info("outbox: the rate of a destination is not limited any more", "destination", d.topic)
	})
	s.poller.wakeKeys() // its keys were passed over
	s.wakes.poll(time.Now())
}

// nextParked takes a parked item whose turn has come, or nil.
func (s *state) nextParked(now time.Time) *item {
	for _, d := range s.dests.limited {
		l := d.limit
		for l.parked.len() > 0 && l.open(now, d.underWay) {
			from := l.parked.next(s.mayReplay())
			if from == nil {
				break
			}
			it := from.first()
			if it.state == itemReady && !it.role.suspect && it.path == core.PathHot &&
				s.marks.held >= s.cfg.MaxUnmarked {
				break // see pick
			}
			l.parked.take(from)
			switch {
			case it.state != itemReady: // it was given back meanwhile
			case it.role.suspect: // it has become a suspect
				s.crew.queue.push(it)
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
func (s *state) mayGo(it *item, now time.Time) bool {
	l := it.dest.limit
	if l == nil || it.role.suspect || l.parked.before(it) == 0 && l.open(now, it.dest.underWay) {
		return true
	}
	l.parked.push(it)
	s.wakeParked(it.dest, now)
	return false
}

// taken notes that an item is about to be published.
func (s *state) taken(it *item, now time.Time) {
	if l := it.dest.limit; l != nil {
		l.take(now)
		s.wakeParked(it.dest, now)
	}
}

// wakeParked lets a worker start when the turn of the next parked item comes. The end of a publish needs
// no call: its worker looks for the next item.
func (s *state) wakeParked(d *destination, now time.Time) {
	l := d.limit
	if l.parked.len() == 0 {
		return
	}
	if l.open(now, d.underWay) {
		s.crew.wake()
		return
	}
	wait := l.wait(now)
	if wait > 0 { // else the end of a publish is waited for
		l.timer = s.effects.After(l.timer, wait, s.crew.wake)
	}
}

// looksDue returns the limited destinations whose events the poller looks for now, at most
// maxProbes. Those that wait longest come first.
func (s *state) looksDue(now time.Time) (due []*destination, more bool) {
	if len(s.dests.limited) == 0 || s.phase >= phaseClosing || s.crew.noneLeft() {
		return nil, false
	}
	for _, d := range s.dests.limited {
		if !s.dests.looks(d) || !s.topics.relays(d.topic) {
			continue
		}
		at, ok := d.limit.lookAt(now, d.items)
		if ok && (!now.Before(at) || s.poller.draining() && d.limit.worthLook(now, d.items)) {
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
func (r *engine) claimLimited(ctx context.Context) (res stepResult, err error) {
	var due []*destination
	more := ask(r, func(s *state) (more bool) {
		due, more = s.looksDue(time.Now())
		return more
	})
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
func (r *engine) claimFor(ctx context.Context, d *destination) (n int, err error) {
	var ordered bool
	var after core.KeyID
	l := ask(r, func(*state) *rateLimit {
		l := d.limit
		if l != nil {
			l.turn++
			ordered, after = l.turn%2 == 0, l.cursor
		}
		return l
	})
	if l == nil { // it has ended meanwhile
		return 0, nil
	}
	next, asked := after, false
	for range 2 {
		req, ok := r.limitedRequest(ctx, d, l)
		if !ok || err != nil {
			break
		}
		var rows []core.Claimed
		asked = true
		rows, err = r.claim(ctx, ordered, func(ctx context.Context) (rows []core.Claimed, err error) {
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
	r.do(func(s *state) {
		if err == nil {
			l.cursor = next
		}
		found := n > 0 || err == nil && next != after && !next.IsZero()
		l.look.end(found, time.Now(), s.cfg.PollInterval, s.cfg.MaxPollInterval, s.random())
	})
	return n, err
}

// limitedRequest returns the request for rows of a destination with this limit. It returns false if
// nothing may be claimed now: commits may have taken the room, and operators and failures may have
// stopped the destination, since the destination was due.
func (r *engine) limitedRequest(ctx context.Context, d *destination, l *rateLimit) (req core.ClaimRequest, ok bool) {
	req, verdict := r.claimRequest(ctx)
	r.do(func(s *state) { ok = s.limitRequest(&req, verdict, d, l) })
	return req, ok
}

func (s *state) limitRequest(req *core.ClaimRequest, verdict claimVerdict, d *destination, l *rateLimit) (ok bool) {
	if verdict == claimNoRoom || verdict == claimUnsure || d.limit != l || !s.dests.looks(d) {
		return false
	}
	if req.Limit == 0 { // the verdict is claimNothing if every topic has a limit: the poller must wait all the same
		s.wakes.wantRoom = true
		return false
	}
	req.Only, req.Except, req.Limit = []string{d.topic}, nil, min(req.Limit, l.room(time.Now(), d.items))
	if req.Limit == 0 {
		return false
	}
	req.ClaimNo, req.Run = s.claimNo(), min(req.Run, req.Limit)
	l.look.begin()
	return true
}

// slowLook returns when the next event of a destination may be claimed that gets less than one a
// second. Zero: no destination is waited for.
func (s *state) slowLook() (at time.Time) {
	now := time.Now()
	for _, d := range s.dests.limited {
		if !s.dests.looks(d) || !s.topics.relays(d.topic) {
			continue
		}
		if slow := d.limit.wait(now) - rateAhead; slow > 0 && (at.IsZero() || now.Add(slow).Before(at)) {
			at = now.Add(slow)
		}
	}
	return at
}

// share is one relay's part of the limits, if that many relays share them.
func share(r core.Rate, relays int) core.Rate {
	n := max(relays, 1)
	r.PerSecond /= float64(n)
	if r.InFlight > 0 {
		r.InFlight = max(r.InFlight/n, 1)
	}
	return r
}

// shares returns the parts of the limits that this process has.
func (o *outbox) shares(ctx context.Context, all []core.Rate) (shares []core.Rate, err error) {
	if len(all) == 0 {
		return nil, nil
	}
	relays, err := o.repo().Relays(ctx)
	if err != nil {
		return nil, err
	}
	for _, rate := range all {
		n := 1 // this one, which may not be recorded yet
		for _, other := range relays {
			if other.Node != o.ob.Node && other.Alive() && other.Relays(rate.Topic) {
				n++
			}
		}
		shares = append(shares, share(rate, n))
	}
	return shares, nil
}
