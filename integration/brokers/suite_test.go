package brokers_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// scenarios run with each broker. They compare the messages of the broker with the rows of the
// relay and with features.
var scenarios = []struct {
	name string
	run  func(b features, t *testing.T, k broker)
	long bool // with -short it runs once for each column
}{
	{"headers arrive byte for byte", features.checkHeaders, false},
	{"a message is published twice", features.checkCopies, false},
	{"large payloads", features.checkLargest, true},
	{"outcomes", features.checkOutcomes, false},
	{"one of many is refused", features.checkOneRefused, false},
	{"order of keys", features.checkOrder, false},
	{"two destinations", features.checkTwoDestinations, true},
	{"slow answers", features.checkSlow, true},
	{"answers after the timeout", features.checkTimeout, true},
	{"connections break", features.checkCut, false},
	{"the first server is down", features.checkFirstDown, false},
	{"a topic is made again", features.checkMadeAgain, false},
}

// Each cell of the table of features is true.
func TestFeaturesOfBrokers(t *testing.T) {
	t.Parallel()
	for _, b := range allBrokers() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			b.check(t, b.open)
		})
		if !b.survives || b.start == nil || testing.Short() { // `make test-all` starts clusters
			continue
		}
		t.Run(b.name+", three servers", func(t *testing.T) {
			t.Parallel()
			k, _ := b.start(t)
			for _, f := range b.column() {
				f.taken, f.class = false, core.ClassUnavailable // these servers make no topics by themselves
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					f.check(t, func(*testing.T) broker { return f.on(k) })
				})
			}
		})
	}
}

// check runs the scenarios.
func (b features) check(t *testing.T, open func(t *testing.T) broker) {
	t.Helper()
	for _, s := range scenarios {
		if s.long && b.like != "" && testing.Short() {
			continue // `make test-all` runs it
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.run(b, t, open(t))
		})
	}
}

// Servers of a broker hang, and are killed, while events are on their way.
func TestBrokersAway(t *testing.T) {
	t.Parallel()
	for _, b := range allBrokers() {
		if b.like != "" || b.heavy && testing.Short() {
			continue // `make test-all` runs the heavy ones too
		}
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			if b.start == nil {
				b.checkGone(t)
				return
			}
			k, server := b.start(t)
			var flows []*awayFlow
			for _, f := range b.column() {
				flows = append(flows, newAwayFlow(t, f, f.on(k)))
			}
			checkAway(t, flows, server)
		})
	}
}

// checkHeaders compares the headers of a message with those of the event, and checks the receipt.
func (b features) checkHeaders(t *testing.T, k broker) {
	t.Helper()
	topic := k.topic(t)
	p := k.publisher(t, time.Minute)
	e := brokerDelivery(t, topic, "order/ö 1")
	e.AggregateID, e.TenantID = "Größe \"1\" 100%", "a,b;c=d"
	for name, v := range map[string]string{
		"CaSe": "Kept", "under_score": "x", "quotes": `"a" 'b' <c> & \d`, "percent": "%41%",
		"wide":          "\U0001F4E6 \u2028",
		"inner  blanks": "", "empty": "", "long": strings.Repeat("v", 2000), "base64": "AA==", "json": `{"a":[1]}`,
	} {
		if core.CheckHeader(name, v) == nil {
			e.Headers[name] = v
		}
	}
	blanks := e.Event
	blanks.Headers = map[string]string{"blanks": " around "}
	if err := p.CheckSize(blanks); (err != nil) != b.refusesBlanks {
		t.Errorf("blanks around a value: %v, want refused %v", err, b.refusesBlanks)
	}
	if !b.refusesBlanks {
		e.Headers["blanks"] = " around "
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	receipt, err := p.PublishWithReceipt(ctx, e)
	fixture.NoError(t, err)
	fixture.Check(t, regexp.MustCompile("^("+b.form+")$").MatchString(receipt),
		"receipt %q, want %s", receipt, b.form)
	held := k.held(t, topic)
	fixture.Must(t, len(held) == 1 && held[0].place == receipt && held[0].UUID == e.ID,
		"receipt %q: the broker has %+v", receipt, held)
	requireDelivery(t, held[0].Message, e)
}

// checkCopies publishes a message twice, as after a lost answer.
func (b features) checkCopies(t *testing.T, k broker) {
	t.Helper()
	topic := k.topic(t)
	p := k.publisher(t, time.Minute)
	e := brokerDelivery(t, topic, "k")
	for range 2 {
		fixture.NoError(t, publishWithin(t, p, e, time.Minute))
	}
	held := k.held(t, topic)
	if want := map[bool]int{true: 1, false: 2}[b.recognises]; len(held) != want {
		t.Errorf("%d copies, want %d", len(held), want)
	}
	for _, h := range held {
		requireDelivery(t, h.Message, e)
	}
}

// checkLargest checks the limit of payloads. If the bridge knows a limit, the outbox refuses to
// record a payload that is one byte larger, and records one that is 64 KiB smaller. The second one
// is sent, cut to 16 MiB, or to 1 MiB with -short.
func (b features) checkLargest(t *testing.T, k broker) {
	t.Helper()
	topic := k.topic(t)
	p := k.publisher(t, time.Minute)
	e := brokerDelivery(t, topic, "k")
	limit := b.largestBytes
	if limit == 0 {
		limit = 1 << 30
	}
	e.Payload = make([]byte, limit+1)
	if err := p.CheckSize(e.Event); (err != nil) != (b.largestBytes > 0) {
		t.Errorf("%d bytes: %v", len(e.Payload), err)
	}
	e.Payload = e.Payload[:limit-64<<10]
	if err := p.CheckSize(e.Event); err != nil {
		t.Errorf("%d bytes: %v", len(e.Payload), err)
	}
	most := 16 << 20
	if testing.Short() {
		most = 1 << 20
	}
	e.Payload = e.Payload[:min(len(e.Payload), most)]
	for i := range e.Payload {
		e.Payload[i] = byte(i * 7)
	}
	fixture.NoError(t, publishWithin(t, p, e, time.Minute))
	held := k.held(t, topic)
	fixture.Must(t, len(held) == 1, "the broker has %d messages", len(held))
	if string(held[0].Payload) != string(e.Payload) { // requireDelivery would print both
		t.Errorf("%d bytes arrived, which are not the %d that were sent", len(held[0].Payload), len(e.Payload))
	}
}

// checkOutcomes relays events that the broker takes, one that it refuses, and one of a topic that
// nobody has made.
func (b features) checkOutcomes(t *testing.T, k broker) {
	t.Helper()
	good, missing := k.topic(t), "it-"+core.NewEventID()
	r := k.refusal(t)
	if r == nil {
		r = &refusal{publisher: k.publisher(t, 0), topic: good}
	}
	if (r.payload != "") != b.dies || (r.cure != nil) != b.waits {
		t.Fatalf("%+v differs from the table, which says: %s", r, b.refused)
	}
	o := newOutage(t, core.Config{Publisher: r.publisher, Relay: relay.Config{Retry: eager}})
	publish := func(topic, key, payload string) {
		t.Helper()
		o.publish(core.Event{Type: "placed", Topic: topic, Key: key, Payload: []byte(payload)})
	}
	statuses := func(key string) map[outboxtest.Status]int {
		n := map[outboxtest.Status]int{}
		for _, row := range o.repo.Rows() {
			if row.Event.Key == key {
				n[row.Status]++
			}
		}
		return n
	}
	for range 5 {
		publish(good, "good", `{}`)
	}

	if b.taken {
		publish(missing, "missing", `{}`)
	} else {
		publishOnce(t, r.publisher, brokerDelivery(t, missing, "k"), b.class.String())
		// The publisher may know that there is no such topic, so a process without it records the
		// event.
		o.record(core.Event{Type: "placed", Topic: missing, Key: "missing"})
	}
	switch {
	case b.dies:
		publish(r.topic, "bad", r.payload)
		publish(r.topic, "bad", `{}`) // waits behind the refused event
		fixture.Await(t, "the event is dead", func() bool {
			if s := statuses("other"); len(s) == 0 || s[outboxtest.StatusDone] > 0 && len(s) == 1 {
				publish(r.topic, "other", `{}`)
			}
			return statuses("bad")[outboxtest.StatusDead] == 1
		})
		if s := statuses("bad"); s[outboxtest.StatusNew] != 1 {
			t.Errorf("the key of the dead event has %v", s)
		}
	case b.waits:
		publish(r.topic, "bad", `{}`)
		publish(r.topic, "bad", `{}`)
		o.awaitFailuresOf(r.topic, 3)
		if s := statuses("bad"); s[outboxtest.StatusDead]+s[outboxtest.StatusDone] != 0 {
			t.Errorf("refused events are %v", s)
		}
		r.cure()
		fixture.Await(t, "the events leave", func() bool { return statuses("bad")[outboxtest.StatusDone] == 2 })
	}
	for _, key := range []string{"good", "other"} {
		fixture.Await(t, key+" events are done", func() bool {
			s := statuses(key)
			return len(s) == 0 || len(s) == 1 && s[outboxtest.StatusDone] > 0
		})
	}
	if b.taken {
		fixture.Await(t, "the topic is made", func() bool { return statuses("missing")[outboxtest.StatusDone] == 1 })
	} else if s := statuses("missing"); s[outboxtest.StatusNew]+s[outboxtest.StatusRetry] != 1 {
		t.Errorf("an event of a missing topic: %v", s)
	}
	o.compare(k, good, r.topic)
	if b.drop != nil && b.taken {
		b.drop(t, k, missing)
	}
}

// checkOneRefused relays many events at once, one of which the broker refuses. It refuses that one
// alone, also if the client has sent it together with others. The others are together larger than
// the broker takes in one batch.
func (b features) checkOneRefused(t *testing.T, k broker) {
	t.Helper()
	if !b.dies {
		return // the broker refuses no event on its own
	}
	const events = 60
	r := k.refusal(t)
	o := newOutage(t, core.Config{Publisher: r.publisher, Relay: relay.Config{Retry: eager}})
	many := make([]core.Event, events)
	for i := range many {
		many[i] = core.Event{Type: "placed", Topic: r.topic, Payload: []byte(`{}`)}
		if b.largestBytes > 0 { // the refused one is too large: these are a quarter of the limit
			many[i].Payload = []byte(strings.Repeat("y", len(r.payload)/8))
		}
	}
	many[events/2].Payload = []byte(r.payload)
	o.publish(many...)
	fixture.Await(t, "every event has its outcome", func() bool {
		ended := 0
		for _, row := range o.repo.Rows() {
			if row.Status == outboxtest.StatusDone || row.Status == outboxtest.StatusDead {
				ended++
			}
		}
		return ended == events
	})
	for _, row := range o.repo.Rows() {
		if dead := row.Status == outboxtest.StatusDead; dead != (string(row.Event.Payload) == r.payload) {
			t.Errorf("an event of %d bytes is %v: %s %s", len(row.Event.Payload), row.Status, row.ErrorCode, row.Error)
		}
	}
	if most := o.compare(k, r.topic); most != 1 {
		t.Errorf("an event has %d copies", most)
	}
}

// patience is the time limit of a publish where no event may be sent twice.
const patience = time.Minute

// checkOrder relays events of several types and many keys at once, to the topic that they have by
// default: that of their aggregates.
func (b features) checkOrder(t *testing.T, k broker) {
	t.Helper()
	const keys, each = 7, 30
	topic := k.topic(t)
	o := newOutage(t, core.Config{
		Publisher: k.publisher(
			t,
			patience,
		),
		Relay: relay.Config{PublishTimeout: patience, HotLease: 2 * patience, ClaimLease: 2 * patience},
	})
	for n := range each {
		events := keyed("", keys)
		for i := range events {
			e := &events[i]
			e.Type, e.AggregateType, e.AggregateID, e.Key = fmt.Sprint("counted.", n%3), topic, e.Key, ""
		}
		o.publish(events...)
	}
	o.wantStatus(outboxtest.StatusDone, "everything is published")
	if most := o.compare(k, topic); most != 1 {
		t.Errorf("an event has %d copies though nothing failed", most)
	}
}

// keyed returns an event of each key.
func keyed(topic string, keys int) []core.Event {
	var events []core.Event
	for key := range keys {
		events = append(events, core.Event{
			Type: "counted", Topic: topic, Key: fmt.Sprint("key/", key), Payload: []byte(`{}`),
		})
	}
	return events
}

// checkTwoDestinations relays events with two topics. One of them is down for a while, and the
// other one does not wait for it.
func (b features) checkTwoDestinations(t *testing.T, k broker) {
	t.Helper()
	const keys, each = 3, 5
	first, second := k.topic(t), k.topic(t)
	p := k.publisher(t, patience)
	var up atomic.Bool
	router := core.NewRouter()
	router.Handle(first, p)
	router.HandleFunc(second, func(ctx context.Context, d core.Delivery) error {
		if !up.Load() {
			return core.Unavailable(fmt.Errorf("%s is down", second))
		}
		return p.Publish(ctx, d)
	})
	o := newOutage(t, core.Config{
		Publisher: router, Routes: map[string][]string{"counted": {first, second}}, Relay: relay.Config{
			Retry:          eager,
			PublishTimeout: patience, HotLease: 2 * patience, ClaimLease: 2 * patience,
		},
	})
	for range each {
		o.publish(keyed("", keys)...)
	}
	fixture.Await(t, "the events of the first destination are done", func() bool {
		done := 0
		for _, row := range o.repo.Rows() {
			if row.Status == outboxtest.StatusDone && row.Event.Topic == first {
				done++
			}
		}
		return done == keys*each
	})
	up.Store(true)
	o.wantStatus(outboxtest.StatusDone, "the second destination is up")
	o.noReceipts = true // HandleFunc returns no receipts
	if most := o.compare(k, first, second); most != 1 {
		t.Errorf("an event has %d copies though nothing failed", most)
	}
	ids := map[string]int{}
	for _, topic := range []string{first, second} {
		for _, h := range k.held(t, topic) {
			ids[h.Metadata[core.HeaderEventID]]++
		}
	}
	for id, n := range ids {
		fixture.Check(t, n == 2, "event %s is at %d destinations", id, n)
	}
	fixture.Check(t, len(ids) == keys*each, "%d events at two destinations, want %d", len(ids), keys*each)
}

// checkSlow delays each answer. Events of different keys do not wait for each other's answers.
func (b features) checkSlow(t *testing.T, k broker) {
	t.Helper()
	const each, delay = 2, 500 * time.Millisecond
	keys := 24
	if b.oneByOne {
		keys = 3
	}
	topic := k.topic(t)
	p, answers := k.through(t, 20*time.Second)
	var mu sync.Mutex
	var last time.Time
	closest := time.Hour // the shortest time from one answer to the next
	o := newOutage(t, core.Config{
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
	o.publish(core.Event{Type: "first", Topic: topic}) // connects
	o.wantStatus(outboxtest.StatusDone, "the first event")
	answers.Delay(delay)
	began := time.Now()
	for range each {
		o.publish(keyed(topic, keys)...)
	}
	o.wantStatus(outboxtest.StatusDone, "all answers came")
	took, least := time.Since(began), each*delay
	if b.oneByOne {
		least *= time.Duration(keys)
	}
	fixture.Check(t, took >= least, "took %s, want %s at least: answers were not waited for", took, least)
	// Events that wait for each other's answers get them a delay apart, however slow the machine is.
	mu.Lock()
	fixture.Check(t, b.oneByOne || closest < delay, "each answer came %s or more after the one before", closest)
	mu.Unlock()
	if most := o.compare(k, topic); most != 1 {
		t.Errorf("an event has %d copies though every answer came in time", most)
	}
}

// checkTimeout keeps the answers for longer than the relay waits. The broker has the events, and
// the relay sends them again.
func (b features) checkTimeout(t *testing.T, k broker) {
	t.Helper()
	const keys, each, timeout = 3, 2, time.Second
	topic := k.topic(t)
	p, answers := k.through(t, timeout)
	o := newOutage(
		t,
		core.Config{Publisher: p, Relay: relay.Config{PublishTimeout: timeout, Retry: eager, Breaker: soon}},
	)
	o.publish(keyed(topic, keys)...)
	o.wantStatus(outboxtest.StatusDone, "the first events")
	// If the machine stands still, the time of a publish may be over before the client has sent the
	// event, and the broker gets it once. Then the next round shows what the broker does with copies.
	most := 1
	for round := 0; round == 0 || most == 1 && !b.recognises && round < 10; round++ {
		o.forgetFailures()
		answers.Hold()
		for range each {
			o.publish(keyed(topic, keys)...)
		}
		o.awaitFailures(keys + 1)
		answers.Release()
		o.wantStatus(outboxtest.StatusDone, "the answers come")
		fixture.Await(t, "calls that were left behind return", func() bool {
			bridge, ok := p.(*watermillbridge.Publisher)
			return !ok || bridge.Stuck() == 0
		})
		most = o.compare(k, topic)
	}
	fixture.Check(t, (most == 1) == b.recognises, "an event that timed out has %d copies, want one: %v", most,
		b.recognises)
}

// checkCut cuts connections while events are on their way.
func (b features) checkCut(t *testing.T, k broker) {
	t.Helper()
	const keys, each, timeout = 6, 20, 2 * time.Second
	topic := k.topic(t)
	p, answers := k.through(t, timeout)
	o := newOutage(
		t,
		core.Config{Publisher: p, Relay: relay.Config{PublishTimeout: timeout, Retry: eager, Breaker: soon}},
	)
	for n := range each {
		o.publish(keyed(topic, keys)...)
		if n%5 == 4 {
			answers.Cut()
		}
	}
	for range 4 { // more cuts, while fewer events are on their way
		o.publish(keyed(topic, keys)...)
		answers.Cut()
	}
	o.wantStatus(outboxtest.StatusDone, "everything is published though connections broke")
	if most := o.compare(k, topic); b.recognises && most != 1 {
		t.Errorf("an event has %d copies", most)
	}
}

// nobodyThere is an address where no server is.
const nobodyThere = "127.0.0.1:1"

// checkFirstDown publishes while the first server of several is down.
func (b features) checkFirstDown(t *testing.T, k broker) {
	t.Helper()
	topic := k.topic(t)
	p := k.behind(t, nobodyThere)
	if p == nil {
		return
	}
	d := brokerDelivery(t, topic, "k")
	fixture.NoError(t, publishWithin(t, p, d, time.Minute))
	held := k.held(t, topic)
	fixture.Must(t, len(held) == 1, "the broker has %d messages", len(held))
	requireDelivery(t, held[0].Message, d)
}

// checkMadeAgain relays to a topic that is deleted and made again twice. The same relay publishes to
// the new topic.
func (b features) checkMadeAgain(t *testing.T, k broker) {
	t.Helper()
	topic := k.topic(t)
	o := newOutage(t, core.Config{Publisher: k.publisher(t, 0), Relay: relay.Config{Retry: eager, Breaker: soon}})
	o.publish(keyed(topic, 7)...)
	o.wantStatus(outboxtest.StatusDone, "the first events")
	for range 2 {
		if !k.again(t, topic) {
			return
		}
		o.publish(keyed(topic, 7)...)
		o.wantStatus(outboxtest.StatusDone, "the events of the new topic")
	}
	keys := map[string]bool{}
	for _, h := range k.held(t, topic) {
		keys[h.Metadata[core.HeaderPartitionKey]] = true
	}
	fixture.Check(t, len(keys) == 7, "the new topic has events of %d keys, want 7", len(keys))
}

// awayFlow is a relay to a broker whose server goes away.
type awayFlow struct {
	features
	*outage
	broker broker
	topic  string
}

func newAwayFlow(t *testing.T, b features, k broker) *awayFlow {
	t.Helper()
	const timeout = 2 * time.Second
	f := &awayFlow{features: b, broker: k, topic: k.topic(t)}
	retry := eager
	if b.survives { // a timeout while other servers acknowledge spends an attempt
		retry = relay.RetryPolicy{MaxDelay: time.Second}
	}
	cfg := core.Config{
		Publisher: k.publisher(t, timeout), Relay: relay.Config{PublishTimeout: timeout, Retry: retry, Breaker: soon},
	}
	f.outage = newOutage(t, cfg)
	return f
}

// checkAway pauses a server and kills one with SIGKILL while events are on their way.
func checkAway(t *testing.T, flows []*awayFlow, server server) {
	t.Helper()
	publish := func() {
		t.Helper()
		for _, f := range flows {
			for range 5 {
				f.publish(keyed(f.topic, 6)...)
			}
		}
	}
	done := func(what string) {
		t.Helper()
		for _, f := range flows {
			f.wantStatus(outboxtest.StatusDone, f.name+": "+what)
		}
	}
	publish()
	done("the first events")
	for _, way := range []struct {
		name     string
		away, up func(t *testing.T)
	}{{"paused", server.Pause, server.Resume}, {"killed", server.Kill, server.Up}} {
		publish()
		for _, f := range flows {
			f.forgetFailures()
		}
		way.away(t)
		publish()
		for _, f := range flows {
			if f.survives {
				f.wantStatus(outboxtest.StatusDone, f.name+" "+way.name+": the other servers go on")
			} else {
				f.awaitFailures(6)
			}
		}
		publish()
		way.up(t)
		done(way.name + ": events leave once the server is back")
	}
	for _, f := range flows {
		if most := f.compare(f.broker, f.topic); f.recognises && most != 1 {
			t.Errorf("%s: an event has %d copies", f.name, most)
		}
	}
}

// checkGone shows which messages Go channels lose: those of a topic without a consumer, and those
// that the consumer has not acknowledged when the channel is closed. Close of the bridge's
// publisher would wait for the acknowledgements before it closes the channel; this test closes the
// channel itself.
func (b features) checkGone(t *testing.T) {
	t.Helper()
	k := newChannelBroker()
	topic, missing := k.topic(t), "it-"+core.NewEventID()
	p := k.publisher(t, 0)
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, missing, "k"), time.Minute))
	messages, err := k.channel.Subscribe(t.Context(), missing)
	fixture.NoError(t, err)
	k.Hold()
	done := make(chan error, 1)
	go func() { done <- publishWithin(t, p, brokerDelivery(t, topic, "k"), time.Minute) }()
	fixture.Await(t, "the consumer has the event", func() bool { return len(k.held(t, topic)) == 1 })
	select {
	case err := <-done:
		t.Fatalf("published without an acknowledgement: %v", err)
	case msg := <-messages:
		t.Fatalf("a new consumer gets an event from before: %v", msg)
	case <-time.After(50 * time.Millisecond):
	}
	fixture.NoError(t, k.channel.Close())
	if err := <-done; err != nil {
		t.Errorf("the channel was closed before the acknowledgement: %v; the table says: %s", err, b.away)
	}
}
