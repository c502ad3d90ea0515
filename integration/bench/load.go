package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
)

// load is the work of producers in the measured time.
type load struct {
	latencies []time.Duration
	took      time.Duration
	from      usage // the usage when the measured time began
}

func (l load) rate() float64 { return float64(len(l.latencies)) / l.took.Seconds() }

// produce runs transactions in c goroutines: for a tenth of d to warm up, then for d.
func (e *env) produce(ctx context.Context, c int, d time.Duration,
	tx func(ctx context.Context) error,
) (l load, err error) {
	if _, err := loop(ctx, c, d/10, tx); err != nil {
		return l, err
	}
	if l.from, err = e.usage(ctx); err != nil {
		return l, err
	}
	start := time.Now()
	l.latencies, err = loop(ctx, c, d, tx)
	l.took = time.Since(start)
	return l, err
}

// loop runs transactions in c goroutines for d, at least one in each, and returns how long each
// took.
func loop(ctx context.Context, c int, d time.Duration, tx func(ctx context.Context) error) ([]time.Duration, error) {
	all := make([][]time.Duration, c)
	g, ctx := errgroup.WithContext(ctx)
	end := time.Now().Add(d)
	for i := range c {
		g.Go(func() error {
			mine := make([]time.Duration, 0, 4096)
			for at := time.Now(); len(mine) == 0 || at.Before(end); {
				if err := tx(ctx); err != nil {
					return err
				}
				now := time.Now()
				mine = append(mine, now.Sub(at))
				at = now
			}
			all[i] = mine
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var joined []time.Duration
	for _, mine := range all {
		joined = append(joined, mine...)
	}
	return joined, nil
}
