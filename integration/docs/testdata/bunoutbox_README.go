package page

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

type Order struct{ ID string }

var (
	ctx       context.Context
	dsn       string
	publisher core.Publisher
	order     *Order
)
