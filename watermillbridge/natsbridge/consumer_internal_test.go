package natsbridge

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

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

// Settings that not every server takes (TestNATSSubscriberChecksConsumers has the others).
func TestUnsafeConsumer(t *testing.T) {
	t.Parallel()
	for names, change := range map[string]func(c *jetstream.ConsumerConfig){
		"":                func(*jetstream.ConsumerConfig) {},
		"--backoff":       func(c *jetstream.ConsumerConfig) { c.BackOff = []time.Duration{time.Second} },
		"--memory":        func(c *jetstream.ConsumerConfig) { c.MemoryStorage = true },
		"priority groups": func(c *jetstream.ConsumerConfig) { c.PriorityPolicy = jetstream.PriorityPolicyPinned },
	} {
		cfg := jetstream.ConsumerConfig{FilterSubject: "a", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1}
		change(&cfg)
		err := errors.Join(unsafeConsumer(&cfg, "a")...)
		if (err != nil) != (names != "") || err != nil && !strings.Contains(err.Error(), names) {
			t.Errorf("%v, want it to name %q", err, names)
		}
	}
}
