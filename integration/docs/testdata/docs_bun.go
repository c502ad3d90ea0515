package page

import (
	"context"
	"testing"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
)

var (
	t         *testing.T
	ctx       context.Context
	dsn       string
	publisher core.Publisher
	db        *bun.DB
	tx        bun.Tx
	outbox    *bunoutbox.Outbox
	order     *Order
)
