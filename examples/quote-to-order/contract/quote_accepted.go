package contract

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// QuoteAccepted says that a customer has accepted a quote. It has everything that an order needs,
// so the order service never asks the quote service.
type QuoteAccepted struct {
	QuoteID    string    `json:"quote_id"`
	Customer   string    `json:"customer"` // the address of the customer's mails
	Lines      []Line    `json:"lines"`
	AcceptedAt time.Time `json:"accepted_at"`
}

// Line is a line of a quote.
type Line struct {
	Line     int    `json:"line"`
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Cents    int64  `json:"cents"` // price of one piece
}

// EventType names the event.
func (QuoteAccepted) EventType() string { return "QuoteAccepted" }

// Version2 returns the document of version 2, which breaks version 1: a quantity has a unit, and is
// text.
func (e QuoteAccepted) Version2() QuoteAcceptedV2 {
	v2 := QuoteAcceptedV2{QuoteID: e.QuoteID, Customer: e.Customer, AcceptedAt: e.AcceptedAt}
	for _, l := range e.Lines {
		v2.Lines = append(v2.Lines, LineV2{l.Line, l.SKU, fmt.Sprint(l.Quantity, " pcs"), l.Cents})
	}
	return v2
}

// QuoteAcceptedV2 is version 2 of QuoteAccepted.
type QuoteAcceptedV2 struct {
	QuoteID    string    `json:"quote_id"`
	Customer   string    `json:"customer"`
	Lines      []LineV2  `json:"lines"`
	AcceptedAt time.Time `json:"accepted_at"`
}

// LineV2 is a line of a quote in version 2.
type LineV2 struct {
	Line     int    `json:"line"`
	SKU      string `json:"sku"`
	Quantity string `json:"quantity"` // such as "3 pcs"
	Cents    int64  `json:"cents"`
}

// EventType names the event: it is the same event, with another SchemaVersion.
func (QuoteAcceptedV2) EventType() string { return "QuoteAccepted" }

// upcast returns the event in the form of the version before.
func (e QuoteAcceptedV2) upcast() (QuoteAccepted, error) {
	v1 := QuoteAccepted{QuoteID: e.QuoteID, Customer: e.Customer, AcceptedAt: e.AcceptedAt}
	for _, l := range e.Lines {
		number, unit, _ := strings.Cut(l.Quantity, " ")
		n, err := strconv.Atoi(number)
		if err != nil || unit != "pcs" {
			return QuoteAccepted{}, fmt.Errorf("line %d: quantity %q is not a number of pcs", l.Line, l.Quantity)
		}
		v1.Lines = append(v1.Lines, Line{l.Line, l.SKU, n, l.Cents})
	}
	return v1, nil
}

// ReadQuoteAccepted reads a document of any version up to newest, the newest that the reader
// understands. Fields that it does not know are ignored, so that the quote service may add some
// without a new version. No attempt to read the same document again can help, so an error is
// permanent.
func ReadQuoteAccepted(document []byte, version, newest int) (e QuoteAccepted, err error) {
	switch {
	case version > newest:
		return e, fmt.Errorf("QuoteAccepted has schema_version %d, and this release reads up to %d", version, newest)
	case version == 2:
		var v2 QuoteAcceptedV2
		if err = json.Unmarshal(document, &v2); err == nil {
			e, err = v2.upcast()
		}
	default:
		err = json.Unmarshal(document, &e)
	}
	switch {
	case err != nil:
		return e, fmt.Errorf("QuoteAccepted, schema_version %d: %w", version, err)
	case e.QuoteID == "" || e.Customer == "" || len(e.Lines) == 0 || e.AcceptedAt.IsZero():
		return e, fmt.Errorf("QuoteAccepted, schema_version %d: quote_id, customer, lines or accepted_at is missing",
			version)
	}
	return e, nil
}
