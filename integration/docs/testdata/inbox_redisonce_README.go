package page

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

var (
	client *redis.Client
	router *message.Router
)
