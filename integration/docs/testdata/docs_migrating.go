package page

import "github.com/ormoutbox/ormoutbox/core"

var outbox *core.Outbox
