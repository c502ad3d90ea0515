package page

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/oteloutbox"
)

var (
	ctx       context.Context
	dsn       string
	db        *sql.DB
	publisher core.Publisher
	router    *message.Router
	traces    *oteloutbox.Traces
	store     *sqlinbox.Store
)
