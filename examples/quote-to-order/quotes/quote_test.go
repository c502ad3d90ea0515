package quotes

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
)

func lines(l ...Line) *Quote {
	return &Quote{ID: "Q-1", Customer: "ada@example.com", Status: StatusDraft, Lines: l}
}

// The order service reads each quote that passes the check of the quote service.
func TestWhatIsPromisedCanBeOrdered(t *testing.T) {
	t.Parallel()
	chair := Line{Line: 1, SKU: "chair", Quantity: 1, Cents: 100}
	good := lines(chair)
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	if err := good.accept(time.Now(), 1); err != nil {
		t.Fatal(err)
	}
	nobody := lines(chair)
	nobody.Customer = ""
	for name, q := range map[string]*Quote{
		"no lines": lines(), "no customer": nobody, "a line twice": lines(chair, chair),
		"no quantity":        lines(Line{SKU: "chair"}),
		"a price below zero": lines(Line{SKU: "chair", Quantity: 1, Cents: -1}),
	} {
		if err := q.check(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := contract.ReadQuoteAccepted([]byte(`{"quote_id":"Q-1","lines":[]}`), 1, 1); err == nil {
		t.Error("the order service reads a quote without lines")
	}
}

func TestCredit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		q  *Quote
		ok bool
	}{
		"all of it":         {lines(Line{Quantity: 1, Cents: creditLimit - 5}, Line{Quantity: 5, Cents: 1}), true},
		"a cent more":       {lines(Line{Quantity: 1, Cents: creditLimit}, Line{Quantity: 1, Cents: 1}), false},
		"more than numbers": {lines(Line{Quantity: 3, Cents: math.MaxInt64/3 + 1}), false},
	} {
		if err := reserveCredit(tc.q); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
