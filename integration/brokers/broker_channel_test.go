package brokers_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// channelBroker is Watermill's Pub/Sub of Go channels. It stores nothing, so held returns the
// messages that the consumer of a topic has got. The consumer's acknowledgement is the answer to
// the publisher.
type channelBroker struct {
	channel *gochannel.GoChannel

	mu    sync.Mutex
	cond  *sync.Cond
	got   map[string][]heldMessage // by topic
	hold  bool
	delay time.Duration
}

func openChannel(*testing.T) broker { return newChannelBroker() }

func newChannelBroker() *channelBroker {
	c := &channelBroker{got: map[string][]heldMessage{}, channel: gochannel.NewGoChannel(
		gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})}
	c.cond = sync.NewCond(&c.mu)
	return c
}

func (c *channelBroker) topic(t *testing.T) string {
	t.Helper()
	name := "it-" + core.NewEventID()
	ctx, cancel := context.WithCancel(context.Background())
	messages, err := c.channel.Subscribe(ctx, name)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); c.consume(name, messages) }()
	t.Cleanup(func() { c.Release(); cancel(); <-done })
	return name
}

func (c *channelBroker) consume(topic string, messages <-chan *message.Message) {
	for msg := range messages {
		c.mu.Lock()
		c.got[topic] = append(c.got[topic], heldMessage{Message: msg})
		delay := c.delay
		c.mu.Unlock()
		<-time.After(delay)
		c.mu.Lock()
		for c.hold {
			c.cond.Wait()
		}
		c.mu.Unlock()
		msg.Ack()
	}
}

// publisher closes the channel when the test ends.
func (c *channelBroker) publisher(t *testing.T, _ time.Duration) publisher {
	t.Helper()
	p, err := watermillbridge.NewPublisher(c.channel, watermillbridge.Config{})
	fixture.NoError(t, err)
	topics.CloseAtEnd(t, p)
	return p
}

func (c *channelBroker) through(t *testing.T, timeout time.Duration) (publisher, suite.Link) {
	t.Helper()
	return c.publisher(t, timeout), c
}

func (c *channelBroker) held(_ *testing.T, topic string) []heldMessage {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got[topic])
}

func (c *channelBroker) set(change func()) {
	c.mu.Lock()
	change()
	c.cond.Broadcast()
	c.mu.Unlock()
}

// Hold implements suite.Link.
func (c *channelBroker) Hold() { c.set(func() { c.hold = true }) }

// Release implements suite.Link.
func (c *channelBroker) Release() { c.set(func() { c.hold = false }) }

// Delay implements suite.Link.
func (c *channelBroker) Delay(d time.Duration) { c.set(func() { c.delay = d }) }

// Cut implements suite.Link: there are no connections.
func (c *channelBroker) Cut() {}
