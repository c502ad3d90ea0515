package core_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestHeaderNames(t *testing.T) {
	for _, name := range []string{
		"a", "X-Request-Id", "traceparent", "!#$%&'*+-.^_`|~", "0", "event-id", "outboxx",
		"my_outbox_", "watermill_x", "key", core.HeaderMessage,
	} {
		row := publishOne(t, core.Config{}, core.Event{Type: "t", Headers: map[string]string{name: "v"}})
		equal(t, row.Event.Headers[name], "v", "%q: stored as %q", name, row.Event.Headers)
	}
	bad := map[string]string{
		"": "token", " ": "token", "a b": "token", "a:b": "token", "ä": "token", "a\n": "token", "a\x00": "token",
		"(": "token", "a,b": "token", "a;": "token", "\"": "token", "/": "token", "a=": "token",
		"OUTBOX_x": "reserved", "Outbox_": "reserved", "outbox_attempt": "reserved",
		"_watermill_message_uuid": "reserved", "_WATERMILL_": "reserved", "Outbox_message": "reserved",
		core.HeaderRowID: "reserved",
	}
	for _, name := range []string{
		core.HeaderEventID, core.HeaderEventType, core.HeaderSchemaVersion, core.HeaderAggregateType,
		core.HeaderAggregateID, core.HeaderAggregateVersion, core.HeaderTenantID, core.HeaderPartitionKey,
		core.HeaderKeySeq, core.HeaderOccurredAt, core.HeaderContentType, core.HeaderAttempt, core.HeaderReplayOf,
	} {
		bad[name] = "reserved"
	}
	for name, says := range bad {
		_, _, err := publish(t, core.Config{}, core.Event{Type: "t", Headers: map[string]string{name: "v"}})
		if !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want that it names it %s", name, err, says)
		}
	}
}

func TestHeadersOfTheContext(t *testing.T) {
	cfg := core.Config{Headers: func(context.Context) map[string]string {
		return map[string]string{"trace": "of the context", "both": "of the context"}
	}}
	own := map[string]string{"own": "1", "both": "own"}
	row := publishOne(t, cfg, core.Event{Type: "t", Headers: own})
	want := map[string]string{"trace": "of the context", "own": "1", "both": "own"}
	if !maps.Equal(row.Event.Headers, want) {
		t.Errorf("headers %q, want %q", row.Event.Headers, want)
	}
	equal(t, len(own), 2, "the event's own map was changed: %q", own)

	type key struct{}
	cfg.Headers = func(ctx context.Context) map[string]string {
		of, _ := ctx.Value(key{}).(string)
		return map[string]string{"of": of, "only" + of: of}
	}
	row = publishOne(t, cfg, core.Event{Type: "t"}.WithContext(context.WithValue(t.Context(), key{}, "event")))
	if want := map[string]string{"of": "event", "onlyevent": "event"}; !maps.Equal(row.Event.Headers, want) {
		t.Errorf("headers %q, want those of the event's context %q", row.Event.Headers, want)
	}
	cfg.Headers = func(context.Context) map[string]string { return map[string]string{"outbox_x": ""} }
	if _, _, err := publish(t, cfg, core.Event{Type: "t"}); !errors.Is(err, core.ErrInvalidEvent) {
		t.Errorf("a reserved header of the context: %v", err)
	}
}

// FuzzHeaders requires that brokers and logs can carry every header that is accepted.
func FuzzHeaders(f *testing.F) {
	f.Add("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	f.Add("outbox_attempt", "1")
	f.Add("a\r\nb", "c\r\nd")
	f.Add("", "\x00")
	f.Add("x", "größe 世界")
	f.Fuzz(func(t *testing.T, name, value string) {
		rows, _, err := publish(t, core.Config{}, core.Event{Type: "t", Headers: map[string]string{name: value}})
		if err != nil {
			if !errors.Is(err, core.ErrInvalidEvent) || len(rows) != 0 {
				t.Fatalf("%d rows, %v", len(rows), err)
			}
			return
		}
		if len(rows) != 1 || len(rows[0].Event.Headers) != 1 || rows[0].Event.Headers[name] != value {
			t.Fatalf("stored as %v", rows)
		}
		if name == "" || len(name) > 128 || strings.ContainsAny(name, " \t\r\n:;,=\"()[]{}<>@\\/?\x00") ||
			strings.HasPrefix(strings.ToLower(name), "outbox_") {
			t.Fatalf("the name %q was let through", name)
		}
		if strings.ContainsAny(value, "\r\n\x00") || len(value) > 16<<10 || strings.ToValidUTF8(value, "") != value {
			t.Fatalf("the value %q was let through", value)
		}
	})
}

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
