package natsbridge

import "testing"

func TestDurableName(t *testing.T) {
	t.Parallel()
	c := SubscriberConfig{Group: "billing"}
	for topic, want := range map[string]string{
		"orders": "billing_orders", "orders.placed": "billing_orders_placed", "orders.*.eu": "billing_orders_any_eu",
		"orders.>": "billing_orders_all",
	} {
		if got := c.durableName(topic); got != want {
			t.Errorf("%s: %s, want %s", topic, got, want)
		}
	}
}
