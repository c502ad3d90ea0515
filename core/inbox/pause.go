package inbox

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// pauses says how long a message that failed is held before it is rejected, because most brokers
// deliver a rejected message again at once.
type pauses struct {
	first, max time.Duration
	streak     atomic.Int32 // outages since the database last answered a message
}

// after is the pause after a failure that spent an attempt.
func (p *pauses) after(attempts int) time.Duration {
	d := p.first
	for range min(attempts-1, 30) {
		if d = min(2*d, p.max); d == p.max {
			break
		}
	}
	return jittered(d)
}

// outage is the pause after a failure that is not the event's fault. It grows while nothing
// succeeds.
func (p *pauses) outage(ctx context.Context) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	return p.after(int(min(p.streak.Add(1), 30)))
}

func (p *pauses) reset() { p.streak.Store(0) }

// dead is the pause for a dead event that keeps coming.
func (p *pauses) dead() time.Duration { return min(10*p.first, p.max) }

// mistake is the pause after a refusal that only a change of the program ends. Without any, a loop
// with Result.Again would spin.
func (p *pauses) mistake() time.Duration {
	if p.first > 0 {
		return p.first
	}
	return DefaultRetryPause
}

func (p *pauses) longest() time.Duration { return p.max }

// jittered takes up to half off d, so that messages that failed together do not come back together.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/2+1) }

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
