package core_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

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
