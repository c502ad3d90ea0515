package brokers_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// newNATSSubscriber returns a subscriber that is closed when the test ends. If cfg names no server,
// it uses the shared one.
func newNATSSubscriber(t *testing.T, cfg natsbridge.SubscriberConfig) *natsbridge.Subscriber {
	t.Helper()
	if cfg.URL == "" {
		cfg.URL = topics.NATSURL(t)
	}
	s, err := natsbridge.NewSubscriber(cfg)
	fixture.NoError(t, err)
	t.Cleanup(func() { fixture.NoError(t, s.Close()) })
	return s
}

func subscribeNATS(t *testing.T, cfg natsbridge.SubscriberConfig, topic string) (
	*natsbridge.Subscriber, <-chan *message.Message,
) {
	t.Helper()
	s := newNATSSubscriber(t, cfg)
	messages, err := s.Subscribe(t.Context(), topic)
	fixture.NoError(t, err)
	return s, messages
}

// publishNATS publishes n events, and returns their ids.
func publishNATS(t *testing.T, topic string, n int) (ids []string) {
	t.Helper()
	p := topics.NATSPublisher(t, natsbridge.Config{URL: topics.NATSURL(t)})
	for range n {
		d := brokerDelivery(t, topic, "order/o-2")
		fixture.NoError(t, p.Publish(t.Context(), d))
		ids = append(ids, d.ID)
	}
	return ids
}

// take waits for a message, which stays with its handler.
func take(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		fixture.Must(t, ok, "the subscription ended")
		return msg
	case <-time.After(time.Minute):
		t.Fatal("no message within a minute")
		return nil
	}
}

// A message arrives as it was published, and says where it was read.
func TestNATSSubscriberDelivers(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	p := topics.NATSPublisher(t, natsbridge.Config{URL: topics.NATSURL(t)})
	d := brokerDelivery(t, topic, "order/ö 1")
	fixture.NoError(t, p.Publish(t.Context(), d))
	foreign, err := topics.JetStream(t, topics.NATSURL(t)).Publish(t.Context(), topic, []byte("plain"))
	fixture.NoError(t, err)

	_, messages := subscribeNATS(t, natsbridge.SubscriberConfig{Group: "billing"}, topic)
	msg := take(t, messages)
	if source := msg.Metadata[core.HeaderSource]; msg.UUID != d.ID || source != topic+"/0/1" {
		t.Errorf("UUID %s, source %s", msg.UUID, source)
	}
	delete(msg.Metadata, core.HeaderSource)
	requireDelivery(t, msg, d)
	msg.Ack()
	if msg = receive(t, messages); msg.UUID != fmt.Sprintf("%s@%d", topic, foreign.Sequence) ||
		string(msg.Payload) != "plain" {
		t.Errorf("a message of another program: %s %q", msg.UUID, msg.Payload)
	}
}

// A subscriber and Check find the server that is up.
func TestNATSSubscriberOfSeveralServers(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	ids := publishNATS(t, topic, 1)
	servers, fixed := "nats://"+nobodyThere+","+topics.NATSURL(t), []nats.Option{nats.DontRandomize()}
	_, messages := subscribeNATS(t, natsbridge.SubscriberConfig{Group: "billing", URL: servers, Options: fixed}, topic)
	if msg := receive(t, messages); msg.UUID != ids[0] {
		t.Errorf("UUID %s, want %s", msg.UUID, ids[0])
	}
	fixture.NoError(t, natsbridge.Check(t.Context(), natsbridge.Config{URL: servers, Options: fixed}, topic))
}

// A stream is deleted and made again. Its subscriber gets what the new one has.
func TestNATSSubscriberOfAStreamMadeAgain(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	_, messages := subscribeNATS(t, natsbridge.SubscriberConfig{Group: "billing"}, topic)
	for range 3 {
		for _, id := range publishNATS(t, topic, 2) {
			if msg := receive(t, messages); msg.UUID != id {
				t.Errorf("UUID %s, want %s", msg.UUID, id)
			}
		}
		natsBroker{topics.NATSURL(t)}.again(t, topic)
	}
}

// Close waits for the handler that has a message. The next process gets the message after it. A
// handler that takes longer than CloseTimeout loses its message to the next process.
func TestNATSSubscriberCloses(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	ids := publishNATS(t, topic, 3)
	cfg := natsbridge.SubscriberConfig{Group: "billing", AckWait: time.Hour, CloseTimeout: time.Hour}
	first, messages := subscribeNATS(t, cfg, topic)
	msg := take(t, messages)
	closed := make(chan error, 1)
	go func() { closed <- first.Close() }()
	if _, ok := <-messages; ok {
		t.Fatal("a message is delivered while the subscriber closes")
	}
	select {
	case err := <-closed:
		t.Fatalf("closed before the handler was done: %v", err)
	case <-msg.Context().Done():
		t.Fatal("the handler's context ended")
	case <-time.After(50 * time.Millisecond):
	}
	msg.Ack()
	fixture.NoError(t, <-closed)
	if _, err := first.Subscribe(t.Context(), topic); !errors.Is(err, watermillbridge.ErrClosed) {
		t.Errorf("Subscribe after Close: %v", err)
	}

	cfg.CloseTimeout = time.Millisecond
	second, messages := subscribeNATS(t, cfg, topic)
	if msg = take(t, messages); msg.UUID != ids[1] {
		t.Errorf("got %s, want the second of %v", msg.UUID, ids)
	}
	fixture.NoError(t, second.Close())
	fixture.Check(t, msg.Context().Err() != nil, "the context of a message that another process gets goes on")
	_, messages = subscribeNATS(t, cfg, topic)
	for _, id := range ids[1:] { // at once, and not after an hour
		if msg := receive(t, messages); msg.UUID != id {
			t.Errorf("got %s, want %s", msg.UUID, id)
		}
	}
}

// Messages of a group come one at a time and in order, also those that a handler rejects.
func TestNATSSubscriberKeepsOrder(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	ids := publishNATS(t, topic, 10)
	cfg := natsbridge.SubscriberConfig{Group: "billing", NackPause: time.Millisecond}
	_, first := subscribeNATS(t, cfg, topic)
	_, second := subscribeNATS(t, cfg, topic)
	for n, id := range ids {
		for attempt := range 3 {
			var msg *message.Message
			select {
			case msg = <-first:
			case msg = <-second:
			case <-time.After(time.Minute):
				t.Fatal("no message within a minute")
			}
			fixture.Must(t, msg.UUID == id, "got %s, want event %d: %v", msg.UUID, n, ids)
			if attempt == 2 {
				msg.Ack()
			} else {
				msg.Nack()
			}
		}
	}
}

// With MaxAckPending above 1, handlers work at the same time.
func TestNATSSubscriberHandlesManyAtOnce(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	publishNATS(t, topic, 5)
	_, messages := subscribeNATS(t, natsbridge.SubscriberConfig{Group: "billing", MaxAckPending: 3}, topic)
	var held []*message.Message
	for range 3 {
		held = append(held, take(t, messages))
	}
	select {
	case <-messages:
		t.Error("a fourth message is delivered")
	case <-time.After(50 * time.Millisecond):
	}
	for _, msg := range held {
		msg.Ack()
	}
	for range 2 {
		receive(t, messages)
	}
}

// The subscriber goes on after its connection broke, and after its consumer was deleted, which
// delivers all messages again.
func TestNATSSubscriberGoesOn(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	url, proxy := proxied(t, topics.NATSURL(t))
	cfg := natsbridge.SubscriberConfig{URL: url, Group: "billing", AckWait: 2 * time.Second}
	_, messages := subscribeNATS(t, cfg, topic)
	until := func(id string) { // messages whose acknowledgement was lost come again
		t.Helper()
		for receive(t, messages).UUID != id {
		}
	}
	first := publishNATS(t, topic, 1)[0]
	until(first)
	proxy.Cut()
	second := publishNATS(t, topic, 1)[0]
	until(second)
	js := topics.JetStream(t, topics.NATSURL(t))
	fixture.NoError(t, js.DeleteConsumer(t.Context(), topic, "billing_"+topic))
	until(first)
	until(second)
}

// Consumers that exist are used if they are safe, and get the settings of the configuration.
func TestNATSSubscriberChecksConsumers(t *testing.T) {
	t.Parallel()
	stream := topics.NATS(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{c.Name + ".>"} })
	topic := stream + ".a_b"
	js := topics.JetStream(t, topics.NATSURL(t))
	safe := func(group string) jetstream.ConsumerConfig {
		return jetstream.ConsumerConfig{
			Durable: group + "_" + stream + "_a_b", FilterSubject: topic, AckPolicy: jetstream.AckExplicitPolicy,
			MaxAckPending: 1, AckWait: time.Hour, Description: "made by hand",
		}
	}
	for group, tc := range map[string]struct {
		change func(c *jetstream.ConsumerConfig)
		names  string
	}{
		"acks":     {func(c *jetstream.ConsumerConfig) { c.AckPolicy = jetstream.AckAllPolicy }, "--ack explicit"},
		"gives-up": {func(c *jetstream.ConsumerConfig) { c.MaxDeliver = 5 }, "after 5 deliveries"},
		"expires":  {func(c *jetstream.ConsumerConfig) { c.InactiveThreshold = time.Minute }, "after 1m0s without"},
		"headers":  {func(c *jetstream.ConsumerConfig) { c.HeadersOnly = true }, "--headers-only"},
		"other": {
			func(c *jetstream.ConsumerConfig) { c.FilterSubject = stream + ".a.b" },
			`it is of topic "` + stream + ".a.b",
		},
	} {
		cfg := safe(group)
		tc.change(&cfg)
		_, err := js.CreateConsumer(t.Context(), stream, cfg)
		fixture.NoError(t, err)
		_, err = newNATSSubscriber(t, natsbridge.SubscriberConfig{Group: group}).Subscribe(t.Context(), topic)
		fixture.Check(t, errors.Is(err, natsbridge.ErrUnsafeConsumer) && strings.Contains(err.Error(), tc.names),
			"%s: %v, want ErrUnsafeConsumer and %s", group, err, tc.names)
	}

	push := safe("push")
	push.DeliverSubject, push.MaxAckPending = "deliver."+stream, 0
	_, err := js.CreatePushConsumer(t.Context(), stream, push)
	fixture.NoError(t, err)
	_, err = newNATSSubscriber(t, natsbridge.SubscriberConfig{Group: "push"}).Subscribe(t.Context(), topic)
	if !errors.Is(err, natsbridge.ErrUnsafeConsumer) || !strings.Contains(err.Error(), "nats consumer rm "+stream) {
		t.Errorf("push: %v", err)
	}

	_, err = js.CreateConsumer(t.Context(), stream, safe("billing"))
	fixture.NoError(t, err)
	ids := publishNATS(t, topic, 1)
	_, messages := subscribeNATS(t, natsbridge.SubscriberConfig{Group: "billing", MaxAckPending: 7}, topic)
	if msg := receive(t, messages); msg.UUID != ids[0] {
		t.Errorf("got %s, want %v", msg.UUID, ids)
	}
	found, err := js.Consumer(t.Context(), stream, safe("billing").Durable)
	fixture.NoError(t, err)
	if c := found.CachedInfo().Config; c.AckWait != 30*time.Second || c.MaxAckPending != 7 ||
		c.Description != "made by hand" {
		t.Errorf("the consumer has %+v", c)
	}
}

// A topic may have wildcards. Without a stream or a server, Subscribe says what to do.
func TestNATSSubscriberTopics(t *testing.T) {
	t.Parallel()
	stream := topics.NATS(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{c.Name + ".>"} })
	ids := append(publishNATS(t, stream+".a", 1), publishNATS(t, stream+".b.c", 1)...)
	_, messages := subscribeNATS(t, natsbridge.SubscriberConfig{Group: "all"}, stream+".>")
	for _, id := range ids {
		if msg := receive(t, messages); msg.UUID != id {
			t.Errorf("got %s, want %s", msg.UUID, id)
		}
	}
	_, messages = subscribeNATS(t, natsbridge.SubscriberConfig{
		Group: "named", Stream: func(string) string { return stream },
	}, stream+".*")
	if msg := receive(t, messages); msg.UUID != ids[0] {
		t.Errorf("got %s, want %s", msg.UUID, ids[0])
	}

	for _, part := range []string{"a", "b"} {
		topics.NATS(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{"parts-" + stream + "." + part} })
	}
	_, err := newNATSSubscriber(t, natsbridge.SubscriberConfig{Group: "g"}).Subscribe(t.Context(), "parts-"+stream+".*")
	fixture.Check(t, err != nil && strings.Contains(err.Error(), "is of the streams"),
		"a topic of two streams: %v", err)

	missing := "it-" + core.NewEventID()
	s := newNATSSubscriber(t, natsbridge.SubscriberConfig{Group: "billing"})
	if _, err := s.Subscribe(t.Context(), missing); !errors.Is(err, natsbridge.ErrNoStream) ||
		!strings.Contains(err.Error(), "nats stream add") {
		t.Errorf("no stream: %v", err)
	}
	for _, bad := range []string{"", "a b", "$JS.API"} {
		if _, err := s.Subscribe(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "no subject") {
			t.Errorf("topic %q: %v", bad, err)
		}
	}
	away := newNATSSubscriber(t, natsbridge.SubscriberConfig{URL: "nats://127.0.0.1:1", Group: "billing"})
	if _, err := away.Subscribe(t.Context(), missing); err == nil || !strings.Contains(err.Error(), "no servers") {
		t.Errorf("no server: %v", err)
	}
}
