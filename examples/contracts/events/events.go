// Package events declares the events of a small shop. Producers and consumers import it, and its
// test writes docs/events.
package events

import (
	"math"
	"time"

	"github.com/ormoutbox/ormoutbox/core/contract"
)

// OrderPlacedV1 is the data of version 1. Producers no longer write it.
type OrderPlacedV1 struct {
	OrderID string  `json:"order_id"`
	Total   float64 `json:"total" doc:"in euros"`
}

// OrderPlacedV2 is the data of version 2.
type OrderPlacedV2 struct {
	OrderID  string `json:"order_id" contract:"aggregate" doc:"the order's number"`
	Cents    int64  `json:"cents" doc:"the total in cents of a euro" minimum:"0"`
	Customer string `json:"customer,omitempty" contract:"pii" doc:"the customer's name"`
	Lines    []Line `json:"lines,omitempty" doc:"what was ordered"`
}

// Line is a part of an order.
type Line struct {
	SKU   string `json:"sku" doc:"the article"`
	Count uint16 `json:"count" minimum:"1"`
}

// OrderPlaced is the first event of an order.
var OrderPlaced = contract.Must(contract.Define(contract.Spec[OrderPlacedV2]{
	Type:          "order.placed",
	Version:       2,
	Domain:        "sales",
	Owner:         "team orders",
	Topic:         "orders",
	AggregateType: "order",
	Description:   "A customer has placed an order, and has not paid it yet.",
	Notes: `The event comes before every other event of its order. A replay brings it again: the inbox
recognises it by its id.`,
	Example: OrderPlacedV2{
		OrderID: "order-7", Cents: 4200, Customer: "Ada", Lines: []Line{{SKU: "book", Count: 2}},
	},
	Older: []contract.Older{
		contract.From(1, OrderPlacedV1{OrderID: "order-7", Total: 42}, UpcastOrderPlacedV1),
	},
}))

// UpcastOrderPlacedV1 returns the data of version 1 as version 2.
func UpcastOrderPlacedV1(v1 OrderPlacedV1) (OrderPlacedV2, error) {
	return OrderPlacedV2{OrderID: v1.OrderID, Cents: int64(math.Round(v1.Total * 100))}, nil
}

// OrderCancelledV1 is the data of version 1.
type OrderCancelledV1 struct {
	OrderID string    `json:"order_id" contract:"aggregate" doc:"the order's number"`
	Reason  string    `json:"reason" enum:"customer,stock,fraud" doc:"who or what was the cause"`
	At      time.Time `json:"at" doc:"when it was cancelled"`
}

// OrderCancelled ends an order.
var OrderCancelled = contract.Must(contract.Define(contract.Spec[OrderCancelledV1]{
	Type:          "order.cancelled",
	Domain:        "sales",
	Owner:         "team orders",
	Topic:         "orders",
	AggregateType: "order",
	Description:   "An order was cancelled, and nothing of it will be delivered.",
	Example: OrderCancelledV1{
		OrderID: "order-7", Reason: "customer", At: time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC),
	},
}))

// Catalog has all events of the shop.
var Catalog = contract.Must(contract.NewCatalog(OrderPlaced, OrderCancelled))
