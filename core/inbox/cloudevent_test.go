package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// A CloudEvent that is sent twice has its effect once, in whichever mode and by whichever binding
// it comes. The same id of another source is another event.
func TestCloudEventsAreDeduplicated(t *testing.T) {
	w := newWorld(t)
	handled := 0
	handle := func(context.Context, core.Tx, inbox.Message) error {
		handled++
		return nil
	}
	for _, e := range []cloudevents.Event{
		{ID: "1 é", Source: "/orders", Type: "order.placed"}, {ID: "1 é", Source: "/invoices", Type: "order.placed"},
	} {
		handled = 0
		for _, b := range []cloudevents.Binding{
			cloudevents.Kafka, cloudevents.AMQP, cloudevents.AMQPUnderscore, cloudevents.NATS, cloudevents.HTTP,
		} {
			for _, encode := range []func(cloudevents.Event) (cloudevents.Message, error){b.Binary, b.Structured} {
				m, err := encode(e)
				if err != nil {
					t.Fatal(err)
				}
				res := w.in.Process(t.Context(), inbox.Message{Headers: m.Headers, Payload: m.Body}, handle)
				if res.Err != nil || res.Action != inbox.Ack {
					t.Errorf("%s: %+v", b, res)
				}
			}
		}
		if handled != 1 {
			t.Errorf("%s was handled %d times", e.Source, handled)
		}
	}
}

// An outbox that begins to send CloudEvents does not change the identity of its events.
func TestEventIDStaysWithCloudEvents(t *testing.T) {
	id, err := inbox.EventID(map[string]string{"event_id": "e", "ce_id": "e", "ce_source": "/orders"})
	if err != nil || id != "e" {
		t.Errorf("%q, %v", id, err)
	}
}

// Whichever way RFC 3339 allows the time of an event is written, it is read, and a header that
// cannot be read does not hide the time of the CloudEvent.
func TestOccurredAtReadsEveryFormOfATime(t *testing.T) {
	want := time.Date(2026, 5, 1, 10, 0, 0, 123456789, time.UTC)
	for _, text := range []string{
		"2026-05-01T10:00:00.123456789Z", "2026-05-01T12:00:00.123456789+02:00", "2026-05-01t10:00:00.123456789z",
		"2026-05-01T04:30:00.123456789-05:30",
	} {
		for name, headers := range map[string]map[string]string{
			"occurred_at": {"occurred_at": text},
			"binary mode": {"ce_id": "1", "ce_time": text},
			"HTTP":        {"ce-id": "1", "ce-time": text},
			"both":        {"occurred_at": "1777629600123456", "ce_id": "1", "ce_time": text},
		} {
			if got := inbox.OccurredAt(inbox.Message{Headers: headers}); !got.Equal(want) {
				t.Errorf("%s, %s: %s", name, text, got)
			}
		}
		structured := inbox.Message{
			Headers: map[string]string{"content-type": "application/cloudevents+json"},
			Payload: []byte(`{"specversion":"1.0","id":"1","source":"/orders","type":"t","time":"` + text + `"}`),
		}
		if got := inbox.OccurredAt(structured); !got.Equal(want) {
			t.Errorf("structured mode, %s: %s", text, got)
		}
	}
	// No time, and no guess: it may be in seconds, or in microseconds.
	if got := inbox.OccurredAt(inbox.Message{Headers: map[string]string{"occurred_at": "1777629600"}}); !got.IsZero() {
		t.Errorf("a number: %s", got)
	}
}

func ExampleMessageID() {
	id, err := inbox.MessageID(inbox.Message{
		Headers: map[string]string{"content-type": "application/cloudevents+json"},
		Payload: []byte(`{"specversion":"1.0","id":"1","source":"/orders","type":"order.placed"}`),
	})
	fmt.Println(id, err)
	_, err = inbox.MessageID(inbox.Message{Payload: []byte(`{"id":"1"}`)})
	fmt.Println(errors.Is(err, inbox.ErrInvalidMessage))
	// Output:
	// /orders 1 <nil>
	// true
}
