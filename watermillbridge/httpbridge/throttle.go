package httpbridge

import (
	"sync"
	"time"
)

// maxPaused bounds the memory of a throttle: pauses that are over are forgotten when there are
// more.
const maxPaused = 10_000

// throttle remembers which endpoints have asked for a pause. Its zero value is ready for use.
type throttle struct {
	mu     sync.Mutex
	paused map[string]time.Time // by URL, until when
}

// left returns how long the pause of an endpoint still is.
func (t *throttle) left(url string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	until, ok := t.paused[url]
	if !ok {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(t.paused, url)
	}
	return max(left, 0)
}

func (t *throttle) pause(url string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.paused == nil {
		t.paused = map[string]time.Time{}
	}
	if len(t.paused) >= maxPaused {
		for u, until := range t.paused {
			if !until.After(now) {
				delete(t.paused, u)
			}
		}
	}
	// Two answers at the same time may ask for different pauses: the longer one holds.
	if until := now.Add(d); len(t.paused) < maxPaused && until.After(t.paused[url]) {
		t.paused[url] = until
	}
}
