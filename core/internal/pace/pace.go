// Package pace has the pauses between tries.
package pace

import (
	"context"
	"time"
)

// Backoff returns min(limit, base*2^(n-1)) without overflow.
func Backoff(base, limit time.Duration, n int) time.Duration {
	d := base
	for i := 1; i < n && d < limit; i++ {
		d *= 2
		if d <= 0 {
			return limit
		}
	}
	return min(d, limit)
}

// Jittered returns a random part of d, at least 1 ms. random is in [0, 1).
func Jittered(d time.Duration, random float64) time.Duration {
	return max(time.Duration(random*float64(d)), time.Millisecond)
}

// Spread returns d changed by up to 20 % either way. random is in [0, 1).
func Spread(d time.Duration, random float64) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*random))
}

// Sleep waits and reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
