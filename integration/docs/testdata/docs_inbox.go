package page

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/inbox"
)

var (
	db         *gorm.DB
	router     *message.Router
	publisher  message.Publisher
	subscriber message.Subscriber
	handle     message.HandlerFunc
	in         *inbox.Inbox
)
