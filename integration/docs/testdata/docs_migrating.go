package page

import (
	"context"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

var (
	ctx       context.Context
	db        *gorm.DB
	outbox    *gormoutbox.Outbox
	publisher *watermillbridge.OutboxPublisher
	payload   []byte
	id        string
	store     *sqlinbox.Store
	brokers   []string
)
