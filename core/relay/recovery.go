package relay

import (
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/pace"
)

// The pause before a retry after an error of the database starts at basePause and doubles up to
// maxPause.
const (
	basePause = 100 * time.Millisecond
	maxPause  = 2 * time.Second
)

// recovery ends the pauses of goroutines that wait for the database, once it is back. The zero
// value is ready.
type recovery struct {
	mu   sync.Mutex
	back chan struct{} // closed when a goroutine succeeds that had failed
}

// succeeded ends all pauses. Only a goroutine that had failed before calls it. The success of
// others is no evidence: the error may concern one goroutine alone.
func (r *recovery) succeeded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.back != nil {
		close(r.back)
		r.back = nil
	}
}

// news returns a channel that is closed when a goroutine that had failed succeeds from now on. Call
// it before the try whose failure the pause follows. Otherwise the news may come in between.
func (r *recovery) news() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.back == nil {
		r.back = make(chan struct{})
	}
	return r.back
}

// errorPause returns how long to wait after so many failures in a row. random is in [0, 1).
func errorPause(failures int, random float64) time.Duration {
	return min(pace.Spread(pace.Backoff(basePause, maxPause, failures), random), maxPause)
}

// pause waits and reports how it ended: by time, by the news that the database is back, or by stop.
func pause(d time.Duration, news, stop <-chan struct{}) (ended pauseEnd) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return pauseOver
	case <-news:
		return pauseCut
	case <-stop:
		return pauseStopped
	}
}

type pauseEnd uint8

const (
	pauseOver pauseEnd = iota
	pauseCut
	pauseStopped
)
