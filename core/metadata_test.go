package core_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestMetadataOfADelivery(t *testing.T) {
	t.Parallel()
	id := core.RowID{1}
	headers := map[string]string{"note": "grün"}
	d := core.Delivery{
		Event: core.Event{
			ID: "1", Type: "order.placed", AggregateType: "order", AggregateID: "o-1", AggregateVersion: 3,
			TenantID: "acme", SchemaVersion: 2, Key: "k", ContentType: "text/plain", Headers: headers,
			OccurredAt: time.Date(2026, 5, 1, 12, 0, 0, 5, time.FixedZone("", 3600)), Payload: []byte("x"),
		},
		RowID: id, ReplayOf: id, KeySeq: 1042, Attempt: 2,
	}
	got := d.Metadata()
	if want := (map[string]string{
		"note": "grün", "event_id": "1", "event_type": "order.placed", "aggregate_type": "order",
		"aggregate_id": "o-1", "aggregate_version": "3", "tenant_id": "acme", "schema_version": "2",
		"partition_key": "k", "content-type": "text/plain", "occurred_at": "2026-05-01T11:00:00.000000005Z",
		"outbox_row_id": id.String(), "outbox_replay_of": id.String(), "key_seq": "1042", "outbox_attempt": "2",
	}); !maps.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if got["x"] = "y"; len(headers) != 1 {
		t.Error("the map is that of the event")
	}
	if got := (core.Delivery{}).Metadata(); len(got) != 0 {
		t.Errorf("of a zero delivery: %v", got)
	}
}

// A publisher for a broker that no bridge knows sends these headers.
func ExampleDelivery_Metadata() {
	d := core.Delivery{Event: core.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", Key: "order/1",
		Headers: map[string]string{"shop": "berlin"},
	}}
	md := d.Metadata()
	fmt.Println(md[core.HeaderEventID], md[core.HeaderEventType], md["shop"])
	// Output: 018f2d3e-4c5b-7000-8000-000000000001 order.placed berlin
}
