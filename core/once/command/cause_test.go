package command_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/cause"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// publish publishes an event in a transaction of its own.
func publish(ctx context.Context, t *testing.T, repo *outboxtest.Repository) error {
	t.Helper()
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		t.Fatal(err)
	}
	return repo.Transactor().RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
		_, err := ob.Publish(ctx, tx, core.Event{Type: "out"})
		return err
	})
}

func lastCause(repo *outboxtest.Repository) string {
	rows := repo.Rows()
	h := rows[len(rows)-1].Event.Headers
	return fmt.Sprint(h[core.HeaderCausationID], " of ", h[core.HeaderCorrelationID])
}

// An effect that a handler enqueues knows its cause, as the event that wakes it does. What the
// effect causes has the effect as its cause, and the chain goes on. So it does after a redrive.
func TestAnEffectCarriesTheCause(t *testing.T) {
	for name, c := range map[string]struct {
		in           cause.Cause // of the handler that enqueues
		effect       command.Effect
		event, chain string // stored with the effect
	}{
		"enqueued by a handler":      {in: cause.New("e", "c"), event: "e", chain: "c"},
		"enqueued outside":           {},
		"what the user set wins":     {in: cause.New("e", "c"), effect: command.Effect{EventID: "own", CorrelationID: "mine"}, event: "own", chain: "mine"},
		"enqueued for many messages": {in: cause.Cause{Chain: "c"}, chain: "c"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEffects(t)
			c.effect.Channel, c.effect.Tenant, c.effect.Key = "mail", "acme", "2"
			var rec command.Record
			w.inTx(func(ctx context.Context) (err error) {
				rec, _, err = w.queue.Enqueue(cause.With(ctx, c.in), nil, c.effect)
				return err
			})
			rows := w.repo.Rows()
			woken := rows[len(rows)-1].Event
			if rec.EventID != c.event || rec.CorrelationID != c.chain || woken.ID != rec.ID ||
				lastCause(w.repo) != c.event+" of "+c.chain {
				t.Errorf("the effect is %+v, and is woken by %s for %s", rec.Effect, woken.ID, lastCause(w.repo))
			}
			chain := c.chain
			if chain == "" {
				chain = rec.ID // it begins one
			}
			worker := w.worker(func(ctx context.Context, _ command.Effect) (string, error) {
				return "", publish(ctx, t, w.repo)
			})
			err := worker.Publish(t.Context(), core.Delivery{Event: woken, Attempt: 1})
			if want := rec.ID + " of " + chain; err != nil || lastCause(w.repo) != want {
				t.Errorf("its event is published by %s, want %s: %v", lastCause(w.repo), want, err)
			}
		})
	}
}

// The event that a command publishes has the command's key as its cause. Within a handler the chain
// goes on.
func TestACommandCarriesTheCause(t *testing.T) {
	for name, c := range map[string]struct {
		in   cause.Cause
		want string
	}{
		"it begins the chain": {cause.Cause{}, create.Key + " of " + create.Key},
		"in a handler":        {cause.New("e", "c"), create.Key + " of c"},
	} {
		t.Run(name, func(t *testing.T) {
			repo := outboxtest.NewRepository()
			commands := newCommands(t, once.Config{Store: repo.OnceStore()})
			ctx := cause.With(t.Context(), c.in)
			_, _, err := command.Run(ctx, commands, create, func(ctx context.Context) (order, error) {
				return order{}, publish(ctx, t, repo)
			})
			if err != nil || lastCause(repo) != c.want {
				t.Errorf("published by %s, want %s: %v", lastCause(repo), c.want, err)
			}
			inTx := create
			inTx.Key = "in a transaction"
			_, _, err = command.RunInTx(ctx, commands, repo.Transactor(), inTx,
				func(ctx context.Context, tx core.Tx) (order, error) {
					ob, err := core.New(core.Config{Repository: repo})
					if err == nil {
						_, err = ob.Publish(ctx, tx, core.Event{Type: "out"})
					}
					return order{}, err
				})
			want := inTx.Key + " of " + cause.New(inTx.Key, c.in.Chain).Chain
			if err != nil || lastCause(repo) != want {
				t.Errorf("published by %s, want %s: %v", lastCause(repo), want, err)
			}
		})
	}
}
