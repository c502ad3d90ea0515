package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"
)

var (
	ctx    context.Context
	db     *gorm.DB
	logger watermill.LoggerAdapter
	router *message.Router
)

func book(msg *message.Message) error { return nil }
