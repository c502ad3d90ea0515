package relay

import (
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// destinations are the topics that this process has seen recently. A destination in use is never
// forgotten. A forgotten destination counts as new, and so as working. The zero value is empty.
type destinations struct {
	known   generations[string, *destination]
	stopped map[string]*destination
	paused  pauses
	limited []*destination // destinations with a limit, in the order of their topics
}

// maxDestinations is how many destinations are remembered in each of two generations.
const maxDestinations = 4096

func (c *destinations) get(topic string) *destination {
	d, ok := c.known.find(topic)
	if !ok {
		d = &destination{topic: topic}
		c.known.limit = maxDestinations
		c.known.put(topic, d)
	}
	return d
}

func (c *destinations) stop(d *destination) {
	d.open = true
	if c.stopped == nil {
		c.stopped = map[string]*destination{}
	}
	c.stopped[d.topic] = d
}

func (c *destinations) goOn(d *destination) {
	d.open = false
	delete(c.stopped, d.topic)
}

// stoppedTopics returns the topics of the stopped destinations, sorted.
func (c *destinations) stoppedTopics() []string { return slices.Sorted(maps.Keys(c.stopped)) }

// passedOver returns the topics that a normal claim leaves out, sorted: stopped, paused and limited
// topics.
func (c *destinations) passedOver() []string {
	topics := c.stoppedTopics()
	for t := range c.paused.topics {
		topics = append(topics, t)
	}
	for _, d := range c.limited {
		topics = append(topics, d.topic)
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// pausedTenants returns the tenants that claims leave out, sorted.
func (c *destinations) pausedTenants() []string { return slices.Sorted(maps.Keys(c.paused.tenants)) }

// working returns the given topics except for stopped, paused and limited ones, sorted. The result
// is never nil.
func (c *destinations) working(topics map[string]bool) []string {
	working := make([]string, 0, len(topics))
	for t := range topics {
		if c.stopped[t] == nil && !c.paused.hold(t) && !c.hasLimit(t) {
			working = append(working, t)
		}
	}
	slices.Sort(working)
	return working
}

func (c *destinations) hasLimit(topic string) bool {
	return slices.ContainsFunc(c.limited, func(d *destination) bool { return d.topic == topic })
}

// looks reports whether the poller looks for events of a limited destination.
func (c *destinations) looks(d *destination) bool {
	return !d.open && !d.clogged && !c.paused.hold(d.topic)
}

// nextLook returns when the poller next looks for events of any limited destination. Zero: when a
// publish has ended, or there are none.
func (c *destinations) nextLook(now time.Time) (at time.Time) {
	for _, d := range c.limited {
		if next, ok := d.limit.lookAt(now, d.items); ok && c.looks(d) && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return at
}

// nextAsk returns when the poller next looks for a probe of any stopped destination. Zero: no
// destination waits for a probe.
func (c *destinations) nextAsk() (at time.Time) {
	for _, d := range c.stopped {
		if next := d.nextAsk(); c.probes(d) && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return at
}

// probes reports whether the destination needs an event to probe it with, now or later.
func (c *destinations) probes(d *destination) bool {
	return d.waitsForProbe() && !c.paused.hold(d.topic)
}

// full reports whether no event may be inserted for the fast path, because the destination gets no
// more events within a second than this process holds.
func (d *destination) full(now time.Time) bool {
	return d.limit != nil && d.limit.room(now, d.items) == 0
}

// closedHot reports whether no event of the tenant that was just written may go to the destination
// now.
func (c *destinations) closedHot(d *destination, tenant string, now time.Time) bool {
	return c.paused.holdEvent(d.topic, tenant) || d.open && !d.mayProbeHot(now)
}

// destination is this process's view of one topic: whether it is stopped (its breaker is open) and
// when it is probed again.
type destination struct {
	topic    string
	lastAck  time.Time
	refusals refusals
	open     bool
	probing  bool      // an event is on its way to probe it
	probeAt  time.Time // the earliest time of the next probe
	held     time.Time // the end of the pause that the destination has asked for; nothing is tried before
	items    int       // how many items this process holds
	underWay int       // how many of them are being published
	replays  int       // how many of them are replayed events
	stuck    int       // publishes that were abandoned and have not returned
	clogged  bool      // stuck publishes are so many that the destination gets no more
	probeGap time.Duration
	turn     probeTurn
	outage   outage
	limit    *rateLimit // nil: none
}

// probeTurn selects the next event to probe a stopped destination with.
type probeTurn struct {
	started uint       // probes that have begun
	count   uint       // probes with rows of the table: unordered rows and keys take turns
	cursor  core.KeyID // the key that was tried last
	fresh   bool       // a fresh event was tried after the last row of the table
	// when the poller last found no event for a probe
	askedAt time.Time
}

// outage is what the log and the observer report about a stopped destination.
type outage struct {
	since  time.Time // when the breaker opened
	cause  error     // the latest refusal
	probes int       // failed probes since then
	logged time.Time // when the log last reported it
	tried  time.Time // when the latest refusal came
}

// maxProbeSilence is the longest time in which the log does not report failed probes. The pauses
// between its lines double up to that.
const maxProbeSilence = time.Minute

// waitsForProbe reports whether the destination needs an event to probe it with, now or later.
func (d *destination) waitsForProbe() bool { return d.open && !d.probing && !d.clogged }

func (d *destination) mayProbe(now time.Time) bool {
	return d.waitsForProbe() && !now.Before(d.probeAt)
}

// mayProbeHot reports whether an event that was just written may probe the destination. The
// destination may have refused every row of the table before. So a fresh event gets a turn between
// two probes with rows of the table.
func (d *destination) mayProbeHot(now time.Time) bool {
	return d.mayProbe(now) || d.waitsForProbe() && !d.turn.fresh && !d.heldBack(now)
}

// holdBack notes that the destination asks for a pause. Of several pauses the longest counts.
func (d *destination) holdBack(until time.Time) {
	if until.After(d.held) {
		d.held = until
	}
	if d.open && d.probeAt.Before(d.held) {
		d.probeAt = d.held
	}
}

// heldBack reports whether the destination has asked for a pause that is not over.
func (d *destination) heldBack(now time.Time) bool { return now.Before(d.held) }

// nextAsk returns when the poller looks for an event to probe the destination with. The poller asks
// for it in every round while the destination is stopped.
func (d *destination) nextAsk() time.Time {
	if again := d.turn.askedAt.Add(d.probeGap); again.After(d.probeAt) {
		return again
	}
	return d.probeAt
}

// pause is how long an event waits that failed because of its destination. It is shorter than the
// time to the next probe: if the event is the only one, that probe must find it. If there are other
// events, they have waited longer and are tried first.
func (d *destination) pause() time.Duration {
	if left := time.Until(d.held); left > time.Millisecond {
		return left / 2
	}
	return d.probeGap / 2
}

// inUse reports whether the destination must not be forgotten.
func (d *destination) inUse() bool { return d.items > 0 || d.open || d.stuck > 0 || d.limit != nil }
