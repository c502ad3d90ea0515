package brokers_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
)

// googleBroker is Google's own server for tests, which refuses what the documents of Pub/Sub say.
type googleBroker struct {
	server  *pstest.Server
	denying *atomic.Bool // while true nobody may publish
}

func openGoogle(t *testing.T) broker {
	t.Helper()
	g := googleBroker{denying: &atomic.Bool{}}
	g.server = pstest.NewServer(pstest.ServerReactorOption{FuncName: "Publish", Reactor: g})
	t.Cleanup(func() { _ = g.server.Close() })
	return g
}

// React implements pstest.Reactor with the limits that the server itself does not have.
func (g googleBroker) React(request any) (handled bool, _ any, err error) {
	if g.denying.Load() {
		return true, nil, status.Error(codes.PermissionDenied, "no role")
	}
	for _, m := range request.(*pubsubpb.PublishRequest).Messages {
		tooMuch := len(m.Attributes) > 100 || len(m.OrderingKey) > 1024 || len(m.Data) > 10_000_000
		for name, v := range m.Attributes {
			tooMuch = tooMuch || len(name) > 256 || len(v) > 1024 || strings.HasPrefix(name, "goog")
		}
		if tooMuch || len(m.Attributes) == 0 && len(m.Data) == 0 {
			return true, nil, status.Error(codes.InvalidArgument, "a limit")
		}
	}
	return false, nil, nil
}

func googleTopic(topic string) string { return "projects/p/topics/" + topic }

func (g googleBroker) topic(t *testing.T) string {
	t.Helper()
	name := "it-" + core.NewEventID()
	_, err := g.server.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: googleTopic(name)})
	fixture.NoError(t, err)
	return name
}

func (g googleBroker) at(t *testing.T, address string) publisher {
	t.Helper()
	p, err := newGoogle("p", option.WithEndpoint(address), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

func (g googleBroker) publisher(t *testing.T, _ time.Duration) publisher {
	t.Helper()
	return g.at(t, g.server.Addr)
}

func (g googleBroker) through(t *testing.T, _ time.Duration) (publisher, suite.Link) {
	t.Helper()
	proxy := suite.NewProxy(t, g.server.Addr)
	return g.at(t, proxy.Addr()), proxy
}

func (g googleBroker) held(t *testing.T, topic string) (all []heldMessage) {
	t.Helper()
	for _, m := range g.server.Messages() {
		if m.Topic != googleTopic(topic) {
			continue
		}
		fixture.Check(t, m.OrderingKey == m.Attributes[core.HeaderPartitionKey], "ordering key %q", m.OrderingKey)
		msg, err := googlecloud.DefaultMarshalerUnmarshaler{}.Unmarshal(&pubsub.Message{
			ID: m.ID, Data: m.Data, Attributes: m.Attributes, PublishTime: m.PublishTime,
		})
		fixture.NoError(t, err)
		all = append(all, heldMessage{msg, m.ID})
	}
	return all
}

// After an outage, in which the client pauses keys, every key goes on, and no attempt is spent.
func TestGoogleResumesKeys(t *testing.T) {
	t.Parallel()
	g := openGoogle(t).(googleBroker)
	topic := g.topic(t)
	o := newOutage(t, core.Config{Publisher: g.publisher(t, 0), Relay: relay.Config{Retry: eager, Breaker: soon}})
	o.publish(keyed(topic, 6)...)
	o.wantStatus(outboxtest.StatusDone, "the first events")
	g.denying.Store(true)
	for range 5 {
		o.publish(keyed(topic, 6)...)
	}
	o.awaitFailures(8)
	g.denying.Store(false)
	o.wantStatus(outboxtest.StatusDone, "every key goes on")
	for _, row := range o.repo.Rows() {
		fixture.Check(t, row.Attempts == 0, "an attempt was spent: %d, %s", row.Attempts, row.Error)
	}
	requireOnceEach(t, o.repo.Rows(), g.held(t, topic))
}
