package core

import (
	"maps"
	"slices"
	"time"
)

// destinations are those that this process has seen of late. One in use is never forgotten; one
// that was forgotten is taken for new, and so for innocent. The zero value is empty; guarded by
// relay.mu.
type destinations struct {
	known   generations[string, *destination]
	stopped map[string]*destination
}

// maxDestinations is how many are remembered in each of two generations.
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

// stoppedTopics returns the topics of those that are stopped, sorted.
func (c *destinations) stoppedTopics() []string { return slices.Sorted(maps.Keys(c.stopped)) }

// working returns those of the topics that are not stopped, sorted; never nil.
func (c *destinations) working(topics map[string]bool) []string {
	working := make([]string, 0, len(topics))
	for t := range topics {
		if c.stopped[t] == nil {
			working = append(working, t)
		}
	}
	slices.Sort(working)
	return working
}

// nextAsk returns when the poller looks for an event to try one of them with; zero: none waits for
// that.
func (c *destinations) nextAsk() (at time.Time) {
	for _, d := range c.stopped {
		if next := d.nextAsk(); d.waitsForProbe() && (at.IsZero() || next.Before(at)) {
			at = next
		}
	}
	return at
}

// destination is what this process knows of one topic: whether it is stopped (its breaker is open)
// and when it is tried again. Guarded by relay.mu.
type destination struct {
	topic    string
	lastAck  time.Time
	refusals refusals
	open     bool
	probing  bool      // an event is out to try it
	probeAt  time.Time // an event may try it from then on
	askedAt  time.Time // the poller found none then
	items    int       // in hand
	stuck    int       // publishes that were given up and have not returned
	clogged  bool      // these are so many that it gets no more
	probeGap time.Duration
	turn     probeTurn
	outage   outage
}

// probeTurn says which event tries a stopped destination next.
type probeTurn struct {
	count  uint  // of probes with rows of the table: unordered rows and keys in turn
	cursor KeyID // the key that was tried last
	fresh  bool  // a fresh event tried it since the last row of the table
}

// outage is what the log and the observer say of a stopped destination.
type outage struct {
	since  time.Time // when the breaker opened
	probes int       // that have failed since then
	logged time.Time // when the log said so last
}

// maxProbeSilence is how long the log says nothing of failed probes: the pauses between its lines
// double up to that.
const maxProbeSilence = time.Minute

// waitsForProbe reports whether an event is wanted to try it with, now or later.
func (d *destination) waitsForProbe() bool { return d.open && !d.probing && !d.clogged }

func (d *destination) mayProbe(now time.Time) bool {
	return d.waitsForProbe() && !now.Before(d.probeAt)
}

// mayProbeHot reports whether an event that has just been written may try it. Between two probes
// with rows of the table, which may all have been refused before, there is one with a fresh event.
func (d *destination) mayProbeHot(now time.Time) bool {
	return d.mayProbe(now) || d.waitsForProbe() && !d.turn.fresh
}

// nextAsk is when the poller looks for an event to try it with. It is asked for again and again
// while the destination is stopped, whatever other reasons for a poll come and go.
func (d *destination) nextAsk() time.Time {
	if again := d.askedAt.Add(d.probeGap); again.After(d.probeAt) {
		return again
	}
	return d.probeAt
}

// pause is how long an event waits that failed because of its destination: less than it takes to
// the next probe, which must not miss it when there is no other. When there are others, they have
// waited for longer and are tried first.
func (d *destination) pause() time.Duration { return d.probeGap / 2 }

// inUse reports whether what is known of it must not be forgotten.
func (d *destination) inUse() bool { return d.items > 0 || d.open || d.stuck > 0 }
