package page

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	ctx       context.Context
	dsn       string
	publisher core.Publisher
)
