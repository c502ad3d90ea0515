package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

var (
	ctx        context.Context
	client     *redis.Client
	router     *message.Router
	publisher  message.Publisher
	runner     *once.Runner
	table      *sqlonce.Store
	transactor core.Transactor
)

func sendMail(ctx context.Context, payload []byte, key string) error { return nil }
