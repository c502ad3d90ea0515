package promoutbox_test

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/promoutbox"
)

func TestKnownTopicsBeginAtZero(t *testing.T) {
	m := promoutbox.New(promoutbox.Config{Topics: []string{"orders"}, Types: []string{"order.placed"}, MaxLabels: 1})
	want(t, m, 0, "outbox_relay_type_messages_total", "event_type=order.placed", "outcome=dead")
	want(t, m, 0, "outbox_relay_messages_total", "destination=orders", "path=cold", "outcome=dead")
	want(t, m, 0, "outbox_delivery_lag_seconds", "destination=orders", "path=hot")
	want(t, m, 0, "outbox_relay_lease_conflicts_total", "transition=renew")
	want(t, m, 0, "outbox_cleanup_deleted_total", "table=key")

	m.Outbox().LateAcks(1)
	m.Outbox().Inserted("a", true)
	m.Outbox().Inserted("orders", true) // does not count towards the limit
	want(t, m, 1, "outbox_enqueue_messages_total", "destination=a", "path=hot")
	want(t, m, 1, "outbox_enqueue_messages_total", "destination=orders", "path=hot")
}
