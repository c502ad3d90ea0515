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
	"github.com/ormoutbox/ormoutbox/core/ops"
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
				)},
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
			api, err := ops.New(ob)
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
