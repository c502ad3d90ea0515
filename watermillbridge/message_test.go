package watermillbridge_test

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	bridge "github.com/ormoutbox/ormoutbox/watermillbridge"
)

func fullDelivery(t *testing.T) core.Delivery {
	t.Helper()
	d := delivery("orders")
	d.Event = core.Event{
		ID: d.ID, Type: "order.placed", AggregateType: "order", AggregateID: "o-1", AggregateVersion: 3,
		TenantID: "acme", SchemaVersion: 2, Key: "order/o-1",
		OccurredAt: time.Date(2026, 3, 4, 5, 6, 7, 890_000, time.UTC), ContentType: "application/json",
		Headers: map[string]string{"traceparent": "00-abc-def-01", "X-Custom": "ö"}, Payload: []byte(`{"total":7}`),
	}
	d.KeySeq, d.Attempt = 1042, 2
	var err error
	if d.ReplayOf, err = core.FreshRowID(d.ID); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestNewMessageMetadata(t *testing.T) {
	t.Parallel()
	d := fullDelivery(t)
	msg := bridge.NewMessage(t.Context(), d)
	want := message.Metadata{
		"event_id": d.ID, "event_type": "order.placed", "schema_version": "2", "aggregate_type": "order",
		"aggregate_id": "o-1", "aggregate_version": "3", "tenant_id": "acme", "partition_key": "order/o-1",
		"key_seq": "1042", "occurred_at": "2026-03-04T05:06:07.00089Z", "content-type": "application/json",
		"outbox_attempt": "2", "outbox_replay_of": d.ReplayOf.String(), "outbox_row_id": d.RowID.String(),
		"traceparent": "00-abc-def-01", "X-Custom": "ö",
	}
	if !maps.Equal(msg.Metadata, want) {
		t.Errorf("metadata\n got %v\nwant %v", msg.Metadata, want)
	}
	if msg.UUID != d.ID || string(msg.Payload) != `{"total":7}` {
		t.Errorf("UUID %q, payload %q", msg.UUID, msg.Payload)
	}
}

func TestNewMessageLeavesOutWhatIsEmpty(t *testing.T) {
	t.Parallel()
	d := delivery("orders")
	d.Payload, d.Attempt = nil, 0
	d.Headers = map[string]string{core.HeaderEventType: "forged"}
	msg := bridge.NewMessage(t.Context(), d)
	want := message.Metadata{"event_id": d.ID, "event_type": "order.placed", "outbox_row_id": d.RowID.String()}
	if !maps.Equal(msg.Metadata, want) {
		t.Errorf("metadata = %v, want %v", msg.Metadata, want)
	}
	if msg.Payload == nil {
		t.Error("an empty payload became nil, which Kafka takes for a deletion")
	}
}

func TestEventFromMessageGivesBackTheDelivery(t *testing.T) {
	t.Parallel()
	d := fullDelivery(t)
	msg := bridge.NewMessage(t.Context(), d).Copy() // without the context, as in another process
	msg.Metadata.Set("_watermill_amqp_redelivered", "true")
	got, err := bridge.EventFromMessage(msg)
	must(t, err)
	want := d
	want.Topic = ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
}

func TestEventFromMessageMarksUnordered(t *testing.T) {
	t.Parallel()
	d := delivery("orders")
	d.Key = "k"
	got, err := bridge.EventFromMessage(bridge.NewMessage(t.Context(), d))
	if err != nil || !got.Unordered {
		t.Errorf("unordered %v, err %v; want true: it has a key and no place in its order", got.Unordered, err)
	}
}

func TestEventFromMessageRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(message.Metadata)
		want   []string
	}{
		"no event id":  {func(m message.Metadata) { delete(m, "event_id") }, []string{"event_id"}},
		"bad event id": {func(m message.Metadata) { m["event_id"] = "42" }, []string{"event_id"}},
		"no type":      {func(m message.Metadata) { delete(m, "event_type") }, []string{"event_type"}},
		"bad numbers": {func(m message.Metadata) {
			m["schema_version"], m["aggregate_version"], m["key_seq"], m["outbox_attempt"] = "x", "1.5", "∞", "-"
		}, []string{"schema_version", "aggregate_version", "key_seq", "outbox_attempt"}},
		"bad time": {func(m message.Metadata) { m["occurred_at"] = "yesterday" }, []string{"occurred_at"}},
		"bad rows": {
			func(m message.Metadata) { m["outbox_replay_of"], m["outbox_row_id"] = "x", "y" },
			[]string{"outbox_replay_of", "outbox_row_id"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			msg := bridge.NewMessage(t.Context(), fullDelivery(t))
			tc.change(msg.Metadata)
			_, err := bridge.EventFromMessage(msg)
			wantErr(t, err, bridge.ErrNotOutboxMessage, "err")
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("err = %v, want it to name %s", err, w)
				}
			}
		})
	}
	wantErr(t, errOf(bridge.EventFromMessage(nil)), bridge.ErrNotOutboxMessage, "nil")
	wantErr(t, errOf(bridge.EventFromMessage(&message.Message{})), bridge.ErrNotOutboxMessage, "zero message")
}

func TestNewMessageCarriesTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	msg := bridge.NewMessage(ctx, delivery("orders"))
	cancel()
	if msg.Context().Err() == nil {
		t.Error("the end of the context does not reach the message")
	}
}

// The compact form has the fields in one metadata and the headers beside it, and is read like the
// usual one.
func TestCompactMessage(t *testing.T) {
	t.Parallel()
	d := fullDelivery(t)
	msg, err := bridge.NewCompactMessage(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if len(msg.Metadata) != 1+len(d.Headers) || msg.Metadata["traceparent"] == "" || msg.UUID != d.ID {
		t.Errorf("metadata %v", msg.Metadata)
	}
	got, err := bridge.EventFromMessage(msg)
	if err != nil || !maps.Equal(got.Metadata(), d.Metadata()) || string(got.Payload) != string(d.Payload) {
		t.Errorf("read %v, %v\nwant %v", got.Metadata(), err, d.Metadata())
	}
	msg.Metadata[core.HeaderFields] = `no JSON`
	if _, err := bridge.EventFromMessage(msg); err == nil {
		t.Error("a message without fields is read")
	}
}
