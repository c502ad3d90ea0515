package page

import (
	"context"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

type Order struct{ ID uint }

type OrderPlaced struct{ OrderID uint }

var (
	ctx       context.Context
	db        *gorm.DB
	outbox    *gormoutbox.Outbox
	publisher core.Publisher
)
