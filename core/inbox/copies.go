package inbox

import (
	"context"
	"sync"
)

// copies lets one copy of an event at a time begin a transaction in this process. The other copies
// wait here without a transaction. In transactions of their own, each would keep a connection of
// the pool until the first copy has ended. The zero value is ready for use.
type copies struct {
	mu   sync.Mutex
	held map[Key]*copyTurn
}

// copyTurn is one copy's turn. processed may be read when ended is closed.
type copyTurn struct {
	ended     chan struct{}
	processed bool
}

// enter waits for the turn of a copy, or for the end of ctx. If another copy has processed the
// event meanwhile, processed is true and there is no turn. Otherwise the caller calls leave to end
// its turn, and says whether the event is processed now. Only the first call of leave counts.
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
