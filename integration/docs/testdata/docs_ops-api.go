package page

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var (
	ctx context.Context
	db  *sql.DB
	api *ops.API

	queue     inbox.Queue
	publisher inbox.Sender
)
