package page

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	ctx       context.Context
	pool      *pgxpool.Pool
	publisher core.Publisher
)
