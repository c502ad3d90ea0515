package suite

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// refusal returns what the broker refuses. Without a Refusal its Payload and Cure are empty.
func (f *publisherFixture) refusal(topic string) Refusal {
	if f.Refusal == nil {
		return Refusal{Publisher: f.Publisher(f.T, 0), Topic: topic}
	}
	return f.Refusal(f.T)
}

// outcomes relays events that the broker takes, one that it refuses, and one of a topic that nobody
// has made.
func (f *publisherFixture) outcomes() {
	good, missing := f.Topic(f.T), "missing-"+core.NewEventID()
	if f.Missing != nil {
		missing = f.Missing(f.T)
	}
	r := f.refusal(good)
	o := f.flow(core.Config{Publisher: r.Publisher, Relay: relay.Config{Retry: eager}})
	event := func(topic, key, payload string) core.Event {
		return core.Event{Type: "placed", Topic: topic, Key: key, Payload: []byte(payload)}
	}
	for range 5 {
		o.record(event(good, "good", `{}`))
	}
	o.publishMissing(r.Publisher, missing)
	bad := event(r.Topic, "bad", r.Payload)
	switch {
	case r.Payload != "":
		o.record(bad)
		o.record(event(r.Topic, "bad", `{}`)) // waits behind the refused event
		o.await("the event is dead", func() bool {
			if s := o.statuses("other"); len(s) == 0 || s[outboxtest.StatusDone] > 0 && len(s) == 1 {
				o.record(event(r.Topic, "other", `{}`))
			}
			return o.statuses("bad")[outboxtest.StatusDead] == 1
		})
		if s := o.statuses("bad"); s[outboxtest.StatusNew] != 1 {
			f.Errorf("the key of the dead event has %v", s)
		}
	case r.Cure != nil:
		bad.Payload = []byte(`{}`)
		o.record(bad)
		o.record(bad)
		o.awaitFailures(r.Topic, 3)
		if s := o.statuses("bad"); s[outboxtest.StatusDead]+s[outboxtest.StatusDone] != 0 {
			f.Errorf("refused events are %v", s)
		}
		r.Cure()
		o.await("the events leave", func() bool { return o.statuses("bad")[outboxtest.StatusDone] == 2 })
	}
	for _, key := range []string{"good", "other"} {
		o.await(key+" events are done", func() bool {
			s := o.statuses(key)
			return len(s) == 0 || len(s) == 1 && s[outboxtest.StatusDone] > 0
		})
	}
	if f.MakesTopics {
		o.await("the topic is made", func() bool { return o.statuses("missing")[outboxtest.StatusDone] == 1 })
	} else if s := o.statuses("missing"); s[outboxtest.StatusNew]+s[outboxtest.StatusRetry] != 1 {
		f.Errorf("an event of a missing topic: %v", s)
	}
	o.compare(good, r.Topic)
}

// publishMissing records an event of a topic that nobody has made.
func (o *publisherFlow) publishMissing(p core.Publisher, topic string) {
	e := core.Event{Type: "placed", Topic: topic, Key: "missing", Payload: []byte(`{}`)}
	if o.MakesTopics {
		o.record(e)
		return
	}
	_, err := o.publish(p, o.delivery(topic, "k"))
	if class, _ := core.ClassOf(err); err == nil || class != o.NoTopic {
		o.Errorf("a topic that nobody has made: %v, class %v; want %v", err, class, o.NoTopic)
	}
	// The publisher may know that there is no such topic, so a process without it records the event.
	o.recordElsewhere(e)
}

// oneRefused relays many events at once, one of which the broker refuses. It refuses that one
// alone, also if the client has sent it together with others. If the refused one is too large, the
// others are together larger than the broker takes in one batch.
func (f *publisherFixture) oneRefused() {
	const events = 60
	if f.lacks(f.Refusal == nil, "Refusal") {
		return
	}
	r := f.Refusal(f.T)
	if f.lacks(r.Payload == "", "Refusal of one event alone") {
		return
	}
	o := f.flow(core.Config{Publisher: r.Publisher, Relay: relay.Config{Retry: eager}})
	many := make([]core.Event, events)
	for i := range many {
		many[i] = core.Event{Type: "placed", Topic: r.Topic, Payload: []byte(`{}`)}
		if n := len(r.Payload); n > 1000 { // these are a quarter of the limit
			many[i].Payload = []byte(strings.Repeat("y", n/8))
		}
	}
	many[events/2].Payload = []byte(r.Payload)
	o.record(many...)
	o.await("every event has its outcome", func() bool {
		s := o.statuses("")
		return s[outboxtest.StatusDone]+s[outboxtest.StatusDead] == events
	})
	for _, row := range o.repo.Rows() {
		if dead := row.Status == outboxtest.StatusDead; dead != (string(row.Event.Payload) == r.Payload) {
			f.Errorf("an event of %d bytes is %v: %s %s", len(row.Event.Payload), row.Status, row.ErrorCode, row.Error)
		}
	}
	if most := o.compare(r.Topic); most != 1 {
		f.Errorf("an event has %d copies", most)
	}
}

// order relays events of several types and many keys at once, to the topic that they have by
// default: that of their aggregates.
func (f *publisherFixture) order() {
	const keys, each = 7, 30
	topic := f.Topic(f.T)
	o := f.flow(core.Config{Publisher: f.Publisher(f.T, unhurried), Relay: patient})
	for n := range each {
		events := keyed("", keys)
		for i := range events {
			e := &events[i]
			e.Type, e.AggregateType, e.AggregateID, e.Key = fmt.Sprint("counted.", n%3), topic, e.Key, ""
		}
		o.record(events...)
	}
	o.awaitDone("everything is published")
	if most := o.compare(topic); most != 1 {
		f.Errorf("an event has %d copies though nothing failed", most)
	}
}

// twoDestinations relays events with two topics. One of them is down for a while, and the other one
// does not wait for it.
func (f *publisherFixture) twoDestinations() {
	const keys, each = 3, 5
	first, second := f.Topic(f.T), f.Topic(f.T)
	p := f.Publisher(f.T, unhurried)
	var up atomic.Bool
	router := core.NewRouter()
	router.Handle(first, p)
	router.HandleFunc(second, func(ctx context.Context, d core.Delivery) error {
		if !up.Load() {
			return core.Unavailable(fmt.Errorf("%s is down", second))
		}
		return p.Publish(ctx, d)
	})
	waits := patient
	waits.Retry = eager
	o := f.flow(core.Config{
		Publisher: router, Routes: map[string][]string{"counted": {first, second}}, Relay: waits,
	})
	for range each {
		o.record(keyed("", keys)...)
	}
	o.await("the events of the first destination are done", func() bool {
		done := 0
		for _, row := range o.repo.Rows() {
			if row.Status == outboxtest.StatusDone && row.Event.Topic == first {
				done++
			}
		}
		return done == keys*each
	})
	up.Store(true)
	o.awaitDone("the second destination is up")
	o.noReceipts = true // HandleFunc returns no receipts
	if most := o.compare(first, second); most != 1 {
		f.Errorf("an event has %d copies though nothing failed", most)
	}
	ids := map[string]int{}
	for _, topic := range []string{first, second} {
		for _, h := range f.heldOf(topic, keys*each) {
			ids[h.Delivery.ID]++
		}
	}
	for id, n := range ids {
		if n != 2 {
			f.Errorf("event %s is at %d destinations", id, n)
		}
	}
	if len(ids) != keys*each {
		f.Errorf("%d events at two destinations, want %d", len(ids), keys*each)
	}
}
