package amqpbridge

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Pauses of a topic whose messages the broker refuses.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// maxRefusing bounds the memory of refusals: when there are more topics, those whose pause is over
// are forgotten, and pause as if for the first time.
const maxRefusing = 10_000

// refusals has the topics whose last answer was a nack. Such a topic pauses, each time for longer.
// An exchange that has several queues stores a refused message in the queues that have room, so
// each further attempt is a copy there. The zero value is empty.
type refusals struct {
	mu      sync.Mutex
	byTopic map[string]refusal
}

type refusal struct {
	pause time.Duration
	until time.Time
}

// err returns the error of a message that is not sent, because its topic pauses.
func (r *refusals) err(topic string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := time.Until(r.byTopic[topic].until)
	if left <= 0 {
		return nil
	}
	return nacked(topic, left)
}

// nack notes a nack, and returns its error. The nacks of messages that were sent before a pause do
// not make it longer.
func (r *refusals) nack(topic string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, last := time.Now(), r.byTopic[topic]
	if !now.Before(last.until) {
		last.pause = min(max(2*last.pause, firstPause), longestPause)
		last.until = now.Add(last.pause)
	}
	if r.byTopic == nil {
		r.byTopic = map[string]refusal{}
	}
	if len(r.byTopic) >= maxRefusing {
		maps.DeleteFunc(r.byTopic, func(_ string, other refusal) bool { return !now.Before(other.until) })
	}
	r.byTopic[topic] = last
	return nacked(topic, last.until.Sub(now))
}

// ack notes that the broker took a message.
func (r *refusals) ack(topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byTopic, topic)
}

// nacked makes an error of a nack. It is never the event's fault. The relay tries nothing of the
// topic until the pause is over, so there is no other pause beside it.
func nacked(topic string, left time.Duration) error {
	return core.UnavailableFor(fmt.Errorf("%w of topic %q; it waits for %s: a queue with overflow=reject-publish is "+
		"full, a quorum queue has no quorum, or the broker had an error, which is in its log", ErrNack, topic,
		max(left.Round(time.Second), time.Second)), left)
}
