package page

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"gorm.io/gorm"
)

type Invoice struct{ EventID string }

var (
	db     *gorm.DB
	router *message.Router
)
