package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// natsMessages subscribes with Watermill's subscriber.
func natsMessages(t testing.TB, topic string) <-chan *message.Message {
	t.Helper()
	sub, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: topics.NATSURL(t), Unmarshaler: &wmnats.NATSMarshaler{}, AckWaitTimeout: 10 * time.Second,
		JetStream: wmnats.JetStreamConfig{SubscribeOptions: []nats.SubOpt{nats.DeliverAll(), nats.AckExplicit()}},
	}, watermill.NopLogger{})
	return subscribed(t, sub, err, topic)
}

func TestNATSRoundTrip(t *testing.T) {
	t.Parallel()
	topic := topics.NATS(t, nil)
	p := topics.NATSPublisher(t, natsbridge.Config{URL: topics.NATSURL(t)})
	d := brokerDelivery(t, topic, "order/o-2")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 { // as if the first answer was lost
		if receipt, err := p.PublishWithReceipt(ctx, d); err != nil || receipt != topic+"@1" {
			t.Fatalf("receipt %q, %v", receipt, err)
		}
	}
	msg := receive(t, natsMessages(t, topic))
	requireDelivery(t, msg, d)
	fixture.Check(t, msg.UUID == d.ID, "UUID = %q, want the event's id", msg.UUID)
	stream, err := topics.JetStream(t, topics.NATSURL(t)).Stream(ctx, topic)
	if err != nil || stream.CachedInfo().State.Msgs != 1 {
		t.Errorf("%v: %+v, want one message", err, stream.CachedInfo().State)
	}

	// A consumer parks the message in a poison queue in the same stream. That is no copy.
	msg.SetContext(ctx) // the message's own context ended with its acknowledgement
	other := topics.NATS(t, nil)
	fixture.NoError(t, p.MessagePublisher(0).Publish(other, msg))
	fixture.NoError(t, p.MessagePublisher(0).Publish(topic, msg))
	if stream, err = topics.JetStream(t, topics.NATSURL(t)).Stream(ctx, topic); err != nil ||
		stream.CachedInfo().State.Msgs != 2 {
		t.Errorf("%v: %+v, want the message beside the first", err, stream.CachedInfo().State)
	}
}

// An event that goes to another subject of the same stream is stored again, and so is a replay of
// the event. Only a copy is not stored.
func TestNATSTakesOnlyCopiesForCopies(t *testing.T) {
	t.Parallel()
	name := topics.NATS(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{c.Name + ".>"} })
	p := topics.NATSPublisher(t, natsbridge.Config{URL: topics.NATSURL(t)})
	a := brokerDelivery(t, name+".a", "k")
	b := a
	b.Topic = name + ".b"
	var err error
	if b.RowID, err = core.NewRowID(b.ID, b.Topic); err != nil {
		t.Fatal(err)
	}
	replay := a
	replay.RowID = a.ReplayOf
	for i, d := range []core.Delivery{a, b, replay, a, b, replay} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		receipt, err := p.PublishWithReceipt(ctx, d)
		cancel()
		if want := fmt.Sprintf("%s@%d", name, i%3+1); err != nil || receipt != want {
			t.Errorf("publish %d: receipt %q, %v, want %q", i, receipt, err, want)
		}
	}
}

// A topic without a stream waits, and the error says how to make one. A stream that would lose
// messages is refused.
func TestNATSStreams(t *testing.T) {
	t.Parallel()
	cfg := natsbridge.Config{URL: topics.NATSURL(t)}
	p := topics.NATSPublisher(t, cfg)
	missing := "it-" + core.NewEventID() + ".placed"
	memory := topics.NATS(t, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage })
	interest := topics.NATS(t, func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy })
	good := topics.NATS(t, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for topic, tc := range map[string]struct {
		is    error
		names string
	}{
		missing:  {natsbridge.ErrNoStream, "nats stream add"},
		memory:   {natsbridge.ErrUnsafeStream, "in memory"},
		interest: {natsbridge.ErrUnsafeStream, "retention is interest"},
	} {
		for doing, err := range map[string]error{
			"publish": p.Publish(ctx, brokerDelivery(t, topic, "k")), "check": natsbridge.Check(ctx, cfg, good, topic),
		} {
			fixture.Check(t, errors.Is(err, tc.is) && strings.Contains(err.Error(), tc.names),
				"%s: %v, want %v naming %s", doing, err, tc.is, tc.names)
			requireClass(t, err, core.ClassUnavailable)
		}
	}
	if err := natsbridge.Check(ctx, cfg, good); err != nil {
		t.Error(err)
	}
	all := natsbridge.Check(ctx, cfg, missing, good, memory, "no subject")
	for _, want := range []string{missing, memory, "no subject"} {
		fixture.Check(t, all != nil && strings.Contains(all.Error(), want), "%v does not name %s", all, want)
	}
	cfg.AllowUnsafeStream = true
	if err := topics.NATSPublisher(t, cfg).Publish(ctx, brokerDelivery(t, memory, "k")); err != nil {
		t.Errorf("allowed: %v", err)
	}

	// The stream is made, and later another one has the subject: the topic goes on.
	topics.NATSStream(t, cfg.URL, missing, nil)
	publishUntil(t, p, brokerDelivery(t, missing, "k"), "")
	js := topics.JetStream(t, cfg.URL)
	fixture.NoError(t, js.DeleteStream(ctx, strings.ReplaceAll(missing, ".", "_")))
	moved := topics.NATS(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{missing} })
	publishOnce(t, p, brokerDelivery(t, missing, "k"), "unavailable") // p expects the first stream
	publishUntil(t, p, brokerDelivery(t, missing, "k"), "")
	if s, err := js.Stream(ctx, moved); err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("%v: the stream that has the subject now is %+v", err, s.CachedInfo().State)
	}

	// A user who may not ask the server for the stream of a subject can name the stream.
	cfg = natsbridge.Config{URL: topics.NATSURL(t), Stream: func(topic string) string {
		return map[string]string{good: good, memory: good}[topic]
	}}
	named := topics.NATSPublisher(t, cfg)
	publishOnce(t, named, brokerDelivery(t, good, "k"), "")
	publishOnce(t, named, brokerDelivery(t, memory, "k"), "unavailable") // its stream is another one
	publishOnce(t, named, brokerDelivery(t, missing, "k"), "unavailable")
}

// If the server or the stream would refuse an event, the outbox refuses to record it, to the byte.
func TestNATSSizeLimits(t *testing.T) {
	t.Parallel()
	small := topics.NATS(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 50_000 })
	large := topics.NATS(t, nil)
	for _, mapper := range []*cloudevents.Mapper{
		nil, {Source: "/orders"}, {Source: "/orders", Mode: cloudevents.ModeStructured},
	} {
		p := topics.NATSPublisher(t, natsbridge.Config{
			URL: topics.NATSURL(t), Bridge: watermillbridge.Config{CloudEvents: mapper},
		})
		for topic, whose := range map[string]string{small: "max_msg_size of stream " + small, large: "max_payload"} {
			d := brokerDelivery(t, topic, "order/o-1")
			if err := publishWithin(t, p, d, time.Minute); err != nil { // p learns the limits from the answer
				t.Fatal(err)
			}
			d.KeySeq, d.Attempt = 1<<63-1, 1<<31-1
			largest := sort.Search(2<<20, func(n int) bool {
				d.Payload = make([]byte, n)
				return p.CheckSize(d.Event) != nil
			}) - 1
			var err error
			if d.RowID, err = core.FreshRowID(d.ID); err != nil {
				t.Fatal(err)
			}
			if d.Payload = make([]byte, largest); publishWithin(t, p, d, time.Minute) != nil {
				t.Errorf("%s: a payload of %d bytes is refused", whose, largest)
			}
			d.Payload = make([]byte, largest+1)
			if err := p.CheckSize(d.Event); err == nil || !strings.Contains(err.Error(), whose) {
				t.Errorf("%d bytes: %v, want it to name %s", largest+1, err, whose)
			}
			if d.RowID, err = core.FreshRowID(d.ID); err != nil { // the same row id would make it a copy
				t.Fatal(err)
			}
			d.Payload = make([]byte, largest+400) // p allows for the longest name of a stream; this one is shorter
			err = publishWithin(t, p, d, time.Minute)
			requireClass(t, err, core.ClassPermanent)
		}
	}
}

// Publishes that wait for the acknowledgement of a server that is killed end at once. Later ones are
// told why there is no connection.
func TestNATSConnectionBreaks(t *testing.T) {
	t.Parallel()
	server := fixture.StartPrivate(t, "nats")
	topics.NATSStream(t, server.Address, "orders", nil)
	p := topics.NATSPublisher(t, natsbridge.Config{URL: server.Address})
	publishOnce(t, p, brokerDelivery(t, "orders", "k"), "")
	server.Pause(t)
	done := make(chan error, 1)
	d := brokerDelivery(t, "orders", "k")
	go func() { done <- publishWithin(t, p, d, 10*time.Minute) }()
	select {
	case err := <-done:
		t.Fatalf("answered by a server that hangs: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	server.Kill(t)
	select {
	case err := <-done:
		fixture.Check(t, errors.Is(err, natsbridge.ErrDisconnected), "err = %v, want ErrDisconnected", err)
		requireClass(t, err, core.ClassUnavailable)
	case <-time.After(5 * time.Minute):
		t.Fatal("the publish still waits")
	}
	publishOnce(t, p, d, "unavailable")
	fixture.Await(t, "the cause is told", func() bool {
		return strings.Contains(publishWithin(t, p, d, time.Minute).Error(), "connection refused")
	})
	server.Up(t)
	publishUntil(t, p, d, "")
}

// A connection gets no answers any more, although it stands: the server hangs, or has lost the
// subscription to them, as servers before 2.9.17 may when they reload their users. The next publish
// uses another connection.
func TestNATSConnectionWithoutAnswers(t *testing.T) {
	t.Parallel()
	stream := topics.NATS(t, nil)
	url, proxy := proxied(t, topics.NATSURL(t))
	p := topics.NATSPublisher(t, natsbridge.Config{
		URL: url + "," + topics.NATSURL(t), Options: []nats.Option{nats.DontRandomize()},
	})
	publishOnce(t, p, brokerDelivery(t, stream, "k"), "")
	proxy.Hold()
	err := publishWithin(t, p, brokerDelivery(t, stream, "k"), time.Second)
	requireClass(t, err, core.ClassUnavailable)
	told := strings.Contains(err.Error(), "publish to "+strings.TrimPrefix(strings.TrimSuffix(url, "/"), "nats://"))
	fixture.Check(t, told, "err = %v, want %s", err, url)
	fixture.Await(t, "the call returns", func() bool { return p.Stuck() == 0 })
	// The client itself notices a silent server after 20 s.
	fixture.NoError(t, publishWithin(t, p, brokerDelivery(t, stream, "k"), 10*time.Second))
}
