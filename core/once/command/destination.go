package command

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	destinationFailures = 5                     // of different effects in a row stop a destination
	destinationGap      = time.Second           // until the first probe of a stopped destination; it doubles
	destinationMaxGap   = 10 * time.Second      // up to that
	destinationPace     = 10 * time.Millisecond // between two effects of a stopped destination that come back
	busyGap             = 50 * time.Millisecond // until an effect of a busy destination comes back
	busyPace            = 2 * time.Millisecond  // between two of these
	knownEffects        = 8192                  // effects that were put off and whose destination is remembered
	knownPlaces         = 8192                  // destinations that do not work or have something to do
	maxRetryGap         = time.Minute           // between two attempts of an effect
)

var errStopped = errors.New("command: the destination is stopped or busy")

// place names a destination.
type place struct{ channel, name string }

// destinations is what one Worker knows of the places that its effects go to. A place that works and has nothing to do is forgotten.
type destinations struct {
	limit int // of effects that one place has at once

	mu    sync.Mutex
	all   map[place]*destination
	known map[string]place // of effects that were put off
}

type destination struct {
	running  int
	refused  []string // different effects that failed since the last success
	stopped  bool
	probing  bool
	probeAt  time.Time
	gap      time.Duration
	nextBack time.Time // when the last effect that was put off comes back
}

func newDestinations(limit int) *destinations {
	return &destinations{limit: limit, all: map[place]*destination{}, known: map[string]place{}}
}

// visit is one execution at a place.
type visit struct {
	at    place
	id    string
	probe bool
}

// turnedAway says whether an effect that was put off before has to wait on, and how long; that costs no statement.
func (d *destinations) turnedAway(id string) (wait time.Duration, yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
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

// enter begins a visit, or says how long the effect has to wait.
func (d *destinations) enter(at place, id string) (v *visit, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dest := d.all[at]
	if dest == nil {
		if len(d.all) >= knownPlaces { // it will find out again
			maps.DeleteFunc(d.all, func(_ place, dest *destination) bool { return dest.running == 0 })
		}
		dest = &destination{}
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

// wait returns 0 when an effect may go there now.
func (d *destination) wait(limit int) time.Duration {
	now := time.Now()
	switch {
	case d.stopped && !d.probing && !now.Before(d.probeAt):
		return 0
	case d.stopped:
		d.nextBack = latest(now.Add(busyGap), d.probeAt, d.nextBack.Add(destinationPace))
	case d.running >= limit:
		d.nextBack = latest(now.Add(busyGap), d.nextBack.Add(busyPace))
	default:
		return 0
	}
	return d.nextBack.Sub(now)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// visitEnd says how a visit ended.
type visitEnd uint8

const (
	visitUnclear visitEnd = iota // it says nothing of the destination
	visitGood
	visitRefused // this effect
	visitDown    // everybody
)

// leave ends a visit. down reports whether the destination is stopped, and wait after how long the effect may come back then.
func (d *destinations) leave(v *visit, end visitEnd) (wait time.Duration, down bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	dest, now := d.all[v.at], time.Now()
	dest.running--
	if v.probe {
		dest.probing = false
	}
	switch {
	case end == visitGood:
		dest.refused, dest.stopped, dest.nextBack = nil, false, time.Time{}
	case end == visitUnclear:
	case dest.stopped && v.probe:
		dest.gap = min(2*dest.gap, destinationMaxGap)
		dest.probeAt = now.Add(dest.gap)
	case dest.stopped:
	default:
		if !slices.Contains(dest.refused, v.id) {
			dest.refused = append(dest.refused, v.id)
		}
		if end == visitDown || len(dest.refused) >= destinationFailures {
			dest.stopped, dest.refused = true, nil
			dest.gap, dest.probeAt = destinationGap, now.Add(destinationGap)
		}
	}
	if dest.stopped {
		return max(dest.wait(d.limit), time.Millisecond), true
	}
	if dest.running == 0 && len(dest.refused) == 0 {
		delete(d.all, v.at)
	}
	return 0, false
}

// leave ends the visit of an execution, if it is one.
func (w *Worker) leave(run execution, end visitEnd) {
	if run.visit != nil {
		w.away.leave(run.visit, end)
	}
}

// judge says what a failure means, and for how long the event is put off, when there are destinations: an outage is one of the
// destination, and so is the refusal of so many effects.
func (w *Worker) judge(run execution, class core.Class, stopping bool) (core.Class, time.Duration) {
	if run.visit == nil {
		return class, 0
	}
	end := visitUnclear
	switch class {
	case core.ClassUnavailable, core.ClassUnroutable:
		end = visitDown
	case core.ClassTransient:
		end = visitRefused
	case core.ClassPermanent, core.ClassKeyUnavailable:
	}
	if stopping {
		end = visitUnclear
	}
	pause, down := w.away.leave(run.visit, end)
	switch {
	case down && class == core.ClassTransient:
		class = core.ClassUnavailable
	case class == core.ClassTransient:
		pause = time.Duration((0.5 + rand.Float64()/2) * float64(min(time.Second<<min(run.attempt-1, 6), maxRetryGap)))
	}
	return class, pause
}

// stoppedError is why an effect was put off.
func stoppedError(at place) error {
	return fmt.Errorf("%w: %q of channel %q", errStopped, at.name, at.channel)
}
