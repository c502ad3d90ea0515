package page

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

var publisher outboxtest.Publisher

func openSQLite(t *testing.T) *gorm.DB { return nil }

func placeOrder(db *gorm.DB, id string) error { return nil }

func newSubscriber(t *testing.T) message.Subscriber { return nil }

func newPublisher(t *testing.T) message.Publisher { return nil }
