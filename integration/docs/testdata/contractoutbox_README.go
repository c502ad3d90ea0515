package page

import "github.com/ormoutbox/ormoutbox/core/contract"

var events struct{ Catalog *contract.Catalog }
