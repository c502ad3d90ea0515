package brokers_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/redisbridge"
)

// classOf returns the class that a relay gives to an error of a publisher.
func classOf(err error) core.Class {
	if class, ok := core.ClassOf(err); ok {
		return class
	}
	return core.DefaultClassifier(err)
}

// publishUntil publishes d until the error has the class want, or until there is no error if want
// is empty. It fails the test if that takes too long.
func publishUntil(t *testing.T, p core.Publisher, d core.Delivery, want string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := p.Publish(ctx, d)
		cancel()
		got := ""
		if err != nil {
			got = classOf(err).String()
		}
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("topic %s: %v is %q, want %q", d.Topic, err, got, want)
		}
		<-time.After(50 * time.Millisecond)
	}
}

func publishOnce(t *testing.T, p core.Publisher, d core.Delivery, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := p.Publish(ctx, d)
	got := ""
	if err != nil {
		got = classOf(err).String()
	}
	if got != want {
		t.Errorf("topic %s: %v is %q, want %q", d.Topic, err, got, want)
	}
}

func bridged(t *testing.T, pub message.Publisher, cfg watermillbridge.Config) *watermillbridge.Publisher {
	t.Helper()
	p, err := watermillbridge.NewPublisher(pub, cfg)
	fixture.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

// Answers of NATS, and missing answers, have different classes: an error is the event's fault only
// if the message can never be stored.
func TestNATSClasses(t *testing.T) {
	t.Parallel()
	server := fixture.StartPrivate(t, "nats")
	url := server.Address
	conn, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	fixture.NoError(t, err)
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	fixture.NoError(t, err)
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.>"},
		MaxMsgSize: 4096,
	})
	fixture.NoError(t, err)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "FULL", Subjects: []string{"full.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
	}); err != nil {
		t.Fatal(err)
	}
	pub, err := wmnats.NewPublisherWithNatsConn(conn, wmnats.PublisherPublishConfig{
		Marshaler: &wmnats.NATSMarshaler{}, SubjectCalculator: wmnats.DefaultSubjectCalculator,
	}, watermill.NopLogger{})
	fixture.NoError(t, err)
	p := bridged(t, pub, watermillbridge.Config{
		Classifier:    natsbridge.Classify,
		RowIDMetadata: nats.MsgIdHdr,
	})

	// One event has two destinations in one stream, and is published twice to each.
	a := brokerDelivery(t, "s.a", "order/o-1")
	b := a
	b.Topic = "s.b"
	if b.RowID, err = core.NewRowID(b.ID, b.Topic); err != nil {
		t.Fatal(err)
	}
	for _, d := range []core.Delivery{a, b, a, b} {
		publishOnce(t, p, d, "")
	}
	if info, err := stream.Info(t.Context()); err != nil || info.State.Msgs != 2 {
		t.Errorf("the stream has %+v (%v), want one message for each destination", info.State, err)
	}

	// A consumer publishes the message to the poison queue, in the same stream: NATS must not take
	// it for a duplicate.
	raw, err := stream.GetMsg(t.Context(), 1)
	fixture.NoError(t, err)
	consumed, err := (&wmnats.NATSMarshaler{}).Unmarshal(&nats.Msg{
		Subject: raw.Subject, Header: raw.Header,
		Data: raw.Data,
	})
	fixture.NoError(t, err)
	fixture.NoError(t, p.MessagePublisher(0).Publish("s.poison", consumed))
	parked, err := stream.GetLastMsgForSubject(t.Context(), "s.poison")
	fixture.Check(t, err == nil && string(parked.Data) == string(a.Payload), "parked %v, %v", parked, err)

	large := brokerDelivery(t, "s.large", "k")
	large.Payload = []byte(strings.Repeat("x", 8192))
	publishOnce(t, p, large, "permanent")
	large.Payload = []byte(strings.Repeat("x", 2<<20)) // larger than the server takes in any stream
	publishOnce(t, p, large, "permanent")
	publishOnce(t, p, brokerDelivery(t, "nobody", "k"), "unavailable") // no stream
	publishOnce(t, p, brokerDelivery(t, "full.a", "k"), "")
	publishOnce(t, p, brokerDelivery(t, "full.a", "k"), "unavailable")

	server.Kill(t)
	publishOnce(t, p, brokerDelivery(t, "s.a", "k"), "unavailable")
	server.Up(t)
	publishUntil(t, p, brokerDelivery(t, "s.a", "k"), "")
}

// Answers of Redis, and missing answers, have different classes too.
func TestRedisStreamClasses(t *testing.T) {
	t.Parallel()
	server := fixture.StartPrivate(t, "redis")
	client := fixture.RedisAt(t, server.Address)
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{})
	fixture.NoError(t, err)
	p := bridged(t, pub, watermillbridge.Config{Classifier: redisbridge.Classify})
	d := brokerDelivery(t, "orders", "k")
	publishOnce(t, p, d, "")
	fixture.NoError(t, client.Set(t.Context(), "text", "x", 0).Err())
	publishOnce(t, p, brokerDelivery(t, "text", "k"), "unavailable")

	set := func(name, value string) {
		t.Helper()
		fixture.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
	}
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "1")
	publishOnce(t, p, d, "unavailable")
	set("maxmemory", "0")
	set("min-replicas-to-write", "1")
	publishOnce(t, p, d, "unavailable")
	set("min-replicas-to-write", "0")
	publishOnce(t, p, d, "")

	server.Kill(t)
	publishOnce(t, p, d, "unavailable")
	server.Up(t)
	publishUntil(t, p, d, "")
}
