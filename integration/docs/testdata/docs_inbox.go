package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

var (
	ctx                 context.Context
	db                  *gorm.DB
	router              *message.Router
	deadLetters, outbox message.Publisher
	in                  *coreinbox.Inbox
	brokers             []string
	kafka               coreinbox.Sender // a *franzbridge.Publisher
)

type Invoice struct{ Order string }
