package inbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/inbox"
)

func TestEventID(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		uuid     string
		metadata message.Metadata
		want     string // empty: ErrInvalidMessage
	}{
		"our header first":       {"u", message.Metadata{"event_id": "e", "ce_id": "c"}, "e"},
		"CloudEvents over Kafka": {"u", message.Metadata{"ce_id": "1", "ce_source": "/orders"}, "/orders 1"},
		"CloudEvents over HTTP":  {"u", message.Metadata{"ce-id": "1", "ce-source": "/orders"}, "/orders 1"},
		"CloudEvents over AMQP": {"u", message.Metadata{
			"cloudEvents:id":     "1",
			"cloudEvents:source": "/orders",
		}, "/orders 1"},
		"CloudEvents over AMQP, as advised": {"u", message.Metadata{
			"cloudEvents_id": "1", "cloudEvents_source": "/orders",
		}, "/orders 1"},
		"CloudEvents over NATS, encoded": {"u", message.Metadata{
			"Ce-Id": "a%20b", "CE-SOURCE": "/orders",
		}, "/orders a b"},
		"CloudEvents without a source":   {"u", message.Metadata{"ce_id": "1"}, "1"},
		"the UUID at last":               {"u", message.Metadata{"name": "x"}, "u"},
		"none":                           {"", nil, ""},
		"too long":                       {"", message.Metadata{"event_id": strings.Repeat("x", 256)}, ""},
		"a control character":            {"", message.Metadata{"event_id": "a\x00"}, ""},
		"not UTF-8":                      {"", message.Metadata{"event_id": "\xff"}, ""},
		"a tenant that is too long":      {"u", message.Metadata{"tenant_id": strings.Repeat("x", 65)}, ""},
		"numbers that are none describe": {"u", message.Metadata{"key_seq": "-1", "schema_version": "x"}, "u"},
	} {
		t.Run(name, func(t *testing.T) {
			msg := message.NewMessage(tt.uuid, []byte(`{"event_id":"never from the payload","id":"x"}`))
			msg.Metadata = tt.metadata
			e, err := w.in.Event(msg)
			if tt.want == "" {
				if !errors.Is(err, coreinbox.ErrInvalidMessage) || !coreinbox.Final(err) {
					t.Errorf("%v, want ErrInvalidMessage", err)
				}
				return
			}
			if err != nil || e.EventID != tt.want || e.Consumer != "billing" || e.Handler != "handler" ||
				e.KeySeq != 0 || e.Version != 0 {
				t.Errorf("%+v, %v, want %q", e, err, tt.want)
			}
		})
	}
	wantErr(t, errOf(w.in.Event(nil)), coreinbox.ErrInvalidMessage, "nil")
}

// A CloudEvent in structured mode has its identity in the document, and only the content type says
// so.
func TestEventIDOfAStructuredCloudEvent(t *testing.T) {
	w := newWorld(t)
	msg := message.NewMessage("u", []byte(`{"specversion":"1.0","id":"1","source":"/orders","type":"order.placed"}`))
	msg.Metadata.Set("content-type", "application/cloudevents+json; charset=UTF-8")
	e, err := w.in.Event(msg)
	if err != nil || e.EventID != "/orders 1" || e.Type != "order.placed" {
		t.Errorf("%+v, %v", e, err)
	}
	msg.Metadata.Set("content-type", "application/json")
	if e, err := w.in.Event(msg); err != nil || e.EventID != "u" {
		t.Errorf("%+v, %v, want the UUID", e, err)
	}
}

func TestEventHasWhatTheBridgeSends(t *testing.T) {
	w := newWorld(t)
	var got coreinbox.Event
	var err error
	pubsub := routed(t, func(r *message.Router, pubsub *gochannel.GoChannel) {
		r.AddConsumerHandler("handler", "orders", pubsub, func(msg *message.Message) error {
			got, err = w.in.Event(msg)
			return nil
		})
	})
	must(t, pubsub.Publish("orders", event(t.Context(), "e", "event_type", "order.placed", "schema_version", "2",
		"aggregate_type", "order", "aggregate_id", "7",
		"tenant_id", "acme", "partition_key", "order/7", "key_seq", "42", core.HeaderSource, "orders/3/0")))
	want := coreinbox.Event{
		Key:  coreinbox.Key{Consumer: "billing", Handler: "handler", Tenant: "acme", EventID: "e"},
		Type: "order.placed", Version: 2, AggregateType: "order", AggregateID: "7", PartitionKey: "order/7",
		KeySeq: 42, Topic: "orders", Partition: 3, Located: true,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
}

func TestEventNeedsANamedHandler(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.Handler = "" })
	err := w.deliver(w.handler, event(t.Context(), "e"))
	if !errors.Is(err, coreinbox.ErrInvalidMessage) || !strings.Contains(err.Error(), "Config.Handler") {
		t.Errorf("outside of a Router: %v", err)
	}
}

// Config.Tenant decides, also when it says that there is no tenant. Then two copies are one event,
// although one of them lost its header.
func TestTenantIsFinal(t *testing.T) {
	none := func(coreinbox.Message) string { return "" }
	w := newWorld(t, func(c *coreinbox.Config) { c.Tenant = none })
	first := event(t.Context(), "e", core.HeaderTenantID, "acme")
	for _, msg := range []*message.Message{first, event(t.Context(), "e")} {
		noError(t, w.deliver(w.handler, msg))
		if e, err := w.in.Event(msg); e.Tenant != "" || err != nil {
			t.Errorf("tenant %q, %v", e.Tenant, err)
		}
	}
	w.effect("e", 1)

	runner, err := once.New(once.Config{Store: outboxtest.NewOnceStore()})
	must(t, err)
	a, err := coreinbox.NewAtLeastOnce(coreinbox.AtLeastOnceConfig{
		Consumer: "mailer", Runner: runner, Tenant: none, Handler: "mail",
	})
	must(t, err)
	runs := 0
	h := inbox.Wrap(a, inbox.ReturnDead())(func(*message.Message) ([]*message.Message, error) {
		runs++
		return nil, nil
	})
	for _, msg := range []*message.Message{first, event(t.Context(), "e")} {
		noError(t, errOf(h(msg)))
	}
	equal(t, runs, 1, "runs")
}

// The place that a subscriber names is kept, unless the message has it from another topic.
func TestSourceFromMetadata(t *testing.T) {
	w := newWorld(t)
	var got []coreinbox.Event
	pubsub := routed(t, func(r *message.Router, pubsub *gochannel.GoChannel) {
		r.AddConsumerHandler("h", "orders", pubsub, func(msg *message.Message) error {
			e, err := w.in.Event(msg)
			got = append(got, e)
			return err
		})
	})
	places := []string{
		"orders/2/1099511627776", "", "orders", "orders/x/1", "orders/1/x", "orders/1", "orders/4294967296/1",
		"other/2/3", "orders.poison/2/3",
	}
	for _, place := range places {
		must(t, pubsub.Publish("orders", event(t.Context(), "e", core.HeaderSource, place)))
	}
	for n, e := range got {
		if e.Topic != "orders" || e.Located != (n == 0) || n == 0 && (e.Partition != 2 || e.Offset != 1<<40) {
			t.Errorf("%q: %+v", places[n], e)
		}
	}
	equal(t, len(got), len(places), "messages")
}

func TestOnlyNewer(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.OnlyNewer = []string{"handler"} })
	deliver := func(id, seq, tenant, key string) {
		t.Helper()
		must(t, w.deliver(w.handler, event(t.Context(), id, "key_seq", seq, "tenant_id", tenant, "partition_key",
			key)))
	}
	deliver("new", "7", "a", "k")
	deliver("old", "6", "a", "k") // older than 7: stale
	deliver("old", "6", "a", "k") // the second time a duplicate
	deliver("other tenant", "1", "b", "k")
	deliver("other key", "1", "a", "l")
	deliver("newer", "8", "a", "k")
	deliver("no seq", "", "a", "k")
	deliver("no key", "1", "a", "")
	for id, n := range map[string]int{
		"new": 1, "old": 0, "other tenant": 1, "other key": 1, "newer": 1, "no seq": 1,
		"no key": 1,
	} {
		w.effect(id, n)
	}
	w.hears("stale", 1)
	w.hears("duplicate", 1)

	// A newer event that failed makes no other event stale.
	h, _ := w.times(1, errHandler)
	_ = w.deliver(h, event(t.Context(), "fails", "key_seq", "10", "tenant_id", "a", "partition_key", "k"))
	deliver("between", "9", "a", "k")
	w.effect("between", 1)
}

// An event that was redriven after newer ones had passed it has a new number. It still counts as
// old.
func TestOnlyNewerAfterARedrive(t *testing.T) {
	w := newWorld(t, func(c *coreinbox.Config) { c.OnlyNewer = []string{"handler"} })
	lane := func(id, seq string, more ...string) *message.Message {
		return event(t.Context(), id, append([]string{core.HeaderPartitionKey, "k", core.HeaderKeySeq, seq},
			more...)...)
	}
	for _, msg := range []*message.Message{
		lane("6", "6"), lane("5 redriven", "7", core.HeaderFirstKeySeq, "5"), lane("8", "8"),
		lane("9 redriven, nothing had passed it", "10", core.HeaderFirstKeySeq, "9"),
	} {
		must(t, w.deliver(w.handler, msg))
	}
	w.effect("5 redriven", 0)
	w.effect("9 redriven, nothing had passed it", 1)
	w.hears("stale", 1)
	w.hears("processed", 3)
}
