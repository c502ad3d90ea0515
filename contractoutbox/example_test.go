package contractoutbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/ormoutbox/ormoutbox/contractoutbox"
	"github.com/ormoutbox/ormoutbox/core/contract"
)

// InvoiceV1 is the data of the last release.
type InvoiceV1 struct {
	Number string `json:"number" contract:"aggregate"`
	Cents  int64  `json:"cents"`
}

// InvoiceNow has another name for a field, and a new one.
type InvoiceNow struct {
	Number string `json:"number" contract:"aggregate"`
	Amount int64  `json:"amount"`
	Due    string `json:"due,omitempty" format:"date"`
}

func invoices[T any](example T) *contract.Catalog {
	return contract.Must(contract.NewCatalog(contract.Must(contract.Define(contract.Spec[T]{
		Type: "invoice.sent", Owner: "team billing", Topic: "billing", AggregateType: "invoice",
		Description: "An invoice has been sent to the customer.",
		Example:     example,
	}))))
}

// A test of a service writes the documents with -update, and fails if somebody forgot that.
func Example() {
	dir, err := os.MkdirTemp("", "events")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	g, err := contractoutbox.New(invoices(InvoiceV1{"2026-17", 4200}), contractoutbox.Config{Title: "Billing"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(errors.Is(g.Verify(dir), contractoutbox.ErrDiffers))
	fmt.Println(g.Write(dir), g.Verify(dir))
	for _, name := range slices.Sorted(maps.Keys(g.Files())) {
		fmt.Println(name)
	}
	// Output:
	// true
	// <nil> <nil>
	// README.md
	// asyncapi.json
	// invoice/invoice.sent.md
	// invoice/invoice.sent.v1.schema.json
}

// The documents of the last release say what must still work.
func ExampleGenerator_Compatible() {
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	last, err := contractoutbox.New(invoices(InvoiceV1{"2026-17", 4200}), contractoutbox.Config{})
	if err = errors.Join(err, last.Write(dir)); err != nil {
		fmt.Println(err)
		return
	}

	now, err := contractoutbox.New(invoices(InvoiceNow{"2026-17", 4200, "2026-04-01"}), contractoutbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	baseline, err := contractoutbox.ReadBaseline(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(errors.Is(now.Compatible(baseline), contractoutbox.ErrIncompatible))
	for _, b := range now.Breaks(baseline) {
		fmt.Println(b.ID(), "backward:", b.Backward, "forward:", b.Forward)
	}
	// Output:
	// true
	// invoice.sent/1/amount/required backward: true forward: false
	// invoice.sent/1/cents/removed backward: false forward: true
}

// In CI the last release is a tag. A shallow clone has none.
func ExampleGitBaseline() {
	g, err := contractoutbox.New(invoices(InvoiceNow{"2026-17", 4200, ""}), contractoutbox.Config{
		Allow: []string{"invoice.sent/1/cents/removed"}, // nobody ever read it
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	baseline, err := contractoutbox.GitBaseline(context.Background(), "docs/events", "") // the last tag
	switch {
	case errors.Is(err, contractoutbox.ErrNotReleased):
		fmt.Println("the first release")
	case err != nil:
		fmt.Println(err)
	default:
		fmt.Println(g.Compatible(baseline))
	}
}

// A payload of another program is tested without a consumer.
func ExampleGenerator_Validate() {
	g, err := contractoutbox.New(invoices(InvoiceV1{"2026-17", 4200}), contractoutbox.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(g.Validate("invoice.sent", 1, []byte(`{"number":"2026-18","cents":1,"note":"new fields are allowed"}`)))
	fmt.Println(g.Validate("invoice.sent", 1, []byte(`{"number":"2026-18","cents":"1"}`)) != nil)
	// Output:
	// <nil>
	// true
}
