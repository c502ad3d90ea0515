package outboxui

import (
	"context"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core/ops"
)

const (
	summaryFor  = 5 * time.Second // how long the head of a page shows an earlier result
	summaryWait = 2 * time.Second // for the database
)

// summary is the state of an outbox in the head of every page.
type summary struct {
	mu     sync.Mutex
	at     time.Time // of this machine; zero: it has to be read
	cached headline
	// reading: a visit reads it now.
	reading bool
}

type headline struct {
	groups ops.Count // groups with dead events that nobody has muted
	parked ops.Count // messages that consumers have given up
	bad    bool
	err    error
}

// read returns the headline of the outbox, which is a few seconds old at most, or older while another
// visit reads it. A database that hangs holds up one visit, for summaryWait.
func (b *box) read(v *visit) headline {
	b.mu.Lock()
	h, fresh := b.cached, time.Since(b.at) <= summaryFor
	if fresh || b.reading {
		b.mu.Unlock()
		return h
	}
	b.reading = true
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(v.ctx(), summaryWait)
	defer cancel()
	g, err := b.API.Groups(ctx, ops.Filter{Statuses: []ops.Status{ops.StatusDead}})
	if h = (headline{err: err}); err == nil {
		c, _ := b.API.Consumers(ctx) // without a right on the inbox it is not known
		h = headlineOf(g, c)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = false
	b.cached, b.at = h, time.Now()
	return h
}

// know keeps what the overview has read.
func (b *box) know(l look) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cached, b.at = headlineOf(l.groups, l.consumers), time.Now()
	b.cached.bad = b.cached.bad || len(l.stopped()) > 0 || len(l.relays) > 0 && l.alive() == 0 && l.waiting().N > 0
}

func headlineOf(g ops.Groups, c ops.Consumers) headline {
	h := headline{groups: ops.Count{More: g.Truncated}}
	for _, one := range g.Groups {
		if one.Dead > 0 && !one.Muted {
			h.groups.N++
		}
	}
	for _, one := range c.Handlers {
		h.parked.N += one.Dead
		h.parked.More = h.parked.More || one.More
	}
	h.bad = h.groups.N > 0 || h.parked.N > 0
	return h
}

// forget makes the next page read the headline again, after a change.
func (b *box) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
}
