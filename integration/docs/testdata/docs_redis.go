package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
)

var (
	ctx        context.Context
	client     *redis.Client
	router     *message.Router
	publisher  message.Publisher
	runner     *once.Runner
	table      *sqlinbox.Store
	transactor core.Transactor
)

func sendMail(ctx context.Context, payload []byte, key string) error { return nil }
