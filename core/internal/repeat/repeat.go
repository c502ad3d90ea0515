// Package repeat repeats what failed.
package repeat

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	tries     = 10
	firstWait = 2 * time.Millisecond
	maxWait   = 200 * time.Millisecond
	patience  = 20 * time.Second // a lock wait that times out has already taken long
)

// Do runs fn, and runs it again while again(err) is true. It makes at most ten attempts within
// twenty seconds, after random pauses that grow.
func Do(ctx context.Context, again func(error) bool, fn func() error) error {
	wait, start := firstWait, time.Now()
	for try := 1; ; try++ {
		err := fn()
		if err == nil || try == tries || time.Since(start) > patience || ctx.Err() != nil || !again(err) {
			return err
		}
		if !Sleep(ctx, Jitter(wait)) {
			return err
		}
		wait = min(2*wait, maxWait)
	}
}

// Jitter takes a random part of up to half off d, so that callers that failed together do not come
// back together.
func Jitter(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// Sleep waits for d, and reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
