package core_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// Publish takes cause and chain from the context of the call, or of the event. What the user set
// wins, and outside of a handler nothing is invented.
func TestPublishTakesTheCause(t *testing.T) {
	handler := cause.With(t.Context(), cause.New("e-1", "c-1"))
	header := func(pairs ...string) map[string]string {
		h := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = pairs[i+1]
		}
		return h
	}
	for name, c := range map[string]struct {
		ctx    context.Context
		event  core.Event
		cfg    map[string]string // what Config.Headers adds
		id     string
		chain  string
		others int
	}{
		"outside of a handler": {ctx: t.Context()},
		"in a handler":         {ctx: handler, id: "e-1", chain: "c-1"},
		"of the first event":   {ctx: cause.With(t.Context(), cause.New("e-1", "")), id: "e-1", chain: "e-1"},
		"of an odd chain":      {ctx: cause.With(t.Context(), cause.New("e-1", "a\nb")), id: "e-1", chain: "e-1"},
		"of several messages":  {ctx: cause.With(t.Context(), cause.Cause{Chain: "c-1"}), chain: "c-1"},
		"lost by the handler":  {ctx: context.Background()},
		"in an inner handler": {
			ctx: cause.With(handler, cause.Of(handler).Next("k")), id: "k", chain: "c-1",
		},
		"beside other headers": {
			ctx: handler, event: core.Event{Headers: header("a", "b")}, id: "e-1", chain: "c-1", others: 1,
		},
		"the user's cause wins": {
			ctx: handler, event: core.Event{Headers: header(core.HeaderCausationID, "own")}, id: "own", chain: "c-1",
		},
		"the user's chain wins": {
			ctx: handler, event: core.Event{Headers: header(core.HeaderCorrelationID, "own")}, id: "e-1", chain: "own",
		},
		"Config.Headers wins": {
			ctx: handler, cfg: header(core.HeaderCorrelationID, "request"), id: "e-1", chain: "request",
		},
		"the event's context": {ctx: handler, event: core.Event{}.WithContext(t.Context())},
		"of the event's context": {
			ctx: t.Context(), event: core.Event{}.WithContext(handler), id: "e-1", chain: "c-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			repo := outboxtest.NewRepository()
			cfg := core.Config{Repository: repo}
			if c.cfg != nil {
				cfg.Headers = func(context.Context) map[string]string { return c.cfg }
			}
			ob := newOutbox(t, cfg)
			own := len(c.event.Headers)
			c.event.Type = "a"
			must(t, repo.Transactor().RunInTx(c.ctx, func(ctx context.Context, tx core.Tx) error {
				_, err := ob.Publish(ctx, tx, c.event)
				return err
			}))
			h := repo.Rows()[0].Event.Headers
			want := c.others
			for name, value := range map[string]string{core.HeaderCausationID: c.id, core.HeaderCorrelationID: c.chain} {
				if h[name] != value {
					t.Errorf("%s is %q, want %q", name, h[name], value)
				}
				if value != "" {
					want++
				}
			}
			if len(h) != want || len(c.event.Headers) != own {
				t.Errorf("headers %v, and those of the caller are %v", h, c.event.Headers)
			}
		})
	}
}

// An event that has as many headers as it may have is not refused because a handler publishes it.
func TestTheCauseExceedsNoLimit(t *testing.T) {
	repo := outboxtest.NewRepository()
	ob := newOutbox(t, core.Config{Repository: repo})
	e := core.Event{Type: "a", Headers: map[string]string{}}
	for n := range 64 {
		e.Headers[fmt.Sprint("h", n)] = ""
	}
	ctx := cause.With(t.Context(), cause.New("e-1", ""))
	must(t, repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, e)
		return err
	}))
	if h := repo.Rows()[0].Event.Headers; len(h) != 66 || h[core.HeaderCausationID] != "e-1" {
		t.Errorf("%d headers", len(h))
	}
}

// BenchmarkPublish measures Publish alone, outside of a handler and in one.
func BenchmarkPublish(b *testing.B) {
	repo := outboxtest.NewRepository()
	ob := newOutbox(b, core.Config{Repository: repo, Logger: slog.New(slog.DiscardHandler)})
	for name, ctx := range map[string]context.Context{
		"outside": b.Context(), "handler": cause.With(b.Context(), cause.New(core.NewEventID(), core.NewEventID())),
	} {
		b.Run(name, func(b *testing.B) {
			tx, err := repo.Begin(ctx)
			must(b, err)
			b.ReportAllocs()
			for b.Loop() {
				_, err := ob.Publish(ctx, tx, core.Event{Type: "a", Payload: []byte("{}")})
				must(b, err)
			}
			must(b, tx.Rollback())
		})
	}
}
