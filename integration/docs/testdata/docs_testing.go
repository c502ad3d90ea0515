package page

import (
	"testing"

	"gorm.io/gorm"

	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

var publisher outboxtest.Publisher

func openSQLite(t *testing.T) *gorm.DB { return nil }

func placeOrder(db *gorm.DB, id string) error { return nil }
