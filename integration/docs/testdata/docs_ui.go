package page

import "github.com/ormoutbox/ormoutbox/core"

var repo core.Repository
