package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	ctx                                                        context.Context
	channel, natsPublisher, redisPublisher, httpPublisher, bus message.Publisher
	kafka                                                      core.Publisher
	outbox                                                     *core.Outbox
	db                                                         *gorm.DB
	payload                                                    []byte
)

func index(ctx context.Context, payload []byte) error { return nil }
