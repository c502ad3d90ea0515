// Package contract has the events that the services send to each other: their topics, and the
// documents in them. It is the only package that both services import.
package contract

import "time"

// Topics. Each belongs to one service, which alone publishes to it.
const (
	QuoteEvents      = "cpq.quote.events.v1"  // events of the quote service
	OrderEvents      = "oms.order.events.v1"  // events of the order service
	FulfilmentEvents = "fulfilment.events.v1" // events of the fulfilment system
)

// OrderCaptured says that a quote became an order.
type OrderCaptured struct {
	OrderID    string    `json:"order_id"`
	QuoteID    string    `json:"quote_id"`
	CapturedAt time.Time `json:"captured_at"`
}

// EventType names the event.
func (OrderCaptured) EventType() string { return "OrderCaptured" }

// OrderCompleted says that every line of an order is fulfilled.
type OrderCompleted struct {
	OrderID     string    `json:"order_id"`
	QuoteID     string    `json:"quote_id"`
	CompletedAt time.Time `json:"completed_at"`
}

// EventType names the event.
func (OrderCompleted) EventType() string { return "OrderCompleted" }

// FulfilmentCompleted says that a line of an order is fulfilled.
type FulfilmentCompleted struct {
	OrderID string `json:"order_id"`
	Line    int    `json:"line"`
}

// EventType names the event.
func (FulfilmentCompleted) EventType() string { return "FulfilmentCompleted" }
