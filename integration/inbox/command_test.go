package inbox_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// A handler of the inbox runs a command and enqueues an effect, in the transaction that the inbox
// opened. Each event comes twice, the first time to a handler that fails after its work. Two events
// ask for the same order. There is one order and one effect.
func TestCommandInInbox(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		keys := fixture.NewOnceStore(t, w.pool, sqlonce.Config{Dialect: w.db.Dialect})
		effects := fixture.NewEffectStore(t, w.pool, sqlcommand.Config{Dialect: w.db.Dialect})
		repo := fixture.NewRepository(t, w.pool, sqloutbox.Config{Dialect: w.db.Dialect})
		outbox, err := core.New(core.Config{Repository: repo})
		fixture.NoError(t, err)
		commands, err := command.New(once.Config{Store: keys})
		fixture.NoError(t, err)
		queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: outbox})
		fixture.NoError(t, err)

		var results []string
		fails := errors.New("fails after its work")
		handler := func(fail error) message.HandlerFunc {
			return w.in.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				if _, ok := core.TxFromContext(msg.Context()); !ok {
					t.Error("no transaction")
				}
				order, _, err := command.RunTx(msg.Context(), commands, nil,
					command.Command{Type: "create-order", Key: "quote-7", Input: "quote"},
					func(ctx context.Context) (string, error) {
						_, _, err := queue.Enqueue(ctx, nil,
							command.Effect{Channel: "mail", Tenant: "acme", Key: "confirm", Payload: []byte("dear")})
						return "order-1", errors.Join(err, w.apply(msg, "ordered"))
					})
				results = append(results, order)
				return nil, errors.Join(err, fail)
			})
		}
		for _, event := range []string{"accepted-1", "accepted-2"} {
			if _, err := handler(fails)(inboxMessage(event)); !errors.Is(err, fails) {
				t.Errorf("%v", err)
			}
			for range 2 {
				_, err := handler(nil)(inboxMessage(event))
				fixture.NoError(t, err)
			}
		}
		w.wantEffects(map[string]int{"accepted-1 ordered": 1})
		for _, r := range results {
			fixture.Check(t, r == "order-1", "results %q", results)
		}
		fixture.Check(t, len(results) == 4, "%d runs of the handler, want 4", len(results))
		for _, table := range []string{"side_effect_command", "outbox_event", "idempotency_key"} {
			if n := fixture.Count(t, w.pool, "SELECT COUNT(*) FROM "+table); n != 1 {
				t.Errorf("%d rows in %s", n, table)
			}
		}
	}, named)
}
