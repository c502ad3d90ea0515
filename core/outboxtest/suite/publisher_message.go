package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// arrives compares a message with its event, and checks the receipt.
func (f *publisherFixture) arrives() {
	topic := f.Topic(f.T)
	p := f.Publisher(f.T, unhurried)
	e := f.delivery(topic, "order/ö 1")
	e.AggregateID, e.TenantID = "Größe \"1\" 100%", "a,b;c=d"
	maps.Copy(e.Headers, map[string]string{
		"CaSe": "Kept", "under_score": "x", "quotes": `"a" 'b' <c> & \d`, "percent": "%41%",
		"wide": "\U0001F4E6 \u2028", "json": `{"a":[1]}`,
	})
	if f.refusesUnusual("a key that is not ASCII") {
		e.Key = "order/1"
	}
	receipt, err := f.publish(p, e)
	f.check(err)
	if !regexp.MustCompile("^(" + f.Receipt + ")$").MatchString(receipt) {
		f.Errorf("receipt %q, want %s", receipt, f.Receipt)
	}
	held := f.heldOf(topic, 1)
	if len(held) != 1 || held[0].Receipt != receipt {
		f.Fatalf("receipt %q: the broker has %+v", receipt, held)
	}
	f.same(held[0].Delivery, e)
}

// unusualEvents has what transports change, cut or refuse, by the names that PublisherHarness.Refuses
// has.
var unusualEvents = map[string]func(e *core.Event){
	"blanks around a value":  func(e *core.Event) { e.Headers = map[string]string{"blanks": " around "} },
	"an empty value":         func(e *core.Event) { e.Headers = map[string]string{"empty": ""} },
	"a value of 2,000 bytes": func(e *core.Event) { e.Headers = map[string]string{"long": strings.Repeat("v", 2000)} },
	"a name of signs":        func(e *core.Event) { e.Headers = map[string]string{"a!#$%&'*+-.^_`|~z": "signs"} },
	"a name of Google's":     func(e *core.Event) { e.Headers = map[string]string{"goog-header": "x"} },
	"64 headers": func(e *core.Event) {
		for n := len(e.Headers); n < 64; n++ {
			e.Headers[fmt.Sprint("header-", n)] = "x"
		}
	},
	"a key of 255 bytes":          func(e *core.Event) { e.Key = strings.Repeat("k", 255) },
	"a key that is not ASCII":     func(e *core.Event) { e.Key = "Schlüssel \U0001F4E6" },
	"an empty payload":            func(e *core.Event) { e.Payload = nil },
	"a payload that is not UTF-8": func(e *core.Event) { e.Payload = []byte("\xff\xfe\x01 protobuf") },
	"a payload of control characters": func(e *core.Event) {
		e.Payload = []byte(" \x00\x01\t\r\n\x1f\x7f\u0085\ufffe\n")
	},
}

func (f *publisherFixture) refusesUnusual(name string) bool {
	if unusualEvents[name] == nil {
		f.Fatalf("no unusual event has the name %q", name)
	}
	return slices.Contains(f.Refuses, name)
}

// unusual publishes what many transports change. An event is refused when it is recorded, or
// arrives as it was.
func (f *publisherFixture) unusual() {
	for _, name := range f.Refuses {
		f.refusesUnusual(name) // it has such a name
	}
	topic := f.Topic(f.T)
	p := f.Publisher(f.T, unhurried)
	sent := map[core.RowID]core.Delivery{}
	for name, change := range unusualEvents {
		f.Run(name, func(t *testing.T) {
			d := f.delivery(topic, "key")
			change(&d.Event)
			err := refuses(p, d.Event)
			if want := f.refusesUnusual(name); (err != nil) != want {
				t.Errorf("recording it: %v, want refused %v", err, want)
			}
			if err != nil {
				return
			}
			if _, err := f.publish(p, d); err != nil {
				t.Fatalf("it is recorded, and not published: %v", err)
			}
			sent[d.RowID] = d
		})
	}
	for _, h := range f.heldOf(topic, len(sent)) {
		want, ok := sent[h.Delivery.RowID]
		if !ok {
			f.Errorf("the broker has a message that was not sent, or has it twice: %+v", h.Delivery)
			continue
		}
		delete(sent, h.Delivery.RowID)
		f.same(h.Delivery, want)
	}
}

// copies publishes a message twice, as after a lost answer.
func (f *publisherFixture) copies() {
	topic := f.Topic(f.T)
	p := f.Publisher(f.T, unhurried)
	e := f.delivery(topic, "k")
	for range 2 {
		_, err := f.publish(p, e)
		f.check(err)
	}
	want := 2
	if f.DropsCopies {
		want = 1
	}
	held := f.heldOf(topic, want)
	if len(held) != want {
		f.Errorf("%d copies, want %d", len(held), want)
	}
	for _, h := range held {
		f.same(h.Delivery, e)
	}
}

// largest checks the limit of payloads. The payload just below the limit is sent, cut to 16 MiB, or
// to 1 MiB with -short.
func (f *publisherFixture) largest() {
	topic := f.Topic(f.T)
	p := f.Publisher(f.T, unhurried)
	e := f.delivery(topic, "k")
	limit, most := f.LargestPayload, 16<<20
	if limit == 0 {
		limit = 1 << 30
	}
	if testing.Short() {
		most = 1 << 20
	}
	text := slices.Contains(f.Refuses, "a payload that is not UTF-8")
	e.Payload = make([]byte, limit+1)
	for i := range min(len(e.Payload), most) {
		if e.Payload[i] = byte(i * 7); text {
			e.Payload[i] = 'a' + byte(i%26)
		}
	}
	if err := refuses(p, e.Event); (err != nil) != (f.LargestPayload > 0) {
		f.Errorf("%d bytes: %v", len(e.Payload), err)
	}
	e.Payload = e.Payload[:limit-64<<10]
	if err := refuses(p, e.Event); err != nil {
		f.Errorf("%d bytes: %v", len(e.Payload), err)
	}
	e.Payload = e.Payload[:min(len(e.Payload), most)]
	_, err := f.publish(p, e)
	f.check(err)
	held := f.heldOf(topic, 1)
	if len(held) != 1 {
		f.Fatalf("the broker has %d messages", len(held))
	}
	f.same(held[0].Delivery, e)
}

// closer is a publisher that can be closed, as those of all bridges can.
type closer interface {
	Close(ctx context.Context) error
}

// closes closes publishers, also while a publish has no answer yet.
func (f *publisherFixture) closes() {
	topic := f.Topic(f.T)
	p := f.Publisher(f.T, unhurried)
	c, ok := p.(closer)
	if f.lacks(!ok, "publisher with Close(context.Context) error") {
		return
	}
	first, late := f.delivery(topic, "k"), f.delivery(topic, "k")
	_, err := f.publish(p, first)
	f.check(err)
	for range 2 { // the second call does nothing
		f.check(c.Close(f.Context()))
	}
	_, err = f.publish(p, late)
	if class, _ := core.ClassOf(err); err == nil || class != core.ClassUnavailable {
		f.Errorf("a publish after Close: %v, class %v; want unavailable, so that the event waits", err, class)
	}
	if held := f.heldOf(topic, 1); len(held) != 1 {
		f.Errorf("the broker has %d messages, of which one was sent after Close", len(held))
	}
	if f.lacks(f.Through == nil, "Through") {
		return
	}
	f.Broker = f.Open(f.T) // Close may have closed the broker, if the two are one
	f.closesInTime()
}

// closesInTime: Close waits for a publish that is under way, and no longer than its context. A
// publish that is reported as done is at the broker, whenever it ends.
func (f *publisherFixture) closesInTime() {
	topic := f.Topic(f.T)
	p, link := f.Through(f.T, unhurried)
	_, err := f.publish(p, f.delivery(topic, "k"))
	f.check(err)
	link.Hold()
	ended := make(chan error, 1)
	running := f.delivery(topic, "running")
	go func() {
		_, err := f.publish(p, running)
		ended <- err
	}()
	// Some brokers show a message only after a further request, which the client does not send now.
	within(time.Second, func() bool { return len(f.Held(f.T, topic)) > 1 })
	ctx, cancel := context.WithTimeout(f.Context(), 200*time.Millisecond)
	defer cancel()
	closed := make(chan error, 1)
	go func() { closed <- p.(closer).Close(ctx) }()
	select {
	case err = <-closed:
	case <-time.After(awaitLimit / 2):
		link.Release()
		f.Fatal("Close waits though its context has ended")
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		f.Errorf("Close: %v, want the end of its context", err)
	}
	link.Release()
	if err := <-ended; err == nil {
		for _, h := range f.heldOf(topic, 2) {
			if h.Delivery.RowID == running.RowID {
				return
			}
		}
		f.Error("a publish ended without an error during Close, and the broker has no message")
	}
}
