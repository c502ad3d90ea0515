package core_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// publishedWith publishes events, each in a transaction of its own, and returns the warnings.
func publishedWith(t *testing.T, routes map[string][]string, events ...core.Event) (warnings []string) {
	t.Helper()
	var log bytes.Buffer
	ob := outboxtest.NewOutbox(t, core.Config{
		Routes: routes, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	for _, e := range events {
		err := ob.Transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			_, err := ob.Publish(ctx, tx, e)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "never called Run") {
			warnings = append(warnings, line)
		}
	}
	return warnings
}

// A type that Routes misspell goes to the topic of its name. That is logged once, with both.
func TestMisspelledRoute(t *testing.T) {
	routes := map[string][]string{"order.placd": {"orders"}, "order.paid": {"orders"}}
	got := publishedWith(t, routes, core.Event{Type: "order.placed"}, core.Event{Type: "order.placed"},
		core.Event{Type: "order.paid"}, core.Event{Type: "mail.sent"}, core.Event{Type: "order.plac", Topic: "x"})
	if len(got) != 1 || !strings.Contains(got[0], "type=order.placed in_routes=order.placd topic=order.placed") {
		t.Errorf("%q", got)
	}
}

// A topic that Routes misspell is logged by New, with the topic that is meant.
func TestMisspelledTopic(t *testing.T) {
	got := publishedWith(t, map[string][]string{
		"order.paid": {"ordres"}, "order.placed": {"orders"}, "mail.sent": {"mails.v1"}, "mail.read": {"mails.v2"},
	})
	if len(got) != 1 || !strings.Contains(got[0], "type=order.placed topic=orders almost=ordres") {
		t.Errorf("%q", got)
	}
	var log bytes.Buffer
	router := core.NewRouter()
	router.Handle("orders", &outboxtest.Publisher{})
	_, err := core.New(core.Config{
		Repository: outboxtest.NewRepository(), Publisher: router, Relay: relay.Config{},
		Routes: map[string][]string{"order.paid": {"order"}, "order.placed": {"orders"}},
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil || !strings.Contains(log.String(), "type=order.paid topic=order almost=orders") {
		t.Errorf("%v %s", err, log.String())
	}
}

// Events of one key in two topics have no order. That is logged once, unless the program has chosen
// both topics.
func TestKeyWithTwoTopics(t *testing.T) {
	const key = "order/7"
	for _, c := range []struct {
		name   string
		routes map[string][]string
		events []core.Event
		warns  bool
	}{
		{"types", nil, []core.Event{{Type: "order.placed", Key: key}, {Type: "order.paid", Key: key}}, true},
		{"aggregate id", nil, []core.Event{{Type: "a", AggregateID: "7"}, {Type: "b", AggregateID: "7"}}, true},
		{
			"one route",
			map[string][]string{"a": {"orders"}},
			[]core.Event{{Type: "a", Key: key}, {Type: "b", Key: key}},
			true,
		},
		{"aggregate", nil, []core.Event{
			{Type: "a", AggregateType: "order", AggregateID: "7"},
			{Type: "b", AggregateType: "order", AggregateID: "7"},
		}, false},
		{
			"routes",
			map[string][]string{"a": {"orders"}, "b": {"orders", "mails"}},
			[]core.Event{{Type: "a", Key: key}, {Type: "b", Key: key}},
			false,
		},
		{
			"two routes",
			map[string][]string{"a": {"orders"}, "b": {"mails"}},
			[]core.Event{{Type: "a", Key: key}, {Type: "b", Key: key}},
			false,
		},
		{"topics", nil, []core.Event{{Type: "a", Topic: "x", Key: key}, {Type: "b", Topic: "y", Key: key}}, false},
		{"other keys", nil, []core.Event{{Type: "a", Key: "1"}, {Type: "b", Key: "2"}}, false},
		{"tenants", nil, []core.Event{
			{Type: "a", Key: key, TenantID: "1"}, {Type: "b", Key: key, TenantID: "2"},
		}, false},
		{
			"unordered", nil,
			[]core.Event{{Type: "a", Key: key, Unordered: true}, {Type: "b", Key: key, Unordered: true}},
			false,
		},
		{"no key", nil, []core.Event{{Type: "a"}, {Type: "b"}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := publishedWith(t, c.routes, append(c.events, c.events...)...)
			if len(got) > 1 || len(got) == 1 != c.warns || c.warns && !strings.Contains(got[0], "two topics") {
				t.Errorf("%q", got)
			}
		})
	}
	var many []core.Event
	for i := range 1_100 { // more keys than are remembered
		many = append(many, core.Event{Type: "a", Key: fmt.Sprint(i)})
	}
	many = append(many, core.Event{Type: "b", Key: "1"}, core.Event{Type: "b", Key: "2"})
	if got := publishedWith(t, nil, many...); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
