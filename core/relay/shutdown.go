package relay

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// shutdownGrace is the part of Config.ShutdownTimeout in which publishers notice that their context
// ended, and the last marks are written. It is at most a quarter of that time.
const shutdownGrace = 5 * time.Second

// shutdown ends the relay in phases: accept no new work, publish the held events, cancel, write
// marks, give rows back. All phases together take at most Config.ShutdownTimeout, including the
// time spent already.
func (r *engine) shutdown(spent time.Duration) error {
	left := max(r.cfg.ShutdownTimeout-spent, r.cfg.ShutdownTimeout/2)
	abandonNow := sync.OnceFunc(func() {
		close(r.life.abandon)
		r.life.cancelWrites()
	})
	abandon := time.AfterFunc(left, abandonNow)
	defer abandon.Stop()
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-r.life.poolClosed:
			abandonNow()
		case <-over:
		}
	}()
	r.do((*state).close)
	r.signals.marks.give() // marks wait no longer for a batch

	deadline := time.NewTimer(left - min(shutdownGrace, left/4))
	defer deadline.Stop()
	select {
	case <-r.idle():
	case <-deadline.C:
	case <-r.life.abandon:
	}
	r.do((*state).stop)
	r.life.cancelPublishes()

	// Publishers' contexts have ended, and marks are written as they come in. An event whose mark
	// is not written by then is published again.
	select {
	case <-r.idle():
	case <-r.life.abandon:
	}
	closed := r.poolClosed()
	if closed { // no mark can be written, but publishers get the time to notice their end
		r.awaitPublishers(min(shutdownGrace, left/4))
	}
	close(r.life.stopRenew)
	<-r.life.renewDone
	stuck := ask(r, (*state).end)
	r.signals.marks.give()
	var err error
	if closed {
		err = core.ErrPoolClosed
	}
	if stuck > 0 {
		return errors.Join(err, fmt.Errorf("%w: %d publishes have not returned", core.ErrShutdownTimeout, stuck))
	}
	r.life.workers.Wait()
	return err
}

// poolClosed reports whether the program has closed the pool.
func (r *engine) poolClosed() bool {
	select {
	case <-r.life.poolClosed:
		return true
	default:
		return false
	}
}

// awaitPublishers waits until no publish is under way, or for limit.
func (r *engine) awaitPublishers(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(limit / 100) {
		if ask(r, func(s *state) bool { return s.inflight.count[itemPublishing] == 0 }) {
			return
		}
	}
}
