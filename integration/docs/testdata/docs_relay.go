package page

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

var (
	ctx                 context.Context
	outbox              *gormoutbox.Outbox
	pool                *sql.DB
	publisher, webhooks core.Publisher
)
