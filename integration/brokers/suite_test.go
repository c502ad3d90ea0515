package brokers_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// Each cell of the table of features is true, and every publisher passes the suite for publishers.
func TestFeaturesOfBrokers(t *testing.T) {
	t.Parallel()
	for _, b := range allBrokers() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			suite.TestPublisher(t, b.harness(b.open))
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
					suite.TestPublisher(t, f.harness(func(*testing.T) broker { return f.on(k) }))
				})
			}
		})
	}
}

// The examples of the pages of clouds pass the suite, and the pages show them.
func TestClouds(t *testing.T) {
	t.Parallel()
	for page, example := range map[string]string{"aws": "example_aws_test.go", "google": "example_google_test.go"} {
		code, err := os.ReadFile(example)
		fixture.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(fixture.Root(t), "docs", page+".md"))
		fixture.NoError(t, err)
		_, code, _ = bytes.Cut(code, []byte("\n)\n\n")) // the imports end here
		fixture.Check(t, bytes.Contains(text, code), "docs/%s.md does not have the code of %s", page, example)
	}
	for _, c := range clouds() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			suite.TestPublisher(t, c.harness(c.open))
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
			harnesses := map[string]suite.PublisherHarness{}
			for _, f := range b.column() {
				harnesses[f.name] = f.harness(func(*testing.T) broker { return f.on(k) })
			}
			suite.TestPublishersAway(t, server, harnesses)
		})
	}
}

// harness gives the suite a broker and what the table says of it.
func (b features) harness(open func(t *testing.T) broker) suite.PublisherHarness {
	return suite.PublisherHarness{
		Open: func(t *testing.T) suite.Broker { t.Helper(); return b.opened(open(t)) },

		Unordered: b.unordered, DropsCopies: b.recognises, Refuses: b.refuses, LargestPayload: b.largestBytes,
		Receipt: b.form, MakesTopics: b.taken, NoTopic: b.class, OneByOne: b.oneByOne, Survives: b.survives,
		Brief: b.like != "" && testing.Short(), // `make test-all` runs all cases
	}
}

func (b features) opened(k broker) suite.Broker {
	s := suite.Broker{
		Topic: k.topic,
		Publisher: func(t *testing.T, timeout time.Duration) core.Publisher {
			t.Helper()
			return k.publisher(t, timeout)
		},
		Held: func(t *testing.T, topic string) (all []suite.Held) {
			t.Helper()
			for _, h := range k.held(t, topic) {
				d, err := watermillbridge.EventFromMessage(h.Message)
				fixture.NoError(t, err)
				fixture.Check(t, h.UUID == d.ID, "event %s has the UUID %s", d.ID, h.UUID)
				all = append(all, suite.Held{Delivery: d, Receipt: h.place})
			}
			return all
		},
		Adds: b.adds,
		Missing: func(t *testing.T) string {
			t.Helper()
			name := "it-" + core.NewEventID()
			if b.drop != nil && b.taken {
				t.Cleanup(func() { b.drop(t, k, name) })
			}
			return name
		},
		Through: func(t *testing.T, timeout time.Duration) (core.Publisher, suite.Link) {
			t.Helper()
			return k.through(t, timeout)
		},
	}
	if severed, ok := k.(interface {
		behind(t *testing.T, other string) publisher
	}); ok {
		s.Behind = func(t *testing.T, other string) core.Publisher { t.Helper(); return severed.behind(t, other) }
	}
	if again, ok := k.(interface {
		again(t *testing.T, topic string)
	}); ok {
		s.Again = again.again
	}
	if refusing, ok := k.(interface {
		refusal(t *testing.T) suite.Refusal
	}); ok {
		s.Refusal = func(t *testing.T) suite.Refusal {
			t.Helper()
			r := refusing.refusal(t)
			if (r.Payload != "") != b.dies || (r.Cure != nil) != b.waits {
				t.Fatalf("%+v differs from the table, which says: %s", r, b.refused)
			}
			return r
		}
	} else if b.dies || b.waits {
		s.Refusal = func(t *testing.T) suite.Refusal {
			t.Helper()
			t.Fatalf("nothing is refused; the table says: %s", b.refused)
			return suite.Refusal{}
		}
	}
	return s
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
