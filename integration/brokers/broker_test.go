package brokers_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// broker is a broker together with its bridge, as an application uses them. Some have the methods
// behind, again and refusal too: see suite.Broker.
type broker interface {
	// topic makes a topic that is deleted when the test ends.
	topic(t *testing.T) string
	// publisher connects to the broker. It may know only the topics that were made before.
	publisher(t *testing.T, timeout time.Duration) publisher
	// through is publisher with something in between that can hold the broker's answers back.
	through(t *testing.T, timeout time.Duration) (publisher, suite.Link)
	// held returns all messages of a topic as consumers get them. Those of one key are in order.
	held(t *testing.T, topic string) []heldMessage
}

type publisher interface {
	core.ReceiptPublisher
	core.SizeChecker
}

// heldMessage is a message that a broker has.
type heldMessage struct {
	*message.Message
	place string // the receipt that the relay must have got for the message
}

// onShared opens a broker on the server that tests share.
func onShared(url func(testing.TB) string, at func(url string) broker) func(t *testing.T) broker {
	return func(t *testing.T) broker { t.Helper(); return at(url(t)) }
}

// onPrivate starts a server for one test.
func onPrivate(name string, at func(url string) broker) func(t *testing.T) (broker, suite.Server) {
	return func(t *testing.T) (broker, suite.Server) {
		t.Helper()
		server := fixture.StartPrivate(t, name)
		return at(server.Address), server
	}
}

// proxied is the URL of a server as it is reached through a proxy.
func proxied(t *testing.T, address string) (string, *suite.Proxy) {
	t.Helper()
	u, err := url.Parse(address)
	fixture.NoError(t, err)
	proxy := suite.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	return u.String(), proxy
}
