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

// clocks compares the clock of the database with the heartbeats of all relays. In a cluster whose
// nodes all take writes, each node has a clock of its own: a node that is ahead sees the end of a
// lease too early. So this relay's leases last longer, by as much as a node is ahead. The pool of one
// relay may lead to several nodes, so its own heartbeats count too.
type clocks struct {
	ahead  atomic.Int64 // nanoseconds
	looked time.Time    // the last look
	seen   map[string]time.Time
	faster map[string]clock // by relay
}

// clock is the clock of the node to which a relay has written.
type clock struct {
	ahead time.Duration
	until time.Time // it is forgotten then
}

// lease returns how long the database is told to lease a row for d. It stays far below longest,
// because a node that is behind must not take the lease for one that is too long.
func (c *clocks) lease(d, longest time.Duration) time.Duration {
	return d + min(time.Duration(c.ahead.Load()), (longest-d)/2)
}

// compareClocks looks at the heartbeats, which have the times of the nodes. If they cannot be read,
// the next heartbeat tries again.
func (r *engine) compareClocks(ctx context.Context) {
	relays, err := r.repo().Relays(ctx)
	if err != nil {
		return
	}
	if by, of := r.life.clocks.look(time.Now(), relays); of != "" {
		r.ob.Logger.Warn("outbox: the clock of a relay's node of the database is ahead of another node's. Leases last "+
			"longer by that, and events without the fast path that are inserted at that node come late. Synchronize "+
			"the machines of the database (chrony, systemd-timesyncd)", "ahead", by, "relay", of)
	}
}

// look returns the relay whose clock is ahead, and by how much at least, if that is news.
func (c *clocks) look(now time.Time, relays []core.RelayStatus) (by time.Duration, of string) {
	since := time.Duration(0)
	if !c.looked.IsZero() {
		since = now.Sub(c.looked)
	}
	if c.faster == nil {
		c.faster = map[string]clock{}
	}
	seen := make(map[string]time.Time, len(relays))
	for _, s := range relays {
		seen[s.Node] = s.SeenAt
		if s.Ahead < clocksDiffer || c.seen[s.Node].Equal(s.SeenAt) {
			continue
		}
		// The heartbeat is at most as old as the last look: the clock may be ahead by that much more.
		c.faster[s.Node] = clock{ahead: s.Ahead + since, until: now.Add(clocksKept)}
		if s.Ahead > by {
			by, of = s.Ahead, s.Node
		}
	}
	maps.DeleteFunc(c.faster, func(_ string, fast clock) bool { return now.After(fast.until) })
	most := time.Duration(0)
	for _, fast := range c.faster {
		most = max(most, fast.ahead)
	}
	c.looked, c.seen = now, seen
	if c.ahead.Swap(int64(most)) > 0 {
		return 0, ""
	}
	return by, of
}
