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
	"github.com/ormoutbox/ormoutbox/core/internal/repeat"
)

// sweepBatch is how many overdue effects of a channel are read at once.
const sweepBatch = 100

// Run sweeps at once and then every SweepInterval until ctx ends; then it returns nil. An error of
// the store does not end it. Run it next to the relay, in any number of processes: an effect is
// leased to one of them.
func (w *Worker) Run(ctx context.Context) error {
	for _, channel := range slices.Sorted(maps.Keys(w.cfg.Handlers)) {
		w.register(ctx, channel)
	}
	for {
		_, _ = w.Sweep(ctx) // the next sweep executes the rest
		pause := time.Duration((0.8 + 0.4*rand.Float64()) * float64(w.cfg.SweepInterval))
		if !repeat.Sleep(ctx, pause) {
			return nil
		}
	}
}

// Sweep executes the overdue effects of the Worker's channels: effects that should have been
// executed OverdueAfter ago. No event of the outbox woke the Worker for them. The event is dead,
// discarded or deleted, or was taken by a publisher that does not execute effects. Or the event
// still waits, and will find its effect completed. Sweep returns how many effects it executed.
//
// The effects of a channel are executed one after another. The longest due come first. An outage,
// or a handler that needs longer than SweepTimeout, spends no attempt, and the sweep goes on with
// other effects. A failed effect is overdue again OverdueAfter later, and dead after MaxAttempts.
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

// sweepChannel returns an error only if the store fails.
func (w *Worker) sweepChannel(ctx context.Context, channel string) (executed int, err error) {
	for {
		list, err := w.cfg.Store.Overdue(ctx, channel, w.cfg.OverdueAfter, sweepBatch)
		if err != nil {
			return executed, err
		}
		moved := false
		for _, rec := range list {
			if ctx.Err() != nil {
				return executed, nil //nolint:nilerr // the caller has ended ctx; the next sweep goes on
			}
			if now, err := w.cfg.Store.Find(ctx, rec.Tenant, rec.Channel, rec.Key); err == nil &&
				!now.UpdatedAt.Equal(rec.UpdatedAt) {
				// Another worker has executed it. If that failed, another attempt at once would
				// spend an attempt.
				continue
			}
			outcome, err := w.performSwept(ctx, rec)
			class, _ := core.ClassOf(err)
			moved = moved || outcome != resultSkipped
			switch {
			case outcome == resultExecuted:
				executed++
			case errors.Is(err, ErrNoEffect): // deleted meanwhile
			case outcome == "" || outcome == resultLost:
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

// performSwept executes one effect without the relay. The relay would give its handler a deadline
// and recover from its panics, so performSwept does both.
func (w *Worker) performSwept(ctx context.Context, rec Record) (outcome string, err error) {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.SweepTimeout)
	defer cancel()
	info := ExecInfo{Tenant: rec.Tenant, Channel: rec.Channel, ID: rec.ID}
	returned := false
	defer func() {
		if !returned { // the next sweep goes on after runtime.Goexit
			outcome, err = resultRetried, core.Transient(didNotReturn(recover()))
			info.Key, info.Attempt, info.Result, info.Err = rec.Key, rec.Attempts+1, outcome, err
			w.cfg.Observer(info)
		}
	}()
	_, outcome, err = w.perform(ctx, info, w.cfg.Handlers[rec.Channel])
	returned = true
	return outcome, err
}
