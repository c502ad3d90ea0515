package brokers_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// broker is a broker with its bridge, as an application uses the two.
type broker interface {
	// topic makes a topic that goes when the test ends.
	topic(t *testing.T) string
	// publisher connects to the broker. It may know only the topics that were made before.
	publisher(t *testing.T, timeout time.Duration) publisher
	// through is publisher with somebody in between who can keep the broker's answers.
	through(t *testing.T, timeout time.Duration) (publisher, answers)
	// refusal prepares an event that the broker refuses; nil: it takes every event.
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
	place string // the receipt that the relay must have got for it
}

// answers are those of a broker to a publisher.
type answers interface {
	Hold()                 // until Release; the broker gets all requests
	Release()              // also what was held
	Delay(d time.Duration) // each one from now on
	Cut()                  // ends connections, with the answers that are on their way
}

// refusal is an event that a broker refuses.
type refusal struct {
	publisher publisher
	topic     string
	payload   string // it is refused whatever happens, and every other one is taken; or else:
	cure      func() // makes the broker take the topic's events, all of which it refuses
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
