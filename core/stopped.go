package core

import (
	"slices"
	"strings"
	"time"
)

// StoppedDestination is a destination whose breaker is open in this process: its events wait and
// spend no attempts.
type StoppedDestination struct {
	Topic    string
	Since    time.Time // when it was stopped, by the clock of this process
	Failures int       // probes that failed since then
	Stuck    int       // publishes of it that have not returned although their context ended
	Err      error     // the latest refusal
}

// Stopped returns the destinations that the relay of this process has stopped, sorted by topic. It
// returns none if this process does not relay. It uses no database.
func (o *Outbox) Stopped() []StoppedDestination {
	r := o.relay.Load()
	if r == nil {
		return nil
	}
	return r.stoppedNow()
}

func (r *relay) stoppedNow() []StoppedDestination {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []StoppedDestination
	for _, d := range r.dests.stopped {
		all = append(all, StoppedDestination{
			Topic: d.topic, Since: d.outage.since, Failures: d.outage.probes, Stuck: d.stuck, Err: d.outage.cause,
		})
	}
	slices.SortFunc(all, func(a, b StoppedDestination) int { return strings.Compare(a.Topic, b.Topic) })
	return all
}

// DeadPolicy returns Config.DeadPolicy: whether a dead event blocks its key.
func (o *Outbox) DeadPolicy() DeadPolicy { return o.cfg.DeadPolicy }
