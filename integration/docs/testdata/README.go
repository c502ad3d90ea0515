package page

import (
	"context"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
)

type Order struct{ ID, Cents uint }

var (
	ctx       context.Context
	db        *gorm.DB
	publisher core.Publisher
	order     *Order
	check     func(error)
)
