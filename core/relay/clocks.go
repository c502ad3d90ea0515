package relay

import (
	"context"
	"maps"
	"sync/atomic"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const (
	clocksDiffer = time.Second // a smaller difference is not worth a word
	clocksKept   = time.Minute // a heartbeat does not show a difference each time
)

// clocks compares the clock of the database with the clocks of other relays. In a cluster whose nodes
// all take writes, each node has a clock of its own: a node that is ahead sees the end of a lease too
// early. So this relay's leases last longer, by as much as a node is ahead.
type clocks struct {
	ahead  atomic.Int64 // nanoseconds
	looked time.Time    // the last look
	seen   map[string]time.Time
	others map[string]clock // those that are ahead
}

// clock is the clock of another relay's node.
type clock struct {
	ahead time.Duration
	until time.Time // it is forgotten then
}

// lease returns how long the database is told to lease a row for d. It stays far below longest,
// because a node that is behind must not take the lease for one that is too long.
func (c *clocks) lease(d, longest time.Duration) time.Duration {
	return d + min(time.Duration(c.ahead.Load()), (longest-d)/2)
}

// compareClocks looks at the heartbeats of other relays, which have the times of their nodes. If they
// cannot be read, the next heartbeat tries again.
func (r *engine) compareClocks(ctx context.Context) {
	relays, err := r.repo().Relays(ctx)
	if err != nil {
		return
	}
	if by, of := r.life.clocks.look(time.Now(), relays, r.ob.Node); of != "" {
		r.ob.Logger.Warn("outbox: another relay's node of the database has a clock that is ahead of this relay's "+
			"node. Leases last longer by that, and events without the fast path that are inserted at that node come "+
			"late. Synchronize the machines of the database (chrony, systemd-timesyncd)", "ahead", by, "relay", of)
	}
}

// look returns the relay whose clock is ahead, and by how much at least, if that is news.
func (c *clocks) look(now time.Time, relays []core.RelayStatus, node string) (by time.Duration, of string) {
	since := time.Duration(0)
	if !c.looked.IsZero() {
		since = now.Sub(c.looked)
	}
	if c.others == nil {
		c.others = map[string]clock{}
	}
	seen := make(map[string]time.Time, len(relays))
	for _, other := range relays {
		seen[other.Node] = other.SeenAt
		if other.Node == node || other.Ahead < clocksDiffer || c.seen[other.Node].Equal(other.SeenAt) {
			continue
		}
		// The heartbeat is at most as old as the last look: the clock may be ahead by that much more.
		c.others[other.Node] = clock{ahead: other.Ahead + since, until: now.Add(clocksKept)}
		if other.Ahead > by {
			by, of = other.Ahead, other.Node
		}
	}
	maps.DeleteFunc(c.others, func(_ string, other clock) bool { return now.After(other.until) })
	most := time.Duration(0)
	for _, other := range c.others {
		most = max(most, other.ahead)
	}
	c.looked, c.seen = now, seen
	if c.ahead.Swap(int64(most)) > 0 {
		return 0, ""
	}
	return by, of
}
