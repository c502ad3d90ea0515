package bridgetest_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/bridgetest"
)

func TestPubSub(t *testing.T) {
	suite.TestPublisher(t, suite.PublisherHarness{
		Open: func(t *testing.T) suite.Broker {
			t.Helper()
			channel := gochannel.NewGoChannel(
				gochannel.Config{BlockPublishUntilSubscriberAck: true},
				watermill.NopLogger{},
			)
			return bridgetest.Open(
				t,
				channel,
				func(*testing.T) message.Publisher { return channel },
				watermillbridge.Config{},
			)
		},
		MakesTopics: true, // and loses the message
		OneByOne:    true,
	})
}
