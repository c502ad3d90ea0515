package page

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

var (
	ctx                                                   context.Context
	channel, natsPublisher, redisPublisher, httpPublisher message.Publisher
	outboxPublisher                                       message.Publisher
	eventBus                                              *cqrs.EventBus
	kafka                                                 core.Publisher
	outbox                                                *gormoutbox.Outbox
	db                                                    *gorm.DB
	payload                                               []byte
	pool                                                  *sql.DB
	logger                                                watermill.LoggerAdapter
)

func index(ctx context.Context, payload []byte) error { return nil }

type (
	Order       struct{ ID, Total int }
	OrderPlaced struct{ Total int }
)
