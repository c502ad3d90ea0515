package core

import (
	"context"
	"slices"
	"time"
)

const (
	operatorsEvery  = 2 * time.Second // between two looks at what operators have set, with 20 % jitter
	operatorsFailed = 3               // looks in a row that failed and are worth a warning
)

// settings are what operators have set: the pauses, and this process's shares of the rates.
type settings struct {
	pauses reading[Pause]
	rates  reading[Rate]
}

// reading is one kind of settings, as it was read last. The zero value was never read.
type reading[T any] struct {
	list     []T
	at       time.Time
	failures int // in a row
}

// look reads the settings again. If they cannot be read, those that were read last stay. A third
// failure in a row is reported with unknown.
func (s *reading[T]) look(ctx context.Context, read func(context.Context) ([]T, error),
	unknown func(context.Context, error),
) {
	at := time.Now()
	list, err := read(ctx)
	switch {
	case err == nil:
		*s = reading[T]{list: list, at: at}
	case ctx.Err() == nil:
		if s.failures++; s.failures == operatorsFailed {
			unknown(ctx, err)
		}
	}
}

// firstSettings reads what operators have set before the relay begins, so that a restart publishes
// nothing that is paused, and floods no destination. If the settings cannot be read, the relay
// begins all the same.
func (o *Outbox) firstSettings(ctx context.Context) (set settings) {
	for {
		set.pauses.look(ctx, o.readPauses, o.pausesUnknown)
		set.rates.look(ctx, o.readRates, o.ratesUnknown)
		failures := max(set.pauses.failures, set.rates.failures)
		if failures == 0 || failures == operatorsFailed || !sleep(ctx, errorPause(failures, o.random())) {
			return set
		}
	}
}

// lookNow makes the relay of this process read the settings now.
func (o *Outbox) lookNow() {
	if r := o.relay.Load(); r != nil {
		select {
		case r.operators <- struct{}{}:
		default:
		}
	}
}

// followOperators follows what operators set until ctx ends. While the settings cannot be read,
// those that were read last hold, a pause until its time. One goroutine reads both, so that a
// simulation is repeatable.
func (r *relay) followOperators(ctx context.Context, set settings) {
	_, pauses := r.repo().(PauseStore)
	_, rates := r.repo().(RateStore)
	if !pauses && !rates {
		return
	}
	for {
		wait := spread(operatorsEvery, r.random())
		now := time.Now()
		for _, p := range set.pauses.list {
			if !p.Until.IsZero() { // a pause goes on until the database says that it is over
				wait = min(wait, max(p.Left-now.Sub(set.pauses.at), minPoll))
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.operators: // this process has stored something
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		set.pauses.look(ctx, r.o.readPauses, r.o.pausesUnknown)
		set.pauses.list = slices.DeleteFunc(slices.Clone(set.pauses.list), func(p Pause) bool {
			return set.pauses.failures > 0 && !p.Until.IsZero() && time.Since(set.pauses.at) > p.Left
		})
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.setPauses(set.pauses.list) // before the next read, which may hang
		r.unlock()
		set.rates.look(ctx, r.o.readRates, r.o.ratesUnknown)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		r.setRates(set.rates.list)
		r.unlock()
	}
}
