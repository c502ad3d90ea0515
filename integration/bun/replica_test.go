package bun_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/uptrace/bun"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
)

// replica is the ConnResolver of an application that reads from a replica. Bun says of every raw
// query that it is a SELECT.
type replica struct{ pool *sql.DB }

func (r replica) ResolveConn(_ context.Context, q bun.Query) bun.IConn {
	if q.Operation() == "SELECT" {
		return r.pool
	}
	return nil
}

func (r replica) Close() error { return nil }

// Statements that change rows, and what the outbox asks about them, stay on the primary. Here the
// replica is another database, which takes writes too.
func TestBunReadsFromAReplica(t *testing.T) {
	t.Parallel()
	eachBunEnv(t, withConnector, func(t *testing.T, b *bunEnv) {
		stale := newBunEnv(t, b.db.Another(t), b.way)
		bunoutbox.On(b.ob, func(op core.Op, p *bProduct) []core.Event {
			return []core.Event{{Type: fmt.Sprintf("%s.%s", op, p.Name)}}
		})
		db := bun.NewDB(b.bare.DB, b.Dialect(), bun.WithConnResolver(replica{stale.bare.DB})).WithQueryHook(b.ob.Hook())
		p := &bProduct{Name: "a"}
		b.exec(t, t.Context(), db.NewInsert().Model(p))
		rename := func(ctx context.Context, db bun.IDB, name string) {
			b.exec(t, ctx, db.NewUpdate().Model((*bProduct)(nil)).Set("name = ?", name).Where("id = ?", p.ID))
		}
		rename(t.Context(), db, "b")
		fixture.NoError(t, db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			rename(ctx, tx, "c")
			return b.publish(ctx, tx, "said")
		}))
		n, err := db.NewSelect().Model((*bProduct)(nil)).Count(t.Context())
		fixture.NoError(t, err)
		fixture.Check(t, n == 0, "a read outside of a transaction did not go to the replica")
		b.exec(t, t.Context(), db.NewDelete().Model(p).WherePK())
		b.wantRows(t, "create.a 1", "update.b 1", "update.c 1", "said", "delete.c 1")
		stale.wantRows(t)
		stale.WantCount(t, "b_products", 0)
	})
}
