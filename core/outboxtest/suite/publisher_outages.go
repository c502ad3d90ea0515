package suite

import (
	"sync"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// slow delays each answer. Events of different keys do not wait for each other's answers.
func (f *publisherFixture) slow() {
	const each, delay = 2, 500 * time.Millisecond
	if f.lacks(f.Through == nil, "Through") {
		return
	}
	keys := 24
	if f.OneByOne {
		keys = 3
	}
	topic := f.Topic(f.T)
	p, link := f.Through(f.T, 20*time.Second)
	var mu sync.Mutex
	var last time.Time
	closest := time.Hour // the shortest time from one answer to the next
	o := f.flow(core.Config{
		Publisher: p,
		Relay:     relay.Config{PublishTimeout: 20 * time.Second, HotLease: time.Minute},
		Observer: &core.Observer{Published: func(core.PublishInfo) {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			if !last.IsZero() {
				closest = min(closest, now.Sub(last))
			}
			last = now
		}},
	})
	o.record(core.Event{Type: "first", Topic: topic, Payload: []byte(`{}`)}) // connects
	o.awaitDone("the first event")
	link.Delay(delay)
	began := time.Now()
	for range each {
		o.record(keyed(topic, keys)...)
	}
	o.awaitDone("all answers came")
	took, least := time.Since(began), each*delay
	if f.OneByOne {
		least *= time.Duration(keys)
	}
	if took < least {
		f.Errorf("took %s, want %s at least: answers were not waited for", took, least)
	}
	// Events that wait for each other's answers get them a delay apart, however slow the machine is.
	mu.Lock()
	if !f.OneByOne && closest >= delay {
		f.Errorf("each answer came %s or more after the one before", closest)
	}
	mu.Unlock()
	if most := o.compare(topic); most != 1 {
		f.Errorf("an event has %d copies though every answer came in time", most)
	}
}

// timeout keeps the answers for longer than the relay waits. The broker has the events, and the
// relay sends them again.
func (f *publisherFixture) timeout() {
	const keys, each, timeout = 3, 2, time.Second
	if f.lacks(f.Through == nil, "Through") {
		return
	}
	topic := f.Topic(f.T)
	p, link := f.Through(f.T, timeout)
	o := f.flow(core.Config{
		Publisher: p, Relay: relay.Config{PublishTimeout: timeout, Retry: eager, Breaker: quickProbes},
	})
	o.record(keyed(topic, keys)...)
	o.awaitDone("the first events")
	// If the machine stands still, the time of a publish may be over before the client has sent the
	// event, and the broker gets it once. Then the next round shows what the broker does with copies.
	most := 1
	for round := 0; round == 0 || most == 1 && !f.DropsCopies && round < 10; round++ {
		o.forgetFailures()
		link.Hold()
		for range each {
			o.record(keyed(topic, keys)...)
		}
		o.awaitFailures("", keys+1)
		link.Release()
		o.awaitDone("the answers come")
		o.await("calls that were left behind return", func() bool {
			bridge, ok := p.(interface{ Stuck() int })
			return !ok || bridge.Stuck() == 0
		})
		most = o.compare(topic)
	}
	if (most == 1) != f.DropsCopies {
		f.Errorf("an event that timed out has %d copies, want one: %v", most, f.DropsCopies)
	}
}

// cut cuts connections while events are on their way, and while the broker has them and has not
// answered.
func (f *publisherFixture) cut() {
	const keys, each, timeout = 6, 20, 2 * time.Second
	if f.lacks(f.Through == nil, "Through") {
		return
	}
	topic := f.Topic(f.T)
	p, link := f.Through(f.T, timeout)
	o := f.flow(core.Config{
		Publisher: p, Relay: relay.Config{PublishTimeout: timeout, Retry: eager, Breaker: quickProbes},
	})
	for n := range each {
		o.record(keyed(topic, keys)...)
		if n%5 == 4 {
			link.Cut()
		}
	}
	for range 4 {
		link.Hold()
		o.forgetFailures()
		o.record(keyed(topic, keys)...)
		o.await("a publish fails", func() bool { link.Cut(); return len(o.failures) > 0 })
		link.Release()
		o.awaitDone("the connections are back")
	}
	o.awaitDone("everything is published though connections broke")
	if most := o.compare(topic); f.DropsCopies && most != 1 {
		f.Errorf("an event has %d copies", most)
	}
}

// nobodyThere is an address where no server is.
const nobodyThere = "127.0.0.1:1"

// firstDown publishes while the first server of several is down.
func (f *publisherFixture) firstDown() {
	if f.lacks(f.Behind == nil, "Behind") {
		return
	}
	topic := f.Topic(f.T)
	p := f.Behind(f.T, nobodyThere)
	d := f.delivery(topic, "k")
	_, err := f.publish(p, d)
	f.check(err)
	held := f.heldOf(topic, 1)
	if len(held) != 1 {
		f.Fatalf("the broker has %d messages", len(held))
	}
	f.same(held[0].Delivery, d)
}

// madeAgain relays to a topic that is deleted and made again twice. The same relay publishes to the
// new topic.
func (f *publisherFixture) madeAgain() {
	const keys = 7
	if f.lacks(f.Again == nil, "Again") {
		return
	}
	topic := f.Topic(f.T)
	o := f.flow(core.Config{Publisher: f.Publisher(f.T, 0), Relay: relay.Config{Retry: eager, Breaker: quickProbes}})
	o.record(keyed(topic, keys)...)
	o.awaitDone("the first events")
	for range 2 {
		f.Again(f.T, topic)
		o.record(keyed(topic, keys)...)
		o.awaitDone("the events of the new topic")
	}
	seen := map[string]bool{}
	for _, h := range f.heldOf(topic, keys) {
		seen[h.Delivery.Key] = true
	}
	if len(seen) != keys {
		f.Errorf("the new topic has events of %d keys, want %d", len(seen), keys)
	}
}

// TestPublishersAway pauses a server, and kills one, while events are on their way to it. The
// publishers of all harnesses share the server. An outage spends no attempt.
func TestPublishersAway(t *testing.T, server Server, harnesses map[string]PublisherHarness) {
	const timeout = 2 * time.Second
	flows, topics := map[string]*publisherFlow{}, map[string]string{}
	for name, h := range harnesses {
		f := &publisherFixture{T: t, PublisherHarness: h, Broker: h.Open(t)}
		topics[name] = f.Topic(t)
		retry := eager
		if f.Survives { // a timeout while other servers acknowledge spends an attempt
			retry = relay.RetryPolicy{MaxDelay: time.Second}
		}
		flows[name] = f.flow(core.Config{
			Publisher: f.Publisher(t, timeout),
			Relay:     relay.Config{PublishTimeout: timeout, Retry: retry, Breaker: quickProbes},
		})
	}
	record := func() {
		for name, o := range flows {
			for range 5 {
				o.record(keyed(topics[name], 6)...)
			}
		}
	}
	done := func(what string) {
		for name, o := range flows {
			o.awaitDone(name + ": " + what)
		}
	}
	record()
	done("the first events")
	for _, way := range []struct {
		name     string
		away, up func(t *testing.T)
	}{{"paused", server.Pause, server.Resume}, {"killed", server.Kill, server.Up}} {
		record()
		for _, o := range flows {
			o.forgetFailures()
		}
		way.away(t)
		record()
		for name, o := range flows {
			if o.Survives {
				o.awaitDone(name + " " + way.name + ": the other servers go on")
			} else {
				o.awaitFailures("", 6)
			}
		}
		record()
		way.up(t)
		done(way.name + ": events leave once the server is back")
	}
	for name, o := range flows {
		if most := o.compare(topics[name]); o.DropsCopies && most != 1 {
			t.Errorf("%s: an event has %d copies", name, most)
		}
	}
}
