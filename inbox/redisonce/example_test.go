package redisonce_test

import (
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/inbox/redisonce"
)

func ExampleMiddleware() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		panic(err)
	}
	router.AddMiddleware(redisonce.Middleware(client, "mailer", inbox.TTL(14*24*time.Hour)))
}

func ExampleNewExpiringKeys() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	keys, err := redisonce.NewExpiringKeys(client, time.Minute, "")
	if err != nil {
		panic(err)
	}
	_ = keys // middleware.Deduplicator{KeyFactory: ..., Repository: keys}
}
