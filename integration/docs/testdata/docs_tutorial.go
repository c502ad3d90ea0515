package page

import (
	"context"

	"gorm.io/gorm"
)

type Invoice struct{ OrderID, Cents uint }

var (
	ctx context.Context
	db  *gorm.DB
)

func must[T any](value T, err error) T { return value }

func check(error) {}
