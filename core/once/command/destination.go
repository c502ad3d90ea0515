package command

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	// Failures of different effects in a row that stop a destination.
	destinationFailures = 5
	destinationGap      = time.Second      // until the first probe of a stopped destination; it doubles
	destinationMaxGap   = 10 * time.Second // the longest pause between probes
	// Between two returning effects of a stopped destination.
	destinationPace = 10 * time.Millisecond
	busyGap         = 50 * time.Millisecond // until an effect of a busy destination comes back
	// Between two returning effects of a busy destination.
	busyPace      = 2 * time.Millisecond
	knownEffects  = 8192        // effects that were put off and whose destination is remembered
	knownPlaces   = 8192        // destinations that do not work or are in use
	knownRefusals = 256         // effects that one destination refused
	maxRetryGap   = time.Minute // between two attempts of an effect
)

var errStopped = errors.New("command: the destination is stopped or busy")

// place names a destination. The name is what [WorkerConfig.Destination] returned. Without it, it is
// the host that a failure named, or the effect itself after a failure that named none, and empty
// for an effect that has not failed yet: see Worker.at.
type place struct{ channel, name string }

// unknown reports whether the place stands for all effects of a channel that have not failed.
func (p place) unknown() bool { return p.name == "" }

// destinations has the knowledge of one Worker about the destinations of its effects. A destination
// that works and is not in use is forgotten.
type destinations struct {
	limit int // effects that one destination gets at once

	mu    sync.Mutex
	all   map[place]*destination
	known map[string]place // destinations of effects that were put off
	stuck map[string]bool  // effects whose handler was given up and has not returned
}

type destination struct {
	// shared: many destinations without a name. It is never stopped. While one of them fails, its
	// effects run at most as many at a time as effects of one destination, so that they do not take
	// all workers while each finds out where it goes.
	shared   bool
	troubled time.Time // until then
	running  int
	refused  []string          // different effects that failed since the last success
	acks     uint64            // successes
	met      map[string]uint64 // value of acks when an open effect first failed
	stopped  bool
	probing  bool
	probeAt  time.Time
	held     time.Time // the end of the pause that the destination asked for
	gap      time.Duration
	nextBack time.Time // when the last effect that was put off comes back
}

func newDestinations(limit int) *destinations {
	return &destinations{
		limit: limit, all: map[place]*destination{}, known: map[string]place{}, stuck: map[string]bool{},
	}
}

// visit is one execution at a place.
type visit struct {
	at    place
	id    string
	probe bool
	said  time.Duration // how long its destination is away, by the failure; 0: not known
}

// turnedAway reports whether an effect that was put off has to wait longer, and how long. It costs
// no statement.
func (d *destinations) turnedAway(id string) (wait time.Duration, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stuck[id] {
		return destinationMaxGap, true
	}
	at, ok := d.known[id]
	if !ok {
		return 0, false
	}
	dest := d.all[at]
	if dest == nil {
		return 0, false
	}
	wait = dest.wait(d.limit)
	return wait, wait > 0
}

// enter begins a visit, or returns how long the effect has to wait.
func (d *destinations) enter(at place, id string) (v *visit, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dest := d.all[at]
	if dest == nil {
		if len(d.all) >= knownPlaces { // the next attempt of the effect finds the outage again
			maps.DeleteFunc(d.all, func(_ place, dest *destination) bool { return dest.running == 0 })
		}
		dest = &destination{shared: at.unknown()}
		d.all[at] = dest
	}
	if wait = dest.wait(d.limit); wait > 0 {
		if len(d.known) >= knownEffects {
			clear(d.known)
		}
		d.known[id] = at
		return nil, wait
	}
	delete(d.known, id)
	dest.running++
	v = &visit{at: at, id: id, probe: dest.stopped}
	dest.probing = dest.probing || v.probe
	return v, 0
}

// wait returns how long an effect has to wait for the destination, or 0.
func (d *destination) wait(limit int) time.Duration {
	now := time.Now()
	switch {
	case d.stopped && !d.probing && !now.Before(d.probeAt) && d.running < limit:
		return 0
	case d.stopped:
		d.nextBack = latest(now.Add(busyGap), d.probeAt, d.nextBack.Add(destinationPace))
	case d.running >= limit && (!d.shared || now.Before(d.troubled)):
		d.nextBack = latest(now.Add(busyGap), d.nextBack.Add(busyPace))
	default:
		return 0
	}
	return d.nextBack.Sub(now)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// visitEnd is the result of a visit.
type visitEnd uint8

const (
	visitUnclear visitEnd = iota // it does not concern the destination
	visitGood
	visitRefused // the destination refused this effect
	visitDown    // the destination refuses every effect
)

// leave ends a visit. down reports whether the destination is stopped, and wait is the time after
// which the effect may come back. silent reports that the destination has accepted nothing since it
// first refused this effect.
func (d *destinations) leave(v *visit, end visitEnd) (wait time.Duration, down, silent bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dest, now := d.all[v.at], time.Now()
	silent = dest.meet(v.id, end)
	dest.running--
	delete(d.stuck, v.id)
	if v.probe {
		dest.probing = false
	}
	switch {
	case end == visitGood && now.Before(dest.held): // it began before the destination asked for the pause
	case end == visitGood:
		dest.refused, dest.stopped, dest.nextBack = nil, false, time.Time{}
	case end == visitUnclear:
	case end == visitDown, dest.stopped:
		dest.down(v, now)
	case dest.shared:
	default:
		if !slices.Contains(dest.refused, v.id) {
			dest.refused = append(dest.refused, v.id)
		}
		if len(dest.refused) >= destinationFailures {
			dest.down(v, now)
		}
	}
	if dest.stopped {
		return max(dest.wait(d.limit), time.Millisecond), true, silent
	}
	if dest.running == 0 && len(dest.refused) == 0 && len(dest.met) == 0 && !now.Before(dest.troubled) {
		delete(d.all, v.at)
	}
	return 0, false, silent
}

// down notes that a visit has met an outage.
func (d *destination) down(v *visit, now time.Time) {
	switch {
	case d.shared:
		d.troubled = now.Add(2 * destinationMaxGap)
	case !d.stopped:
		d.stopped, d.refused = true, nil
		d.gap, d.probeAt = destinationGap, now.Add(destinationGap)
	case v.probe:
		d.gap = min(2*d.gap, destinationMaxGap)
		d.probeAt = now.Add(d.gap)
	}
	if until := now.Add(v.said); !d.shared && v.said > 0 && until.After(d.held) {
		d.held, d.probeAt = until, until
	}
}

// abandon notes that the handler of a visit is stuck. It returns false if too many handlers are
// stuck already. The call counts for its destination until it returns. Without a named destination,
// it does not take the place of others, which may go elsewhere.
func (d *destinations) abandon(v *visit) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.stuck) >= mostStuck {
		return false
	}
	d.stuck[v.id] = true
	dest := d.all[v.at]
	dest.down(v, time.Now())
	if v.probe {
		dest.probing, v.probe = false, false
	}
	if dest.shared {
		dest.running--
		v.at.name = "effect " + v.id
		d.all[v.at] = &destination{running: 1}
	}
	return true
}

// learn notes that the effect of a visit, which met an outage, goes to another place than its visit
// was for, and returns after what time it may come back.
func (d *destinations) learn(v *visit, at place) (wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dest, now := d.all[at], time.Now()
	if dest == nil {
		dest = &destination{}
		d.all[at] = dest
	}
	if !dest.stopped {
		dest.down(v, now)
	}
	if len(d.known) >= knownEffects {
		clear(d.known)
	}
	d.known[v.id] = at
	return max(dest.wait(d.limit), time.Millisecond)
}

// at returns the place of an effect.
func (w *Worker) at(e Effect) place {
	if w.cfg.Destination != nil {
		return place{e.Channel, w.cfg.Destination(e)}
	}
	w.away.mu.Lock()
	defer w.away.mu.Unlock()
	if at, ok := w.away.known[e.ID]; ok {
		return at
	}
	return place{channel: e.Channel}
}

// hostOf returns the host that a failure of the network names, or "".
func hostOf(err error) string {
	if h, ok := errors.AsType[interface {
		error
		Host() string
	}](err); ok { // of package httpbridge
		return h.Host()
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		if parsed, err := url.Parse(u.URL); err == nil && parsed.Host != "" {
			return parsed.Host
		}
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		return dns.Name
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Addr != nil {
		return op.Addr.String()
	}
	return ""
}

// saidTime returns the time of core.UnavailableFor, or 0.
func saidTime(err error) time.Duration {
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable {
		return 0
	}
	e, ok := errors.AsType[interface {
		error
		Delay() time.Duration
	}](err)
	if !ok {
		return 0
	}
	return e.Delay()
}

// meet notes the end of a visit of the effect. It reports whether the destination has accepted
// nothing since it first refused the effect.
func (d *destination) meet(id string, end visitEnd) (silent bool) {
	switch end {
	case visitGood:
		d.acks++
		delete(d.met, id)
		return false
	case visitRefused, visitDown:
	case visitUnclear:
		return false
	}
	first, known := d.met[id]
	if !known {
		if d.met == nil || len(d.met) >= knownRefusals {
			d.met = map[string]uint64{}
		}
		first = d.acks
		d.met[id] = first
	}
	return first == d.acks
}

// leave ends the visit of an execution.
func (w *Worker) leave(run execution, end visitEnd) { w.away.leave(run.visit, end) }

// judge returns the class of a failure, and for how long the event is put off. An outage is an
// outage of the destination, and so are many refused effects in a row. An unmarked error spends the
// last attempt only if the destination has accepted another effect since it first refused this one.
// Before that the destination may be at fault.
func (w *Worker) judge(run execution, failure error, class core.Class, marked, late, stopping bool) (core.Class,
	time.Duration,
) {
	end := visitUnclear
	switch class {
	case core.ClassUnavailable, core.ClassUnroutable:
		end = visitDown
		run.visit.said = saidTime(failure)
	case core.ClassTransient:
		end = visitRefused
	case core.ClassPermanent, core.ClassKeyUnavailable:
	}
	if stopping {
		end = visitUnclear
	}
	if w.cfg.Destination == nil {
		return w.judgeAlone(run, failure, class, end, late && !stopping)
	}
	pause, down, silent := w.away.leave(run.visit, end)
	if class != core.ClassTransient {
		return class, pause
	}
	if down {
		return core.ClassUnavailable, pause
	}
	pause = min(time.Second<<min(run.attempt-1, 6), maxRetryGap)
	if silent && !marked && run.attempt >= w.cfg.MaxAttempts {
		class, pause = core.ClassKeyUnavailable, maxRetryGap
	}
	return class, time.Duration((0.5 + rand.Float64()/2) * float64(pause))
}

// judgeAlone is judge without [WorkerConfig.Destination]. An outage concerns the host that its
// error names, else this effect alone, and never the channel. A timeout without a host is left to
// the relay, which can recognise that the whole channel is stuck, and so are refusals.
func (w *Worker) judgeAlone(run execution, failure error, class core.Class, end visitEnd, late bool) (core.Class,
	time.Duration,
) {
	host := hostOf(failure)
	if late && host != "" {
		class, end = core.ClassUnavailable, visitDown
	}
	pause, down, _ := w.away.leave(run.visit, end)
	switch {
	case end != visitDown && !down:
		return class, 0
	case !run.visit.at.unknown():
		return class, pause
	case host != "":
		return class, w.away.learn(run.visit, place{run.effect.Channel, "host " + host})
	}
	return class, w.away.learn(run.visit, place{run.effect.Channel, "effect " + run.claim.ID})
}

// stoppedError is the error of an effect that was put off.
func stoppedError(at place) error {
	return fmt.Errorf("%w: %q of channel %q", errStopped, at.name, at.channel)
}
