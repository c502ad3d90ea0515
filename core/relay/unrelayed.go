package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// unrelayedAfter is how long a process with a Publisher may record events before it has called Run
// or Drain.
const unrelayedAfter = 10 * time.Second

// unrelayed warns once if a process has a Publisher and never calls Run: its events are stored, and
// no error would show that they wait. The zero value is ready for use.
type unrelayed struct {
	relays atomic.Bool // Run or Drain was called
	watch  sync.Once
}

// committed is called after the commit of a transaction with events.
func (u *unrelayed) committed(cfg *core.Config) {
	u.watch.Do(func() {
		time.AfterFunc(unrelayedAfter, func() {
			if !u.relays.Load() {
				cfg.Logger.Warn("outbox: this process has a Publisher and never called Run: its events wait for " +
					"another process. Call Run, or leave Publisher out where another process relays",
				)
			}
		})
	})
}
