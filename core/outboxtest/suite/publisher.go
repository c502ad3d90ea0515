package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// PublisherHarness gives TestPublisher access to a publisher and to its broker, and says what the
// two do. The suite also fails if they do more than that.
type PublisherHarness struct {
	// Open opens the broker. It is called once for each case; cases run in parallel.
	Open func(t *testing.T) Broker

	// Unordered: the broker does not keep the order of a key.
	Unordered bool
	// DropsCopies: the broker recognises a message that it gets twice, and keeps one.
	DropsCopies bool
	// Refuses has the unusual events that the publisher refuses when they are recorded (see
	// core.SizeChecker). All others arrive unchanged. Their names are "blanks around a value", "an
	// empty value", "a value of 2,000 bytes", "a name of signs", "a name of Google's", "64 headers",
	// "a key of 255 bytes", "a key that is not ASCII", "an empty payload", "a payload that is not
	// UTF-8" and "a payload of control characters".
	Refuses []string
	// LargestPayload: a larger payload is refused when it is recorded, and one that is 64 KiB
	// smaller is taken. 0: there is no limit.
	LargestPayload int
	// Receipt is a regular expression for the whole receipt. Empty: there are no receipts.
	Receipt string
	// MakesTopics: an event of a topic that nobody has made is published. Else NoTopic is the class
	// of the error.
	MakesTopics bool
	NoTopic     core.Class
	// OneByOne: events of one topic wait for the acknowledgements of each other.
	OneByOne bool
	// Survives: events go on while one of the servers is away. For TestPublishersAway.
	Survives bool
	// Brief leaves out the cases that take seconds.
	Brief bool
}

// Broker is a broker, or another destination, together with its publisher. Functions without the
// word "optional" are required. If an optional one is nil, its cases log that and end.
type Broker struct {
	// Topic makes a topic. No other case uses it.
	Topic func(t *testing.T) string
	// Publisher connects to the broker. It may know only the topics that were made before. A publish
	// should take at most timeout; 0: as usual. It is closed when the test ends.
	Publisher func(t *testing.T, timeout time.Duration) core.Publisher
	// Held returns all messages of a topic as consumers get them. Those of one key are in order. The
	// suite calls it again if messages are still missing.
	Held func(t *testing.T, topic string) []Held

	// Adds has the names of headers that the broker adds to each message. Optional.
	Adds []string
	// Missing returns the name of a topic that nobody has made, and deletes the topic if the test
	// has made it. Optional: without it the name is a new one.
	Missing func(t *testing.T) string
	// Through is Publisher over a connection that the suite disturbs: see NewProxy. Optional.
	Through func(t *testing.T, timeout time.Duration) (core.Publisher, Link)
	// Behind is Publisher with the address of another server before those of the broker. Optional:
	// a client may take one address only.
	Behind func(t *testing.T, other string) core.Publisher
	// Again deletes a topic and makes another one of that name. Optional.
	Again func(t *testing.T, topic string)
	// Refusal prepares an event that the broker refuses. Optional: a broker may take every event.
	Refusal func(t *testing.T) Refusal
}

// Held is a message that a broker has.
type Held struct {
	// Delivery is what a consumer reads from the message, by watermillbridge.EventFromMessage for
	// example.
	Delivery core.Delivery
	// Receipt must be the receipt that the publisher returned for the message.
	Receipt string
}

// Link is a connection of a publisher to its broker. A Proxy is one.
type Link interface {
	Hold()                 // holds the answers back until Release; requests still reach the broker
	Release()              // lets the answers pass, and those that were held back
	Delay(d time.Duration) // delays every answer from now on
	Cut()                  // closes the connections; answers that are on their way are lost
}

// Refusal is an event that a broker refuses. Either Payload or Cure is set.
type Refusal struct {
	Publisher core.Publisher
	Topic     string
	Payload   string // always refused; the topic takes every other payload
	Cure      func() // the broker refuses every event of the topic until Cure is called
}

// Server is the server of a broker, or its servers.
type Server interface {
	Pause(t *testing.T) // the server hangs
	Resume(t *testing.T)
	Kill(t *testing.T) // with SIGKILL
	Up(t *testing.T)
}

// publisherCase is one requirement that every publisher must meet.
type publisherCase struct {
	name string
	run  func(f *publisherFixture)
	long bool
}

func publisherCases() []publisherCase {
	return []publisherCase{
		{"headers and payloads arrive byte for byte", (*publisherFixture).arrives, false},
		{"unusual events", (*publisherFixture).unusual, false},
		{"a message is published twice", (*publisherFixture).copies, false},
		{"large payloads", (*publisherFixture).largest, true},
		{"outcomes", (*publisherFixture).outcomes, false},
		{"one of many is refused", (*publisherFixture).oneRefused, false},
		{"order of keys", (*publisherFixture).order, false},
		{"two destinations", (*publisherFixture).twoDestinations, true},
		{"slow answers", (*publisherFixture).slow, true},
		{"answers after the timeout", (*publisherFixture).timeout, true},
		{"connections break", (*publisherFixture).cut, false},
		{"the first server is down", (*publisherFixture).firstDown, false},
		{"a topic is made again", (*publisherFixture).madeAgain, false},
		{"close", (*publisherFixture).closes, false},
	}
}

// TestPublisher judges a publisher: headers, payload and receipt of a message, limits, the order of
// keys, what an acknowledgement means, which errors spend attempts, broken connections, Close. A
// relay on a table in memory publishes most of the events. Afterwards the rows are compared with
// the messages of the broker.
func TestPublisher(t *testing.T, h PublisherHarness) {
	for _, c := range publisherCases() {
		if h.Brief && c.long {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(&publisherFixture{T: t, PublisherHarness: h, Broker: h.Open(t)})
		})
	}
}

// publisherFixture has the state of a case.
type publisherFixture struct {
	*testing.T
	PublisherHarness
	Broker
}

const (
	// unhurried is the time limit of a publish where no event may be sent twice.
	unhurried = time.Minute
	// awaitLimit is how long a case waits for the relay. heldLimit is the same for messages that the
	// broker must have.
	awaitLimit, heldLimit = time.Minute, 20 * time.Second
)

// lacks reports whether an optional function is missing, and logs that.
func (f *publisherFixture) lacks(missing bool, name string) bool {
	f.Helper()
	if missing {
		f.Logf("the broker has no %s: this case checks nothing", name)
	}
	return missing
}

func (f *publisherFixture) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// await polls until done returns true.
func (f *publisherFixture) await(what string, done func() bool) {
	f.Helper()
	if !within(awaitLimit, done) {
		f.Fatalf("%s: not within %s", what, awaitLimit)
	}
}

// within polls until done returns true, and reports whether it did so in time.
func within(limit time.Duration, done func() bool) bool {
	end, tick := time.NewTimer(limit), time.NewTicker(5*time.Millisecond)
	defer end.Stop()
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-end.C:
			return false
		}
	}
	return true
}

// delivery is a delivery with everything that a message can carry.
func (f *publisherFixture) delivery(topic, key string) core.Delivery {
	f.Helper()
	e := core.Event{
		ID: core.NewEventID(), Type: "order.placed", AggregateType: "order", AggregateID: "o-1", AggregateVersion: 3,
		TenantID: "acme", SchemaVersion: 2, Topic: topic, Key: key,
		OccurredAt: time.Now().UTC().Truncate(time.Microsecond), ContentType: "application/json",
		Headers: map[string]string{
			"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			"note":        "grün",
		},
		Payload: []byte(`{"total":7}`),
	}
	row, err := core.NewRowID(e.ID, topic)
	f.check(err)
	replay, err := core.FreshRowID(e.ID)
	f.check(err)
	return core.Delivery{Event: e, RowID: row, KeySeq: 1042, Attempt: 2, ReplayOf: replay}
}

// publish publishes with a timeout, as the relay does.
func (f *publisherFixture) publish(p core.Publisher, d core.Delivery) (receipt string, err error) {
	ctx, cancel := context.WithTimeout(f.Context(), unhurried)
	defer cancel()
	if r, ok := p.(core.ReceiptPublisher); ok {
		return r.PublishWithReceipt(ctx, d)
	}
	return "", p.Publish(ctx, d)
}

// refuses returns the reason for which p refuses to record e.
func refuses(p core.Publisher, e core.Event) error {
	if s, ok := p.(core.SizeChecker); ok {
		return s.CheckSize(e)
	}
	return nil
}

// heldOf waits until the topic has as many messages, and returns all.
func (f *publisherFixture) heldOf(topic string, want int) []Held {
	f.Helper()
	var held []Held
	if !within(heldLimit, func() bool {
		held = f.Held(f.T, topic)
		return len(held) >= want
	}) {
		f.Fatalf("topic %s has %d messages, want %d", topic, len(held), want)
	}
	return held
}

// same checks that a consumer reads the delivery back.
func (f *publisherFixture) same(got, want core.Delivery) {
	f.Helper()
	g, w := got.Metadata(), want.Metadata()
	for _, name := range f.Adds {
		delete(g, name)
	}
	names := slices.Sorted(maps.Keys(g))
	for name := range w {
		if _, ok := g[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if g[name] != w[name] {
			f.Errorf("%s is %q, want %q", name, g[name], w[name])
		}
	}
	switch a, b := string(got.Payload), string(want.Payload); {
	case a == b:
	case max(len(a), len(b)) > 1000:
		f.Errorf("%d bytes arrived, which are not the %d that were sent", len(a), len(b))
	default:
		f.Errorf("payload is %q, want %q", a, b)
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
