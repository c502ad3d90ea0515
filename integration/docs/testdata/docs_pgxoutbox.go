package page

import (
	"context"
	"database/sql"

	"github.com/ormoutbox/ormoutbox/core"
)

type Order struct{ ID string }

var (
	ctx    context.Context
	dsn    string
	conn   *sql.Conn
	rows   [][]any
	outbox *core.Outbox
	tx     core.Tx
	order  Order
)
