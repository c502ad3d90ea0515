package quotes

import (
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
)

// Statuses of a quote: draft, then accepted, then ordered.
const (
	StatusDraft    = "draft"
	StatusAccepted = "accepted"
	StatusOrdered  = "ordered"
)

// ErrInvalid is wrapped by the error of a quote that nobody could order.
var ErrInvalid = errors.New("invalid quote")

// ErrTransition is wrapped by the error of a change that the status of the quote does not allow.
var ErrTransition = errors.New("not allowed in this status")

// Quote is a row. It records its events, and the statement that saves it writes them.
type Quote struct {
	ID            string     `gorm:"primaryKey" json:"id"`
	TenantID      string     `json:"-"`
	Customer      string     `json:"customer"`
	Status        string     `json:"status"`
	AcceptedAt    *time.Time `json:"accepted_at,omitempty"`
	OrderID       *string    `json:"order_id,omitempty"`
	Lines         []Line     `gorm:"foreignKey:QuoteID" json:"lines"`
	core.Recorder `gorm:"-" json:"-"`
}

// TableName names the table.
func (Quote) TableName() string { return "quote" }

// AggregateType is a part of the key: the events of a quote stay in order.
func (Quote) AggregateType() string { return "quote" }

// Line is a line of a quote.
type Line struct {
	QuoteID  string `gorm:"primaryKey" json:"-"`
	Line     int    `gorm:"primaryKey" json:"line"`
	SKU      string `gorm:"column:sku" json:"sku"`
	Quantity int    `json:"quantity"`
	Cents    int64  `json:"cents"`
}

// TableName names the table.
func (Line) TableName() string { return "quote_line" }

// check refuses a quote of which the order service could make no order. A quote that is accepted is
// a promise to a customer, so the check comes before that.
func (q *Quote) check() error {
	if q.ID == "" || q.Customer == "" || len(q.Lines) == 0 {
		return fmt.Errorf("%w: id, customer or lines are missing", ErrInvalid)
	}
	seen := map[int]bool{}
	for _, l := range q.Lines {
		if l.SKU == "" || l.Quantity < 1 || l.Cents < 0 || seen[l.Line] {
			return fmt.Errorf("%w: line %d has no sku, no quantity or no price, or is there twice", ErrInvalid, l.Line)
		}
		seen[l.Line] = true
	}
	return nil
}

// accept changes a draft, and records that. version is the schema version of the event.
func (q *Quote) accept(now time.Time, version int) error {
	if q.Status != StatusDraft {
		return fmt.Errorf("accept quote %s, which is %s: %w", q.ID, q.Status, ErrTransition)
	}
	q.Status, q.AcceptedAt = StatusAccepted, &now
	accepted := contract.QuoteAccepted{QuoteID: q.ID, Customer: q.Customer, AcceptedAt: now}
	for _, l := range q.Lines {
		accepted.Lines = append(accepted.Lines, contract.Line{
			Line: l.Line, SKU: l.SKU, Quantity: l.Quantity, Cents: l.Cents,
		})
	}
	event := core.Event{Type: accepted.EventType(), SchemaVersion: version, TenantID: q.TenantID, Data: accepted}
	if version == 2 {
		event.Data = accepted.Version2()
	}
	q.Record(event)
	return nil
}
