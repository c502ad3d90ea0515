package page

import (
	"context"
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

var (
	t         *testing.T
	ctx       context.Context
	db        *gorm.DB
	order     *Order
	outbox    *gormoutbox.Outbox
	publisher core.Publisher
)
