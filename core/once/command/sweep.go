package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// sweepBatch is how many overdue effects of a channel are read at once.
const sweepBatch = 100

// Run sweeps at once and then every SweepInterval until ctx ends; then it returns nil. An error of
// the store is no reason to stop. Run it beside the relay, in as many processes as you like: an
// effect is leased to one of them.
func (w *Worker) Run(ctx context.Context) error {
	for {
		_, _ = w.Sweep(ctx) // the next one does what this one could not
		pause := time.Duration((0.8 + 0.4*rand.Float64()) * float64(w.cfg.SweepInterval))
		if !sleep(ctx, pause) {
			return nil
		}
	}
}

// Sweep executes the effects of the Worker's channels that should have been executed OverdueAfter
// ago and were not: no event of the outbox woke them up, because it was given up, discarded,
// deleted, or taken by a publisher that does not execute effects; or it still waits its turn, and
// finds its effect completed when that comes. It returns how many it executed.
//
// Each channel has its effects executed one after the other, those that have been due for longest
// first. An outage, or a handler that needs longer than SweepTimeout, ends the sweep of its channel
// and spends no attempt. A failed effect is overdue again OverdueAfter later, and parked after
// MaxAttempts.
func (w *Worker) Sweep(ctx context.Context) (executed int, err error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var problems []error
	for _, channel := range slices.Sorted(maps.Keys(w.cfg.Handlers)) {
		wg.Go(func() {
			n, err := w.sweepChannel(ctx, channel)
			mu.Lock()
			defer mu.Unlock()
			executed += n
			if err != nil {
				problems = append(problems, fmt.Errorf("command: sweep of channel %q: %w", channel, err))
			}
		})
	}
	wg.Wait()
	return executed, errors.Join(problems...)
}

// sweepChannel returns an error only when the store cannot be asked or told.
func (w *Worker) sweepChannel(ctx context.Context, channel string) (executed int, err error) {
	for {
		list, err := w.cfg.Store.Overdue(ctx, channel, w.cfg.OverdueAfter, sweepBatch)
		if err != nil {
			return executed, err
		}
		moved := false
		for _, rec := range list {
			if ctx.Err() != nil {
				return executed, nil //nolint:nilerr // the caller has it end; the next sweep goes on
			}
			if now, err := w.cfg.Store.Find(ctx, rec.Tenant, rec.Channel, rec.Key); err == nil &&
				!now.UpdatedAt.Equal(rec.UpdatedAt) {
				continue // somebody else was at it: if that failed, another try at once would spend an attempt
			}
			outcome, err := w.performSwept(ctx, rec)
			class, _ := core.ClassOf(err)
			moved = moved || outcome != Skipped
			switch {
			case outcome == Executed:
				executed++
			case errors.Is(err, ErrNoEffect): // deleted meanwhile
			case outcome == "" || outcome == Lost:
				return executed, err
			case class == core.ClassUnavailable || class == core.ClassUnroutable:
				return executed, nil
			}
		}
		if len(list) < sweepBatch || !moved {
			return executed, nil
		}
	}
}

// performSwept executes one effect without the relay, which would give its handler a deadline and
// recover from its panics.
func (w *Worker) performSwept(ctx context.Context, rec Record) (outcome ExecOutcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.SweepTimeout)
	defer cancel()
	info := ExecInfo{Tenant: rec.Tenant, Channel: rec.Channel, ID: rec.ID}
	returned := false
	defer func() {
		if !returned { // after runtime.Goexit the next sweep goes on
			outcome, err = Retried, core.Transient(didNotReturn(recover()))
			info.Key, info.Attempt, info.Outcome, info.Err = rec.Key, rec.Attempts+1, outcome, err
			w.cfg.Observer(info)
		}
	}()
	_, outcome, err = w.perform(ctx, info, w.cfg.Handlers[rec.Channel])
	returned = true
	return outcome, err
}
