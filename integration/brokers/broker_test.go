package brokers_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// broker is a broker together with its bridge, as an application uses them.
type broker interface {
	// topic makes a topic that is deleted when the test ends.
	topic(t *testing.T) string
	// publisher connects to the broker. It may know only the topics that were made before.
	publisher(t *testing.T, timeout time.Duration) publisher
	// through is publisher with something in between that can hold the broker's answers back.
	through(t *testing.T, timeout time.Duration) (publisher, answers)
	// behind is publisher with the address of another server before those of the broker. It is nil if
	// the client takes one address.
	behind(t *testing.T, other string) publisher
	// again deletes a topic and makes another one of that name. Without made there is no such thing.
	again(t *testing.T, topic string) (made bool)
	// refusal prepares an event that the broker refuses. It is nil if the broker takes every event.
	refusal(t *testing.T) *refusal
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

// answers controls the answers of a broker to a publisher.
type answers interface {
	Hold()                 // holds the answers back until Release; requests still reach the broker
	Release()              // lets the answers pass, and those that were held back
	Delay(d time.Duration) // delays every answer from now on
	Cut()                  // closes the connections; answers that are on their way are lost
}

// refusal is an event that a broker refuses. Either payload or cure is set.
type refusal struct {
	publisher publisher
	topic     string
	payload   string // always refused; the topic takes every other payload
	cure      func() // the broker refuses every event of the topic until cure is called
}

// server is the server of a broker, or its servers.
type server interface {
	Pause(t *testing.T)
	Resume(t *testing.T)
	Kill(t *testing.T) // with SIGKILL
	Up(t *testing.T)
}

// onShared opens a broker on the server that tests share.
func onShared(url func(testing.TB) string, at func(url string) broker) func(t *testing.T) broker {
	return func(t *testing.T) broker { t.Helper(); return at(url(t)) }
}

// onPrivate starts a server for one test.
func onPrivate(name string, at func(url string) broker) func(t *testing.T) (broker, server) {
	return func(t *testing.T) (broker, server) {
		t.Helper()
		server := fixture.StartPrivate(t, name)
		return at(server.Address), server
	}
}
