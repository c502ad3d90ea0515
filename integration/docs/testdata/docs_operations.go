package page

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

var (
	ctx    context.Context
	outbox *core.Outbox
)
