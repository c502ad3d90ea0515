package natsbridge_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/cloudevents"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

const nowhere = "nats://u:s3cret@127.0.0.1:1"

func TestUnsafeOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		option nats.Option
		names  string
	}{
		"gives up at once": {nats.NoReconnect(), "NoReconnect"},
		"gives up later":   {nats.MaxReconnects(60), "MaxReconnects is 60"},
		"buffers":          {nats.ReconnectBufSize(8 << 20), "ReconnectBufSize"},
		"buffers much":     {nats.ReconnectBufSize(0), "ReconnectBufSize"},
		"waits at first":   {nats.RetryOnFailedConnect(true), "RetryOnFailedConnect"},
	} {
		_, err := natsbridge.NewPublisher(natsbridge.Config{URL: nowhere, Options: []nats.Option{tc.option}})
		if !errors.Is(err, natsbridge.ErrUnsafeConfig) || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: %v, want ErrUnsafeConfig naming %s", name, err, tc.names)
		}
	}
	_, err := natsbridge.NewPublisher(natsbridge.Config{URL: nowhere, Options: []nats.Option{
		nil, nats.Name("orders"), nats.UserInfo("u", "p"), nats.MaxReconnects(-1),
	}})
	if err != nil {
		t.Error(err)
	}
}

func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cfg   natsbridge.Config
		names string
	}{
		"zero":    {natsbridge.Config{}, "Config.URL"},
		"timeout": {natsbridge.Config{URL: nowhere, ConnectTimeout: -1}, "ConnectTimeout"},
		"size":    {natsbridge.Config{URL: nowhere, MaxMessageBytes: -1}, "MaxMessageBytes"},
		"option": {natsbridge.Config{URL: nowhere, Options: []nats.Option{
			func(*nats.Options) error { return errors.New("no file") },
		}}, "no file"},
		"row id": {natsbridge.Config{
			URL: nowhere, Bridge: watermillbridge.Config{RowIDMetadata: "x"},
		}, "RowIDMetadata"},
		"binding": {natsbridge.Config{URL: nowhere, Bridge: watermillbridge.Config{
			CloudEvents: &cloudevents.Mapper{Source: "/a", Binding: cloudevents.Kafka},
		}}, "Binding is kafka"},
		"URL": {natsbridge.Config{URL: " , "}, "no server"},
		"two users": {
			natsbridge.Config{URL: "nats://a:s3cret@one,b:s3cret@two"},
			"nats:// before each server",
		},
		"port":  {natsbridge.Config{URL: "nats://u:s3cret,s3cret@one:port"}, "invalid port"},
		"slash": {natsbridge.Config{URL: "nats://u:s3cret/s3cret@one"}, "%2F"},
		"decorator": {natsbridge.Config{
			URL: nowhere, Decorate: func(message.Publisher) message.Publisher { return nil },
		}, "Config.Decorate"},
		"bridge": {natsbridge.Config{URL: nowhere, Bridge: watermillbridge.Config{MaxStuck: -1}}, "MaxStuck"},
	} {
		_, err := natsbridge.NewPublisher(tc.cfg)
		if err == nil || !strings.Contains(err.Error(), tc.names) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want it to name %s without the password", name, err, tc.names)
		}
	}
}

func newPublisher(t *testing.T, cfg natsbridge.Config) *watermillbridge.Publisher {
	t.Helper()
	cfg.URL = nowhere
	p, err := natsbridge.NewPublisher(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestAServerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, natsbridge.Config{ConnectTimeout: time.Minute})
	for range 2 {
		err := p.Publish(t.Context(), core.Delivery{Event: core.Event{ID: "1", Type: "t", Topic: "orders"}})
		if class, _ := core.ClassOf(err); class != core.ClassUnavailable || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("err = %v, class %v; want unavailable without the password", err, class)
		}
	}
	err := natsbridge.Check(t.Context(), natsbridge.Config{URL: nowhere}, "orders")
	if class, _ := core.ClassOf(err); class != core.ClassUnavailable {
		t.Errorf("Check: %v", err)
	}
	if err := natsbridge.Check(t.Context(), natsbridge.Config{}); err == nil {
		t.Error("Check takes a zero Config")
	}
}

func TestTopicsThatAreNoSubjects(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, natsbridge.Config{})
	for _, topic := range []string{"a b", "a.*", "a.>", ".a", "a.", "a..b", "$JS.API.STREAM.DELETE.ORDERS", "a\n"} {
		err := p.Publish(t.Context(), core.Delivery{Event: core.Event{ID: "1", Type: "t", Topic: topic}})
		if class, _ := core.ClassOf(err); class != core.ClassPermanent {
			t.Errorf("%q: %v, class %v; want permanent", topic, err, class)
		}
	}
}

// A header of an event must not give the server a command: Nats-Rollup deletes the stream's other
// messages.
func TestHeadersThatTheServerWouldObey(t *testing.T) {
	t.Parallel()
	p := newPublisher(t, natsbridge.Config{})
	for name, v := range map[string]string{
		"Nats-Rollup": "all", "nats-expected-stream": "x", "Nats-Msg-Id": "mine", "note": " around",
	} {
		e := core.Event{ID: "1", Type: "t", Topic: "orders", Headers: map[string]string{name: v}}
		if err := p.CheckSize(e); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	id := core.RowID{1}
	err := p.Publish(t.Context(), core.Delivery{RowID: id, Event: core.Event{
		ID: "1", Type: "t", Topic: "orders", Headers: map[string]string{"Nats-Rollup": "all"},
	}})
	if class, _ := core.ClassOf(err); class != core.ClassPermanent || !strings.Contains(err.Error(), "Nats-Rollup") {
		t.Errorf("published by a relay: %v, class %v", err, class)
	}
}

// Before the first connection the server's default counts.
func TestTheSizeLimitBeforeAConnection(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{0: 1 << 20, 100_000: 100_000} {
		p := newPublisher(t, natsbridge.Config{MaxMessageBytes: limit})
		e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "orders", Payload: make([]byte, want-1000)}
		if err := p.CheckSize(e); err != nil {
			t.Errorf("%d: %v", limit, err)
		}
		e.Payload = make([]byte, want)
		if err := p.CheckSize(e); err == nil || !strings.Contains(err.Error(), "Config.MaxMessageBytes") {
			t.Errorf("%d: %v", limit, err)
		}
	}
}

// An event with something that NATS would refuse, change or take for a command is refused when it
// is recorded: in headers, in fields, and in metadata of Watermill that no header can hold.
func TestMetadataThatNATSWouldChange(t *testing.T) {
	t.Parallel()
	p, err := natsbridge.NewPublisher(natsbridge.Config{URL: "nats://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	carried := func(text string) core.Event {
		return core.Event{Headers: map[string]string{core.HeaderMessage: text}}
	}
	for names, e := range map[string]core.Event{
		"": {
			Key: "a b", Headers: map[string]string{"x": "", "y": "1 2", core.HeaderMessage: "not ours"},
		},
		`"uuid"`:          {Headers: map[string]string{"uuid": "\tx"}},
		`"aggregate_id"`:  {AggregateID: "o-1 "},
		`"partition_key"`: {Key: " o-1"},
		`"reason"`:        carried(`{"metadata":{"reason":"line one\nline two"}}`),
		`"a blank"`:       carried(`{"metadata":{"a blank":"x"}}`),
		`"ünïcode"`:       carried(`{"metadata":{"ünïcode":"x"}}`),
		`"Nats-Rollup"`:   carried(`{"metadata":{"Nats-Rollup":"all"}}`),
		`"UUID"`:          carried(`{"uuid":"42\n"}`),
		`"Status"`:        {Headers: map[string]string{"Status": "paid"}}, // and no payload
		"payload":         {Headers: map[string]string{"Status": "paid"}, Payload: []byte("x")},
	} {
		refused := names != "" && names != "payload"
		e.ID, e.Type, e.Topic = core.NewEventID(), "order.placed", "orders"
		err := p.CheckSize(e)
		if (err != nil) != refused || err != nil && !strings.Contains(err.Error(), names) {
			t.Errorf("%v, want it to name %s", err, names)
		}
		d := core.Delivery{Event: e, RowID: core.RowID{1}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err = p.Publish(ctx, d) // an event that a process without a Publisher recorded
		cancel()
		if class, _ := core.ClassOf(err); (class == core.ClassPermanent) != refused {
			t.Errorf("%s: published: %v, %v", names, err, class)
		}
	}
}
