package watermillbridge_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// sink keeps the messages that a Publisher sends.
type sink struct{ messages []*message.Message }

func (s *sink) Publish(_ string, msgs ...*message.Message) error {
	s.messages = append(s.messages, msgs...)
	return nil
}

func (s *sink) Close() error { return nil }

func orderPlaced() core.Delivery {
	return core.Delivery{Event: core.Event{
		ID: "018f2d3e-4c5b-7000-8000-000000000001", Type: "order.placed", AggregateID: "o 1",
		Topic: "orders", Key: "o 1",
		ContentType: "application/json", Payload: []byte(`{"total":42}`),
		Headers: map[string]string{
			"x": "y", "ce_id": "forged", "ce_other": "old", "ce-id": "forged", "cloudEvents_id": "forged",
			"Content-Type": "forged", "CONTENT-TYPE": "forged",
		},
	}, KeySeq: 7, Attempt: 1}
}

// A CloudEvent has all metadata of the outbox, those of the binding, and none that somebody else
// wrote under their names.
func TestPublisherSendsCloudEvents(t *testing.T) {
	t.Parallel()
	for _, b := range []cloudevents.Binding{
		cloudevents.Kafka, cloudevents.AMQP, cloudevents.AMQPUnderscore, cloudevents.NATS, cloudevents.HTTP,
	} {
		for _, mode := range []cloudevents.Mode{cloudevents.ModeBinary, cloudevents.ModeStructured} {
			m := &cloudevents.Mapper{Source: "/orders", Binding: b, Mode: mode}
			s := &sink{}
			p, err := watermillbridge.NewPublisher(s, watermillbridge.Config{CloudEvents: m})
			must(t, err)
			m.Source = "changed later"
			d := orderPlaced()
			must(t, p.Publish(t.Context(), d))
			msg := s.messages[0]
			e, err := b.Decode(cloudevents.Message{Headers: msg.Metadata, Body: msg.Payload})
			if err != nil || e.Source != "/orders" || e.ID != d.ID || e.Type != d.Type || e.Subject != "o 1" ||
				string(e.Data) != `{"total":42}` || len(e.Extensions) != 1 || e.Extensions["partitionkey"] != "o 1" {
				t.Errorf("%s, mode %d: %+v, %v of %q", b, mode, e, err, msg.Metadata)
			}
			got, err := watermillbridge.EventFromMessage(msg)
			if err != nil || got.ID != d.ID || got.Key != d.Key || got.KeySeq != d.KeySeq || got.Headers["x"] != "y" ||
				slices.Contains(slices.Collect(maps.Values(msg.Metadata)), "forged") || got.Headers["ce_other"] != "" {
				t.Errorf("%s, mode %d: %+v, %v", b, mode, got, err)
			}
			if structured := strings.HasPrefix(got.ContentType, "application/cloudevents+json"); structured !=
				(mode == cloudevents.ModeStructured) {
				t.Errorf("%s, mode %d: content type %q", b, mode, got.ContentType)
			}
			msg.Payload[0] = 'X'
			if string(d.Payload) != `{"total":42}` {
				t.Errorf("%s, mode %d: the message shares memory with the delivery", b, mode)
			}
		}
	}
}

func TestCloudEventsAreRefusedWhenRecorded(t *testing.T) {
	t.Parallel()
	s := &sink{}
	p, err := watermillbridge.NewPublisher(s, watermillbridge.Config{CloudEvents: &cloudevents.Mapper{
		Source: "/orders", Binding: cloudevents.NATS,
		Edit: func(d core.Delivery, e *cloudevents.Event) error {
			e.Extensions["tenantid"] = d.TenantID
			return nil
		},
	}})
	must(t, err)
	d := orderPlaced()
	noError(t, p.CheckSize(d.Event))
	d.TenantID = "a\u0085" // which the outbox allows
	wantErr(t, p.CheckSize(d.Event), cloudevents.ErrInvalid, "recorded")
	err = p.Publish(t.Context(), d)
	if class, _ := core.ClassOf(err); class != core.ClassPermanent || !errors.Is(err, cloudevents.ErrInvalid) ||
		len(s.messages) != 0 {
		t.Errorf("published: %v, class %v", err, class)
	}
	d = orderPlaced()
	d.ContentType = "application/cloudevents+json"
	wantErr(t, p.CheckSize(d.Event), cloudevents.ErrInvalid, "a CloudEvent inside of another")
}

func TestConfigOfCloudEvents(t *testing.T) {
	t.Parallel()
	marshal := func(ctx context.Context, d core.Delivery) (*message.Message, error) {
		return watermillbridge.NewMessage(ctx, d), nil
	}
	for says, cfg := range map[string]watermillbridge.Config{
		"both set": {
			Marshal: marshal, CloudEvents: &cloudevents.Mapper{Source: "/a", Binding: cloudevents.HTTP},
		},
		"Source is empty": {CloudEvents: &cloudevents.Mapper{Binding: cloudevents.HTTP}},
		"binding(0)":      {CloudEvents: &cloudevents.Mapper{Source: "/a"}},
	} {
		if _, err := watermillbridge.NewPublisher(&sink{}, cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}
