package page

import "github.com/ormoutbox/ormoutbox/core"

var publisher core.Publisher
