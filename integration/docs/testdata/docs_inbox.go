package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/inbox"
)

var (
	ctx                    context.Context
	db                     *gorm.DB
	router                 *message.Router
	publisher, deadLetters message.Publisher
	subscriber             message.Subscriber
	fromTheStart           message.Subscriber
	handle                 message.HandlerFunc
	in                     *inbox.Inbox
	brokers                []string
)

type Invoice struct{ Order string }
