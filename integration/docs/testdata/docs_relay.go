package page

import (
	"context"
	"database/sql"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

var (
	ctx                 context.Context
	outbox              *gormoutbox.Outbox
	pool                *sql.DB
	db                  *bun.DB
	dsn                 string
	table               *sqloutbox.Repository
	publisher, webhooks core.Publisher
)
