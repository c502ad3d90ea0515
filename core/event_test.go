package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// publish records events in a transaction of a fresh outbox and returns the rows that are stored
// afterwards.
func publish(t *testing.T, cfg core.Config, events ...core.Event) ([]outboxtest.Row, []string, error) {
	t.Helper()
	ob := outboxtest.NewOutbox(t, cfg)
	var ids []string
	err := ob.Transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
		ids, err = ob.Publish(ctx, tx, events...)
		return err
	})
	return ob.Repository.Rows(), ids, err
}

// publishOne records one event with one destination.
func publishOne(t *testing.T, cfg core.Config, e core.Event) outboxtest.Row {
	t.Helper()
	rows, ids, err := publish(t, cfg, e)
	must(t, err)
	if len(rows) != 1 || len(ids) != 1 || rows[0].Event.ID != ids[0] {
		t.Fatalf("%d rows, ids %q", len(rows), ids)
	}
	return rows[0]
}

type orderPlaced struct {
	OrderID string `json:"order_id"`
}

func (orderPlaced) EventType() string { return "order.placed" }

func TestEventLimits(t *testing.T) {
	t.Parallel()
	headers := func(n, size int) map[string]string {
		h := map[string]string{}
		for i := range n {
			h[fmt.Sprintf("h%04d", i)] = strings.Repeat("v", size)
		}
		return h
	}
	x := func(n int) string { return strings.Repeat("x", n) }
	for name, tt := range map[string]struct {
		fits core.Event
		not  core.Event
		says string // the problem that the error names
	}{
		"type": {core.Event{Type: x(128)}, core.Event{Type: x(129)}, "type has 129 bytes, more than 128"},
		"aggregate type": {
			core.Event{AggregateType: x(64)},
			core.Event{AggregateType: x(65)},
			"aggregate type has 65 bytes",
		},
		"aggregate id": {
			core.Event{AggregateID: x(128)},
			core.Event{AggregateID: x(129)},
			"aggregate id has 129 bytes",
		},
		"tenant id": {core.Event{TenantID: x(64)}, core.Event{TenantID: x(65)}, "tenant id has 65 bytes"},
		"topic":     {core.Event{Topic: x(249)}, core.Event{Topic: x(250)}, "topic has 250 bytes"},
		"key":       {core.Event{Key: x(255)}, core.Event{Key: x(256)}, "key has 256 bytes"},
		"content type": {
			core.Event{ContentType: x(127)},
			core.Event{ContentType: x(128)},
			"content type has 128 bytes",
		},
		"header name": {
			core.Event{Headers: map[string]string{x(128): ""}},
			core.Event{Headers: map[string]string{x(129): ""}},
			"is not a token of at most 128 bytes",
		},
		"headers": {
			core.Event{Headers: headers(64, 1)},
			core.Event{Headers: headers(65, 1)},
			"65 headers, more than 64",
		},
		"header bytes": {
			core.Event{Headers: headers(64, 251)},
			core.Event{Headers: headers(64, 252)},
			"headers have 16448 bytes together, more than 16384",
		},
		"payload": {
			core.Event{Payload: make([]byte, 1<<20)},
			core.Event{Payload: make([]byte, 1<<20+1)},
			"payload has 1048577 bytes, more than Config.MaxPayload 1048576",
		},
		"data": {
			core.Event{Data: x(1<<20 - 2)},
			core.Event{Data: x(1<<20 - 1)},
			"payload has 1048577 bytes",
		},
		"aggregate version": {
			core.Event{AggregateVersion: 1<<63 - 1},
			core.Event{AggregateVersion: -1},
			"aggregate version -1 is negative",
		},
		"schema version": {
			core.Event{SchemaVersion: 1<<31 - 1},
			core.Event{SchemaVersion: 1 << 31},
			"schema version 2147483648 is out of range",
		},
		"lowest schema": {
			core.Event{SchemaVersion: 0},
			core.Event{SchemaVersion: -1},
			"schema version -1 is out of range",
		},
		"delay": {
			core.Event{Delay: 10 * 365 * 24 * time.Hour},
			core.Event{Delay: 10*365*24*time.Hour + 1},
			"delay 87600h0m0.000000001s is more than",
		},
		"negative delay": {core.Event{Delay: 0}, core.Event{Delay: -1}, "delay -1ns is negative"},
		"delay of a key": {
			core.Event{Delay: 1, Key: "k", Unordered: true},
			core.Event{Delay: 1, Key: "k"},
			`delay needs Unordered: it would hold up the key "k"`,
		},
		"first year": {
			core.Event{OccurredAt: time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC)},
			core.Event{OccurredAt: time.Date(0, 12, 31, 23, 59, 59, 0, time.UTC)},
			"occurred at is in the year 0",
		},
		"last year": {
			core.Event{OccurredAt: time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)},
			core.Event{OccurredAt: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
			"occurred at is in the year 10000",
		},
		"id": {
			core.Event{ID: "7fffffff-ffff-ffff-ffff-ffffffffffff"},
			core.Event{ID: "order-1"},
			`event id "order-1" is neither a UUID nor a ULID`,
		},
		"data and payload": {
			core.Event{Data: 1},
			core.Event{Data: 1, Payload: []byte{}},
			"both Data and Payload are set",
		},
		"encodable data": {
			core.Event{Data: map[string]any{}},
			core.Event{Data: func() {}},
			"encode data: json: unsupported type",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			typed := func(e core.Event) core.Event {
				if e.Type == "" {
					e.Type = "t"
				}
				return e
			}
			publishOne(t, core.Config{}, typed(tt.fits))
			rows, ids, err := publish(t, core.Config{}, core.Event{Type: "good"}, typed(tt.not))
			if !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %v, want ErrInvalidEvent that says %q", err, tt.says)
			}
			if len(rows) != 0 || ids != nil {
				t.Errorf("%d rows were written, ids %q", len(rows), ids)
			}
		})
	}
}

func TestEventTexts(t *testing.T) {
	fields := map[string]func(string) core.Event{
		"type":           func(s string) core.Event { return core.Event{Type: s} },
		"aggregate type": func(s string) core.Event { return core.Event{Type: "t", AggregateType: s} },
		"aggregate id":   func(s string) core.Event { return core.Event{Type: "t", AggregateID: s} },
		"tenant id":      func(s string) core.Event { return core.Event{Type: "t", TenantID: s} },
		"topic":          func(s string) core.Event { return core.Event{Type: "t", Topic: s} },
		"key":            func(s string) core.Event { return core.Event{Type: "t", Key: s} },
		"content type":   func(s string) core.Event { return core.Event{Type: "t", ContentType: s} },
		"value of header": func(s string) core.Event {
			return core.Event{Type: "t", Headers: map[string]string{"h": s}}
		},
	}
	for field, event := range fields {
		for _, bad := range []struct{ text, says string }{
			{"a\x00b", "has a control character"},
			{"a\nb", "has a control character"},
			{"\r\n", "has a control character"},
			{"a\x7f", "has a control character"},
			{"\xff", "is not valid UTF-8"},
			{"a\xc3", "is not valid UTF-8"},
			{"\xed\xa0\x80", "is not valid UTF-8"},
		} {
			_, _, err := publish(t, core.Config{}, event(bad.text))
			if !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(), field) ||
				!strings.Contains(err.Error(), bad.says) {
				t.Errorf("%s %q: %v, want that it %s", field, bad.text, err, bad.says)
			}
		}
		for _, fine := range []string{"größe 世界 🌍 ' \" \\ %", "👩\u200d👧 می\u200cروم"} {
			publishOne(t, core.Config{}, event(fine))
		}
		for _, hidden := range []string{
			"\u009b31m", "\u202e", "\u2066", "\u200f", "\u061c", "\u2028", "\u2029", "\ufeff",
		} {
			rows, _, err := publish(t, core.Config{}, event("a"+hidden))
			says := fmt.Sprintf("%s has the character %U, which is not seen", field, []rune(hidden)[0])
			if field == "value of header" { // it is text, and no name
				noError(t, err)
			} else if !errors.Is(err, core.ErrInvalidEvent) || !strings.Contains(err.Error(), says) || len(rows) > 0 {
				t.Errorf("%v and %d rows, want that %s", err, len(rows), says)
			}
		}
	}
}

func TestEventReportsEveryProblemOfEveryEvent(t *testing.T) {
	_, _, err := publish(t, core.Config{},
		core.Event{Topic: "a\x00", Key: strings.Repeat("k", 300), Delay: -1}, core.Event{Type: "fine"},
		core.Event{Type: "x", ID: "nonsense"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"type is empty", "topic has a control character", "key has 300 bytes",
		"delay -1ns is negative", `event id "nonsense"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestEventDefaults(t *testing.T) {
	before := time.Now().Truncate(time.Microsecond)
	row := publishOne(t, core.Config{}, core.Event{AggregateType: "order", AggregateID: "7", Data: orderPlaced{"7"}})
	e := row.Event
	if e.Type != "order.placed" || e.Topic != "order" || e.Key != "order/7" ||
		e.ContentType != "application/json" || string(e.Payload) != `{"order_id":"7"}` {
		t.Errorf("stored as %+v", e)
	}
	if e.OccurredAt.Before(before) || e.OccurredAt.After(time.Now()) || e.OccurredAt.Location() != time.UTC ||
		e.OccurredAt.Nanosecond()%1000 != 0 {
		t.Errorf("occurred at %s", e.OccurredAt)
	}
	if want, _ := core.NewRowID(e.ID, e.Topic); row.ID != want ||
		row.KeyID != core.NewKeyID("", "order", "order/7") || row.KeySeq == 0 {
		t.Errorf("stored as row %s, key id %x, key_seq %d", row.ID, row.KeyID, row.KeySeq)
	}
	noError(t, errOf(core.NewRowID(e.ID, "t")))
}

func TestEventKey(t *testing.T) {
	for name, tt := range map[string]struct {
		e       core.Event
		key     string
		ordered bool
	}{
		"none":             {core.Event{}, "", false},
		"its own":          {core.Event{Key: "k", AggregateType: "a", AggregateID: "1"}, "k", true},
		"of the aggregate": {core.Event{AggregateType: "a", AggregateID: "1"}, "a/1", true},
		"id alone":         {core.Event{AggregateID: "1"}, "1", true},
		"type alone":       {core.Event{AggregateType: "a"}, "", false},
		"unordered":        {core.Event{Key: "k", Unordered: true}, "k", false},
	} {
		tt.e.Type = "t"
		row := publishOne(t, core.Config{}, tt.e)
		if row.Event.Key != tt.key || !row.KeyID.IsZero() != tt.ordered || (row.KeySeq != 0) != tt.ordered {
			t.Errorf("%s: key %q, key id %x, key_seq %d", name, row.Event.Key, row.KeyID, row.KeySeq)
		}
	}
}

func TestEventPayload(t *testing.T) {
	if row := publishOne(t, core.Config{}, core.Event{Type: "t"}); len(row.Event.Payload) != 0 ||
		row.Event.ContentType != "" {
		t.Errorf("an event without content: %+v", row.Event)
	}
	payload := []byte("as it is")
	ob := outboxtest.NewOutbox(t, core.Config{})
	err := ob.Transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "t", Payload: payload})
		copy(payload, "overwritten")
		return err
	})
	must(t, err)
	if got := ob.Repository.Rows()[0].Event; string(got.Payload) != "as it is" || got.Data != nil {
		t.Errorf("stored as %q, data %v", got.Payload, got.Data)
	}
}

// codec encodes to a fixed result.
type codec struct {
	payload     []byte
	contentType string
	err         error
}

func (c codec) Encode(context.Context, any) ([]byte, string, error) {
	return c.payload, c.contentType, c.err
}

func TestEventCodec(t *testing.T) {
	row := publishOne(t, core.Config{Codec: codec{payload: []byte{1, 2}, contentType: "application/x-two"}},
		core.Event{Type: "t", Data: 5})
	if !bytes.Equal(row.Event.Payload, []byte{1, 2}) || row.Event.ContentType != "application/x-two" {
		t.Errorf("stored as %+v", row.Event)
	}
	row = publishOne(t, core.Config{Codec: codec{contentType: "application/x-two"}},
		core.Event{Type: "t", Data: 5, ContentType: "own"})
	if row.Event.ContentType != "own" || row.Event.Payload == nil {
		t.Errorf("stored as %+v", row.Event)
	}
	reason := errors.New("reason")
	if _, _, err := publish(t, core.Config{Codec: codec{err: reason}}, core.Event{Type: "t", Data: 5}); !errors.Is(err,
		reason) || !errors.Is(err, core.ErrInvalidEvent) {
		t.Errorf("a codec that fails: %v", err)
	}
	if _, _, err := publish(t, core.Config{Codec: codec{contentType: "a\nb"}},
		core.Event{Type: "t", Data: 5}); !errors.Is(err, core.ErrInvalidEvent) {
		t.Errorf("a codec with a bad content type: %v", err)
	}
}

func TestEventTopics(t *testing.T) {
	cfg := core.Config{Routes: map[string][]string{"routed": {"one", "two"}}}
	for name, tt := range map[string]struct {
		e    core.Event
		want string
	}{
		"the type":                  {core.Event{Type: "t"}, "t"},
		"an id alone is no topic":   {core.Event{Type: "t", AggregateID: "7"}, "t"},
		"the aggregate type":        {core.Event{Type: "t", AggregateType: "order", AggregateID: "7"}, "order"},
		"the aggregate type, no id": {core.Event{Type: "t", AggregateType: "order"}, "order"},
		"routes":                    {core.Event{Type: "routed", AggregateType: "order", AggregateID: "7"}, "one two"},
		"its own":                   {core.Event{Type: "routed", AggregateType: "order", Topic: "three"}, "three"},
	} {
		rows, ids, err := publish(t, cfg, tt.e)
		must(t, err)
		var topics []string
		for _, r := range rows {
			topics = append(topics, r.Event.Topic)
			equal(t, r.Event.ID, ids[0], "%s: the event's id", name)
		}
		slices.Sort(topics)
		equal(t, strings.Join(topics, " "), tt.want, "%s: topics", name)
	}
}

func TestEventIDIsCanonical(t *testing.T) {
	for in, want := range map[string]string{
		"F47AC10B-58CC-4372-A567-0E02B2C3D479": "f47ac10b-58cc-4372-a567-0e02b2c3d479",
		"01arz3ndektsv4rrffq69g5fav":           "01ARZ3NDEKTSV4RRFFQ69G5FAV",
	} {
		if row := publishOne(t, core.Config{}, core.Event{ID: in, Type: "t"}); row.Event.ID != want {
			t.Errorf("%s stored as %s, want %s", in, row.Event.ID, want)
		}
	}
}

func TestOpString(t *testing.T) {
	for op, want := range map[core.Op]string{
		core.OpCreate: "create", core.OpUpdate: "update", core.OpDelete: "delete",
		core.OpUpsert: "upsert", 0: "op(0)", 9: "op(9)",
	} {
		if got := op.String(); got != want {
			t.Errorf("%d is %q, want %q", op, got, want)
		}
	}
}
