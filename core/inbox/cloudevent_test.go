package inbox_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

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

func ExampleOccurredAt() {
	fmt.Println(inbox.OccurredAt(inbox.Message{Headers: map[string]string{"occurred_at": "2026-05-01T10:00:00Z"}}))
	fmt.Println(inbox.OccurredAt(inbox.Message{}).IsZero())
	// Output:
	// 2026-05-01 10:00:00 +0000 UTC
	// true
}

func ExampleMessageID() {
	id, err := inbox.MessageID(inbox.Message{
		Headers: map[string]string{"content-type": "application/cloudevents+json"},
		Payload: []byte(`{"specversion":"1.0","id":"1","source":"/orders","type":"order.placed"}`),
	})
	fmt.Println(id, err)
	_, err = inbox.MessageID(inbox.Message{Payload: []byte(`{"id":"1"}`)})
	fmt.Println(errors.Is(err, inbox.ErrNoID))
	// Output:
	// /orders 1 <nil>
	// true
}
