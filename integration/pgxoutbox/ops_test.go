package pgxoutbox_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// The operator's API reads the same columns through a pool of pgx, in several modes of pgx.
func TestOperatorsAPIOnPGX(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("no field total")
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache statement": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec,
		"simple": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := adapters.OpenPGX(t, testdb.Postgres(t), func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
			})
			repo, err := pgxoutbox.NewRepository(pool.Pool, sqloutbox.Config{})
			fixture.NoError(t, err)
			fixture.NoError(t, repo.Migrate(t.Context()))
			ob, err := core.New(
				core.Config{Repository: repo, Logger: slog.New(slog.DiscardHandler), Publisher: core.PublisherFunc(
					func(_ context.Context, d core.Delivery) error { return core.Permanent(errBroken) },
				), Relay: relay.Config{}},
			)
			fixture.NoError(t, err)
			var ids []string
			fixture.NoError(
				t,
				pgxoutbox.Transactor(pool).RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
					ids, err = ob.Publish(
						ctx,
						tx,
						core.Event{Type: "paid", Topic: "orders", Key: "k", Headers: map[string]string{"a": "b"}},
						core.Event{Type: "paid", Topic: "orders", Key: "k"},
					)
					return err
				}),
			)
			fixture.NoError(t, ob.Drain(t.Context()))
			api, err := sqlops.New(ob)
			fixture.NoError(t, err)
			q := ops.ListQuery{Filter: ops.Filter{
				Statuses: []ops.Status{ops.StatusNew, ops.StatusDead}, Topic: "orders", Key: "k",
			}, Limit: 1}
			page, err := api.List(t.Context(), q)
			fixture.Must(t, err == nil && len(page.Events) == 1 && page.Events[0].EventID == ids[0],
				"%+v %v", page, err)
			q.After = page.Next
			if page, err = api.List(
				t.Context(),
				q,
			); err != nil || len(page.Events) != 1 ||
				page.Events[0].EventID != ids[1] {
				t.Fatalf("%+v %v", page, err)
			}
			if n, err := api.Count(
				t.Context(),
				ops.Filter{CreatedFrom: page.Events[0].CreatedAt.Add(-time.Minute)},
			); err != nil ||
				n.N != 2 {
				t.Errorf("%s %v", n, err)
			}
			found, err := api.Show(t.Context(), ids[0])
			fixture.Check(t, err == nil && found[0].Content.Headers["a"] == "b" && found[0].Error == errBroken.Error(),
				"%+v %v", found, err)
			why, err := api.Explain(t.Context(), ids[1])
			fixture.Check(t, err == nil && why[0].Reason == ops.ReasonBlocked && why[0].Other.EventID == ids[0],
				"%+v %v", why, err)
			p, err := api.PlanDiscard(t.Context(), ops.Filter{EventID: ids[0]}, 0)
			fixture.NoError(t, err)
			if done, err := api.Apply(t.Context(), p, "ada", "a test"); err != nil || done.Changed != 1 {
				t.Errorf("%+v %v", done, err)
			}
			if found, err = api.Show(
				t.Context(),
				ids[0],
			); err != nil || len(found[0].Audit) != 1 ||
				found[0].Audit[0].Actor != "ada" {
				t.Errorf("%+v %v", found, err)
			}
		})
	}
}

// Consumers, effects and keys are read through the pool of pgx too. Effects are changed in
// transactions of the adapter, which the API does not have.
func TestConsumersOnPGX(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]pgx.QueryExecMode{
		"cache statement": pgx.QueryExecModeCacheStatement, "exec": pgx.QueryExecModeExec,
		"simple": pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, ctx := testdb.Postgres(t), t.Context()
			plain := db.Open(t)
			inboxes := fixture.NewInboxStore(t, plain, sqlinbox.Config{Dialect: core.Postgres})
			keys := fixture.NewOnceStore(t, plain, sqlonce.Config{Dialect: core.Postgres})
			pool := adapters.OpenPGX(t, db, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			repo, err := pgxoutbox.NewRepository(pool.Pool, sqloutbox.Config{})
			fixture.NoError(t, err)
			fixture.NoError(t, repo.Migrate(ctx))
			ob, err := core.New(core.Config{Repository: repo})
			fixture.NoError(t, err)
			api, err := sqlops.New(ob)
			fixture.NoError(t, err)

			k := inbox.Key{Consumer: "billing", Handler: "charge", EventID: core.NewEventID()}
			_, err = inboxes.Register(ctx, inbox.Registration{Consumer: k.Consumer, Handler: k.Handler})
			fixture.NoError(t, err)
			_, _, err = inboxes.Fail(ctx, inbox.Failure{
				Event: inbox.Event{Key: k}, Code: "tax", Text: "no rate", Dead: true,
			})
			fixture.NoError(t, err)
			_, err = keys.Acquire(ctx, once.Request{
				Key: once.Key{Scope: "POST /a", ID: "1"}, Owner: "o", Lease: time.Minute, TTL: time.Hour,
			})
			fixture.NoError(t, err)

			c, err := api.Consumers(ctx)
			fixture.Check(t, err == nil && len(c.Handlers) == 1 && c.Handlers[0].Dead == 1, "%+v, %v", c, err)
			m, err := api.Messages(ctx, inbox.FailedQuery{EventID: k.EventID, Status: inbox.StatusDead})
			fixture.Check(t, err == nil && len(m.Events) == 1 && m.Events[0].Text == "no rate", "%+v, %v", m, err)
			o, err := api.Outcomes(ctx, ops.Event{EventID: k.EventID})
			fixture.Check(t, err == nil && len(o) == 1 && o[0].Status == inbox.StatusDead, "%+v, %v", o, err)
			n, err := api.RedriveMessages(ctx, ops.MessageRequest{Keys: []inbox.Key{k}, Actor: "ada", Reason: "mended"})
			fixture.Check(t, err == nil && n == 1, "%d, %v", n, err)
			held, err := api.IdempotencyKeys(ctx)
			fixture.Check(t, err == nil && len(held.Scopes) == 1 && held.Scopes[0].Held == 1, "%+v, %v", held, err)
			list, err := api.ListIdempotencyKeys(ctx, once.KeyQuery{Status: once.KeyHeld})
			fixture.Check(t, err == nil && len(list.Keys) == 1, "%+v, %v", list, err)
			e, err := api.Effects(ctx)
			fixture.Check(t, err == nil && !e.There, "%+v, %v", e, err)
			_, err = api.RedriveEffects(ctx, ops.EffectRequest{IDs: []string{"e"}, Actor: "ada", Reason: "mended"})
			fixture.Check(t, errors.Is(err, errors.ErrUnsupported), "%v", err)
		})
	}
}
