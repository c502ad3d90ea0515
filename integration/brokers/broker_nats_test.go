package brokers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// natsBroker is NATS JetStream: a topic is a stream of its own.
type natsBroker struct{ url string }

func (n natsBroker) topic(t *testing.T) string {
	t.Helper()
	return topics.NATSStream(t, n.url, "it-"+core.NewEventID(), nil)
}

func (n natsBroker) again(t *testing.T, topic string) {
	t.Helper()
	js := topics.JetStream(t, n.url)
	stream, err := js.Stream(t.Context(), topic)
	fixture.NoError(t, err)
	fixture.NoError(t, js.DeleteStream(t.Context(), topic))
	_, err = js.CreateStream(t.Context(), stream.CachedInfo().Config)
	fixture.NoError(t, err)
}

func (n natsBroker) publisher(t *testing.T, timeout time.Duration) publisher {
	t.Helper()
	return topics.NATSPublisher(t, natsbridge.Config{URL: n.url, ConnectTimeout: min(timeout, 2*time.Second)})
}

func (n natsBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	url, proxy := proxied(t, n.url)
	return natsBroker{url}.publisher(t, timeout), proxy
}

func (n natsBroker) behind(t *testing.T, other string) publisher {
	t.Helper()
	return topics.NATSPublisher(t, natsbridge.Config{
		URL: "nats://" + other + ", " + n.url, Options: []nats.Option{nats.DontRandomize()},
	})
}

// refusal is a message that is larger than its stream takes.
func (n natsBroker) refusal(t *testing.T) suite.Refusal {
	t.Helper()
	const limit = 2000
	topic := topics.NATSStream(t, n.url, "it-"+core.NewEventID(), func(c *jetstream.StreamConfig) {
		c.MaxMsgSize = limit
	})
	return suite.Refusal{Publisher: n.publisher(t, 0), Topic: topic, Payload: strings.Repeat("x", 2*limit)}
}

func (n natsBroker) held(t *testing.T, topic string) (all []heldMessage) {
	t.Helper()
	stream, err := topics.JetStream(t, n.url).Stream(t.Context(), topic)
	fixture.NoError(t, err)
	for seq := range stream.CachedInfo().State.LastSeq {
		raw, err := stream.GetMsg(t.Context(), seq+1)
		fixture.NoError(t, err)
		msg, err := (&wmnats.NATSMarshaler{}).Unmarshal(&nats.Msg{
			Subject: raw.Subject, Header: raw.Header, Data: raw.Data,
		})
		fixture.NoError(t, err)
		all = append(all, heldMessage{msg, fmt.Sprintf("%s@%d", topic, seq+1)})
	}
	return all
}
