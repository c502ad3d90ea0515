package adapter_test

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
)

// An adapter refuses a statement whose events cannot be written, and says why.
func ExampleCausesEvents() {
	err := adapter.CausesEvents(core.OpCreate, "orders", core.ErrNoTransaction)
	fmt.Println(err)
	fmt.Println(errors.Is(err, core.ErrNoTransaction))
	// Output:
	// outbox: create of orders causes events: no transaction
	// true
}

// The name of the package stands once in the text, whatever is wrapped.
func ExampleErrorf() {
	fmt.Println(adapter.Errorf("outbox: order 7: %w", core.ErrNoTransaction))
	// Output: outbox: order 7: no transaction
}
