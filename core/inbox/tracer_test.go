package inbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/inboxtest"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// The handler has the context of the tracer, and the tracer hears of each message's outcome.
func TestTracerIsCalledAroundProcess(t *testing.T) {
	type key struct{}
	var got []string
	in, err := inbox.New(inbox.Config{
		Consumer: "billing", Handler: "invoice", Transactor: outboxtest.NewRepository().Transactor(),
		Store: inboxtest.NewStore(), Logger: slog.New(slog.DiscardHandler),
		Tracer: &inbox.Tracer{Process: func(ctx context.Context, consumer string, msgs []inbox.Message) (
			context.Context, func([]inbox.Result),
		) {
			return context.WithValue(ctx, key{}, consumer), func(results []inbox.Result) {
				if len(results) != len(msgs) {
					t.Errorf("%d results for %d messages", len(results), len(msgs))
				}
				for _, r := range results {
					got = append(got, r.Outcome)
				}
			}
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	handle := func(ctx context.Context, _ core.Tx, msg inbox.Message) error {
		if ctx.Value(key{}) != "billing" {
			t.Error("the handler has another context")
		}
		if msg.ID == "bad" {
			return core.Permanent(errors.New("no"))
		}
		return nil
	}
	for _, id := range []string{"1", "1", "bad", ""} {
		in.Process(t.Context(), inbox.Message{ID: id}, handle)
	}
	in.ProcessBatch(t.Context(), []inbox.Message{{ID: "1"}, {ID: "2"}},
		func(context.Context, core.Tx, []inbox.Message) error { return nil })
	want := []string{
		"processed", "duplicate", "dead", "dead", "duplicate", "processed",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the tracer heard of %v, want %v", got, want)
	}
}
