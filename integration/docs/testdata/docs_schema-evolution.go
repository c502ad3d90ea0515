package page

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/contract"
)

type OrderPlacedV1 struct {
	OrderID string
	Euros   int64
}

var (
	ctx            context.Context
	db             *sql.DB
	tx             core.Tx
	outbox         *core.Outbox
	router         *message.Router
	subscriber     message.Subscriber
	update         *bool
	OrderCancelled *contract.EventType[OrderPlacedV1]
)

func invoice(context.Context, OrderPlacedV2) error { return nil }
