package spelling_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/spelling"
)

func TestNear(t *testing.T) {
	for _, c := range []struct {
		word, name string
		near       bool
	}{
		{"order.placed", "order.placd", true},
		{"order.placd", "order.placed", true},
		{"order.placed", "order.plcaed", true},
		{"order.placed", "Order.Placed", true},
		{"order.placed", "order_placed", true},
		{"orders", "order", true},
		{"order.placed", "order.placed", false},
		{"order.paid", "order.placed", false},
		{"order.v1", "order.v2", false},
		{"orders", "orders2", false},
		{"orders-eu", "orders-us", false},
		{"", "x", false},
		{"a", "b", false},
	} {
		if got := spelling.Near(c.word, []string{"something else", c.name}); (got == c.name) != c.near {
			t.Errorf("%q, %q: %q", c.word, c.name, got)
		}
	}
}
