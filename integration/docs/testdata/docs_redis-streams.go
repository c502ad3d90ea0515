package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"gorm.io/gorm"
)

var (
	ctx    context.Context
	client *redis.Client
	db     *gorm.DB
	router *message.Router
	logger watermill.LoggerAdapter
)

func invoice(*message.Message) error
