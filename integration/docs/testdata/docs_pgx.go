package page

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

var (
	ctx       context.Context
	publisher core.Publisher
	pgxPool   *pgxpool.Pool
	pool      *pgxoutbox.Pool
	outbox    *core.Outbox
)
