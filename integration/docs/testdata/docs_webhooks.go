package page

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/watermillbridge/httpbridge"
)

var (
	ctx        context.Context
	secret     string
	publisher  *httpbridge.Publisher
	in         *coreinbox.Inbox
	endpointOf func(subscriber string) httpbridge.Endpoint
	book       func(context.Context, core.Tx, coreinbox.Message) error
)
