package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

var (
	ctx            context.Context
	brokers        []string
	user, password string
	db             *gorm.DB
	router         *message.Router
	publisher      *watermillbridge.Publisher
)

func invoice(*message.Message) error
