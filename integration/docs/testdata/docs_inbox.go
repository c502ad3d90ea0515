package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

var (
	ctx                    context.Context
	db                     *gorm.DB
	router                 *message.Router
	publisher, deadLetters message.Publisher
	outbox                 message.Publisher
	subscriber             message.Subscriber
	fromTheStart           message.Subscriber
	handle                 message.HandlerFunc
	in                     *coreinbox.Inbox
	brokers                []string
	kafka                  coreinbox.Sender // a *franzbridge.Publisher
)

type Invoice struct{ Order string }
