package ops_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// besides makes the tables beside the outbox, and an API that has not yet missed them.
func (w *world) besides(db testdb.DB) (in *sqlinbox.Store, effects *sqlcommand.Store, keys *sqlonce.Store) {
	w.T.Helper()
	in, err := sqlinbox.New(w.Pool, sqlinbox.Config{Dialect: db.Dialect})
	fixture.NoError(w.T, err)
	effects, err = sqlcommand.New(w.Pool, sqlcommand.Config{Dialect: db.Dialect})
	fixture.NoError(w.T, err)
	keys, err = sqlonce.New(w.Pool, sqlonce.Config{Dialect: db.Dialect})
	fixture.NoError(w.T, err)
	for _, s := range []interface{ Migrate(context.Context) error }{in, effects, keys} {
		fixture.NoError(w.T, s.Migrate(w.T.Context()))
	}
	w.api, err = sqlops.New(w.Outbox)
	fixture.NoError(w.T, err)
	return in, effects, keys
}

// A database without the tables of consumers, effects and keys has none, which is no error. A change
// of them is one.
func TestNothingBeside(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		for range 2 {
			c, err := w.api.Consumers(ctx)
			fixture.Check(t, err == nil && !c.There && c.Handlers == nil, "%+v, %v", c, err)
			m, err := w.api.Messages(ctx, inbox.FailedQuery{})
			fixture.Check(t, err == nil && !m.There && m.Events == nil, "%+v, %v", m, err)
			e, err := w.api.Effects(ctx)
			fixture.Check(t, err == nil && !e.There && e.Channels == nil, "%+v, %v", e, err)
			k, err := w.api.IdempotencyKeys(ctx)
			fixture.Check(t, err == nil && !k.There && k.Scopes == nil, "%+v, %v", k, err)
		}
		id := w.Publish(core.Event{Type: "paid", Topic: "orders"})[0]
		x := w.explain(id)
		fixture.Check(t, len(x.Consumers) == 0 && x.ConsumersError == "", "%+v, %s", x.Consumers, x.ConsumersError)
		_, err := w.api.RedriveMessages(ctx, ops.MessageRequest{
			Keys: []inbox.Key{{Consumer: "c", Handler: "h", EventID: "e"}}, Actor: "ada", Reason: "why",
		})
		fixture.Check(t, errors.Is(err, core.ErrNoTables), "redrive: %v", err)
		_, err = w.api.DiscardEffects(ctx, ops.EffectRequest{IDs: []string{"e"}, Actor: "ada", Reason: "why"})
		fixture.Check(t, errors.Is(err, core.ErrNoTables), "discard: %v", err)

		// That the tables are missing is told from that they cannot be read.
		in, _, _ := w.besides(db)
		fails(t, in, "billing", "charge", "", id, "timeout", false)
		fixture.MustExec(t, w.Pool, "ALTER TABLE inbox_failure RENAME COLUMN received_at TO other")
		c, err := w.api.Consumers(ctx)
		fixture.Check(t, err != nil && !errors.Is(err, core.ErrNoTables) && !c.There, "%+v, %v", c, err)
		fixture.MustExec(t, w.Pool, "ALTER TABLE inbox_failure RENAME COLUMN updated_at TO another")
		x = w.explain(id)
		fixture.Check(t, x.Reason != ops.ReasonUnknown && strings.Contains(x.ConsumersError, "updated_at"), "%+v", x)
	})
}

// fails lets a handler fail with an event.
func fails(t *testing.T, s *sqlinbox.Store, consumer, handler, tenant, id, text string, dead bool) inbox.Key {
	t.Helper()
	k := inbox.Key{Consumer: consumer, Handler: handler, Tenant: tenant, EventID: id}
	_, err := s.Register(t.Context(), inbox.Registration{
		Consumer: consumer, Handler: handler, Program: "app", Topic: "orders",
	})
	fixture.NoError(t, err)
	_, _, err = s.Fail(t.Context(), inbox.Failure{
		Event: inbox.Event{Key: k, Type: "paid", Topic: "orders", Partition: 3, Offset: 7, Located: true},
		Code:  "tax", Text: text, Dead: dead,
	})
	fixture.NoError(t, err)
	return k
}

func processed(t *testing.T, w *world, s *sqlinbox.Store, consumer, handler, id string) {
	t.Helper()
	_, err := s.Register(t.Context(), inbox.Registration{
		Consumer: consumer, Handler: handler, Program: "app", Topic: "orders",
	})
	fixture.NoError(t, err)
	fixture.NoError(t, w.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
		_, _, err := s.Begin(ctx, tx, inbox.Event{Key: inbox.Key{Consumer: consumer, Handler: handler, EventID: id}})
		return err
	}))
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		in, _, _ := w.besides(db)
		var dead []inbox.Key
		for i := range 5 {
			dead = append(dead, fails(t, in, "billing", "charge", "", fmt.Sprintf("dead-%d", i), "no rate", true))
		}
		fails(t, in, "billing", "charge", "", "failing", "timeout", false)
		fails(t, in, "billing", "mail", "acme", "failing", "timeout", false)
		fails(t, in, "search", "index", "", "dead-0", "no index", true)
		processed(t, w, in, "audit", "write", "done")

		c, err := w.api.Consumers(ctx)
		fixture.NoError(t, err)
		fixture.Must(t, c.There && len(c.Handlers) == 4, "%+v", c)
		now := time.Now()
		of := func(i int) string {
			b := c.Handlers[i]
			fixture.Check(t, b.Topic == "orders" && !b.More, "%+v", b)
			fixture.Check(t, b.Oldest >= b.OldestDead && b.Oldest < time.Minute, "%+v", b)
			return fmt.Sprintf("%s/%s %d %d %d %v", b.Consumer, b.Handler, b.Failed, b.Dead, b.Redriven,
				now.Sub(b.LastProcessed) < time.Minute)
		}
		for i, want := range []string{
			"audit/write 0 0 0 true", "billing/charge 1 5 0 false", "billing/mail 1 0 0 false",
			"search/index 0 1 0 false",
		} {
			fixture.Check(t, of(i) == want, "%s, want %s", of(i), want)
		}

		n, err := w.api.RedriveMessages(ctx, ops.MessageRequest{Keys: dead[:1], Actor: "ada", Reason: "mended"})
		fixture.Check(t, n == 1 && err == nil, "%d, %v", n, err)
		n, err = w.api.DiscardMessages(ctx, ops.MessageRequest{Keys: dead[:2], Actor: "bob", Reason: "spam"})
		fixture.Check(t, n == 1 && err == nil, "%d, %v", n, err)
		if _, err = w.api.DiscardMessages(ctx, ops.MessageRequest{Keys: dead, Actor: "bob"}); !errors.Is(err,
			core.ErrInvalidRequest) {
			t.Errorf("without a reason: %v", err)
		}

		// Pages of every size are the whole list, the dead ones of each consumer first.
		list := func(q inbox.FailedQuery) string {
			var all []string
			for {
				page, err := w.api.Messages(ctx, q)
				fixture.NoError(t, err)
				for _, e := range page.Events {
					all = append(all, fmt.Sprintf("%s %s %s", e.Handler, e.EventID, e.Status))
					fixture.Check(t, e.Located && e.Partition == 3 && e.Offset == 7 && e.Type == "paid", "%+v", e)
				}
				if q.After = page.Next; page.Next == "" {
					return strings.Join(all, ", ")
				}
			}
		}
		const all = "charge dead-2 dead, charge dead-3 dead, charge dead-4 dead, charge failing failed, mail failing " +
			"failed, charge dead-0 redriven, charge dead-1 discarded, index dead-0 dead"
		for limit := range 10 {
			got := list(inbox.FailedQuery{Limit: limit})
			fixture.Check(t, got == all, "pages of %d: %s", limit, got)
		}
		for want, q := range map[string]inbox.FailedQuery{
			"charge dead-2 dead, charge dead-3 dead, charge dead-4 dead": {
				Consumer: "billing", Status: inbox.StatusDead,
			},
			"mail failing failed":                        {Tenant: "acme"},
			"charge dead-1 discarded":                    {Status: inbox.StatusDiscarded},
			"charge dead-0 redriven, index dead-0 dead":  {EventID: "dead-0"},
			"index dead-0 dead":                          {Handler: "index", Status: inbox.StatusDead},
			"charge failing failed, mail failing failed": {Status: inbox.StatusFailed, Consumer: "billing"},
			"": {Consumer: "nobody"},
		} {
			for limit := range 3 {
				q.Limit = limit
				fixture.Check(t, list(q) == want, "%+v: %s", q, list(q))
			}
		}
		for _, q := range []inbox.FailedQuery{{Status: "new"}, {After: "?"}, {Status: inbox.StatusProcessed}} {
			if _, err := w.api.Messages(ctx, q); !errors.Is(err, inbox.ErrInvalidRequest) {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// Explain goes on to what each consumer did with the event.
func TestExplainConsumers(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		in, _, _ := w.besides(db)
		id := w.Publish(core.Event{Type: "paid", Topic: "orders"})[0]
		w.drain()
		processed(t, w, in, "audit", "audit", id)
		processed(t, w, in, "idle", "idle", "another")
		fails(t, in, "mail", "send", "", id, "timeout", false)
		dead := fails(t, in, "billing", "charge", "", id, "tax rate \x1b[31m <DE>.", true)

		said := func() (all []string) {
			for _, o := range w.explain(id).Consumers {
				all = append(all, o.Said+" "+o.Fix)
			}
			return all
		}
		wants := func(want ...string) {
			t.Helper()
			got := said()
			fixture.Must(t, len(got) == len(want), "%q", got)
			for i, parts := range want {
				for part := range strings.SplitSeq(parts, "|") {
					fixture.Check(t, strings.Contains(got[i], part), "%q lacks %q", got[i], part)
				}
			}
		}
		wants("Consumer audit processed it at ",
			`Handler charge of consumer billing gave it up after 1 attempt, at |: tax, tax rate \x1b[31m <DE>.|`+
				"`outbox inbox redrive "+id+" --consumer billing --reason WHY`",
			"Consumer idle has no record of it", "Handler send of consumer mail has failed with it 1 time, last at ")

		n, err := w.api.RedriveMessages(ctx, ops.MessageRequest{
			Keys: []inbox.Key{dead}, Actor: "ada", Reason: "mended.",
		})
		fixture.Must(t, n == 1 && err == nil, "%d, %v", n, err)
		got := said()[1]
		fixture.Check(t, strings.Contains(got, "waits for its delivery: it was redriven at ") &&
			strings.Contains(got, "by ada: mended. Have"), "%s", got)
		fails(t, in, "billing", "charge", "", id, "again", true)
		n, err = w.api.DiscardMessages(ctx, ops.MessageRequest{Keys: []inbox.Key{dead}, Actor: "ada", Reason: "spam"})
		fixture.Must(t, n == 1 && err == nil, "%d, %v", n, err)
		got = said()[1]
		fixture.Check(t, strings.Contains(got, "will not process it: it was discarded at ") &&
			strings.Contains(got, "by ada: spam."), "%s", got)

		// Consumers remember an event that the outbox has forgotten.
		fixture.MustExec(t, w.Pool, "DELETE FROM outbox_event")
		x := w.explain(id)
		fixture.Check(t, x.Reason == ops.ReasonUnknown && len(x.Consumers) == 3, "%s: %+v", x.Reason, x.Consumers)
	})
}

func TestEffectsAndKeys(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		w, ctx := newWorld(t, db, core.Config{}), t.Context()
		_, effects, keys := w.besides(db)
		queue, err := command.NewQueue(command.QueueConfig{Store: effects, Outbox: w.Outbox})
		fixture.NoError(t, err)
		var ids []string
		for i := range 3 {
			fixture.NoError(t, w.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
				r, _, err := queue.Enqueue(ctx, tx, command.Effect{
					Channel: "mail", Key: fmt.Sprint(i), Payload: []byte("secret"),
					Headers: map[string]string{"a": "b"},
				})
				ids = append(ids, r.ID)
				return err
			}))
		}
		for _, id := range ids[:2] {
			claimed, err := effects.Claim(ctx, id, "w", time.Minute)
			fixture.Must(t, err == nil && claimed.Fresh, "%+v %v", claimed, err)
			fixture.NoError(t, effects.Fail(ctx, command.Claim{ID: id, Owner: "w", Fence: claimed.Fence},
				command.Failure{Dead: true, Code: "bounced", Text: "no such box"}))
		}
		e, err := w.api.Effects(ctx)
		fixture.Must(t, err == nil && e.There && len(e.Channels) == 1 && e.Channels[0].Dead == 2 &&
			e.Channels[0].Pending == 1, "%+v, %v", e, err)
		page, err := w.api.ListEffects(ctx, command.Query{Status: command.StatusDead, Limit: 1})
		fixture.Must(t, err == nil && len(page.Effects) == 1 && page.Next == page.Effects[0].ID, "%+v, %v", page, err)
		r := page.Effects[0]
		fixture.Check(t, r.ErrorCode == "bounced" && r.Payload == nil && r.Headers == nil, "%+v", r)
		n, err := w.api.RedriveEffects(ctx, ops.EffectRequest{IDs: ids[:1], Actor: "ada", Reason: "mended"})
		fixture.Check(t, n == 1 && err == nil, "%d, %v", n, err)
		n, err = w.api.DiscardEffects(ctx, ops.EffectRequest{
			IDs: append(ids, core.NewEventID()), Actor: "ada", Reason: "spam",
		})
		fixture.Check(t, n == 1 && err == nil, "%d, %v", n, err)

		key := func(scope, id string, lease time.Duration) once.Claim {
			req := once.Request{
				Key: once.Key{Scope: scope, ID: id}, Owner: id, Lease: lease, TTL: time.Hour,
			}
			got, err := keys.Acquire(ctx, req)
			fixture.Must(t, err == nil && got.State == once.Fresh, "%+v, %v", got, err)
			return once.Claim{Key: req.Key, Owner: id, Fence: got.Fence}
		}
		fixture.NoError(t, keys.Complete(ctx, key("POST /a", "done", time.Minute), once.Result{}, time.Hour))
		fixture.NoError(t, keys.Release(ctx, key("POST /a", "failed", time.Minute), 1))
		key("POST /b", "held", time.Minute)
		key("POST /b", "gone", time.Millisecond)
		fixture.Await(t, "a lease ends", func() bool {
			k, err := w.api.IdempotencyKeys(ctx)
			fixture.Must(t, err == nil && k.There && len(k.Scopes) == 2, "%+v, %v", k, err)
			a, b := k.Scopes[0], k.Scopes[1]
			return a.Scope == "POST /a" && a.Done == 1 && a.Failed == 1 && b.Held == 1 && b.Abandoned == 1 &&
				b.Oldest > 0
		})
		list := func(q once.KeyQuery) string {
			var all []string
			for {
				page, err := w.api.ListIdempotencyKeys(ctx, q)
				fixture.NoError(t, err)
				for _, k := range page.Keys {
					all = append(all, k.Key.ID+" "+string(k.Status))
					ended := k.Status == once.KeyDone || k.Status == once.KeyFailed
					fixture.Check(t, k.CreatedAt.Before(k.ExpiresAt) && k.LeaseUntil.IsZero() == ended &&
						k.DoneAt.IsZero() == (k.Status != once.KeyDone), "%+v", k)
				}
				if q.After = page.Next; page.Next == "" {
					return strings.Join(all, ", ")
				}
			}
		}
		whole := list(once.KeyQuery{})
		fixture.Check(t, len(strings.Split(whole, ", ")) == 4, "%s", whole)
		for limit := range 6 {
			got := list(once.KeyQuery{Limit: limit})
			fixture.Check(t, got == whole, "pages of %d: %s, want %s", limit, got, whole)
		}
		for want, q := range map[string]once.KeyQuery{
			"done done":      {Status: once.KeyDone},
			"held held":      {Scope: "POST /b", Status: once.KeyHeld},
			"gone abandoned": {ID: "gone"},
			"failed failed":  {Scope: "POST /a", ID: "failed"},
			"":               {Tenant: "acme"},
		} {
			fixture.Check(t, list(q) == want, "%+v: %s", q, list(q))
		}
		if _, err := w.api.ListIdempotencyKeys(ctx, once.KeyQuery{Status: "new"}); !errors.Is(err,
			once.ErrInvalidRequest) {
			t.Errorf("a status that is none: %v", err)
		}
	})
}
