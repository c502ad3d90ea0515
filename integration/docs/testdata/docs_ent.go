package page

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entclient"
)

var (
	ctx       context.Context
	dsn       string
	publisher core.Publisher
	client    *entclient.Client
	outbox    *entoutbox.Outbox
)
