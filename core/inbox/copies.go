package inbox

import (
	"context"
	"sync"
)

// copies lets one copy of an event at a time begin a transaction in this process. The others wait
// here, and not in transactions of their own, each of which would take a connection from the pool
// until the first has ended. Its zero value is ready for use.
type copies struct {
	mu   sync.Mutex
	held map[Key]*copyTurn
}

// copyTurn is one copy's turn. processed may be read when ended is closed.
type copyTurn struct {
	ended     chan struct{}
	processed bool
}

// enter waits for the turn of a copy, or the end of ctx. When another copy has processed the event
// meanwhile there is nothing to do, and no turn. Else leave ends the turn, and says whether the
// event is processed now; only its first call counts.
func (c *copies) enter(ctx context.Context, k Key) (leave func(processed bool), processed bool, err error) {
	for {
		c.mu.Lock()
		turn, busy := c.held[k]
		if !busy {
			turn = &copyTurn{ended: make(chan struct{})}
			if c.held == nil {
				c.held = map[Key]*copyTurn{}
			}
			c.held[k] = turn
			c.mu.Unlock()
			var once sync.Once
			return func(processed bool) { once.Do(func() { c.end(k, turn, processed) }) }, false, nil
		}
		c.mu.Unlock()
		select {
		case <-turn.ended:
			if turn.processed {
				return nil, true, nil
			}
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func (c *copies) end(k Key, turn *copyTurn, processed bool) {
	c.mu.Lock()
	delete(c.held, k)
	c.mu.Unlock()
	turn.processed = processed
	close(turn.ended)
}
