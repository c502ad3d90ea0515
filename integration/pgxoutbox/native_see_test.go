package pgxoutbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// Events that wait are written before each thing that may see them.
func TestNativeWaysToSeeEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("CREATE TABLE seen AS SELECT event_id FROM outbox_event WITH NO DATA")
	w.exec(`CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF EXISTS (SELECT FROM outbox_event e WHERE e.event_id = NEW.event_id) THEN RETURN NEW; END IF;
		RETURN NULL; END $$`)
	w.exec("CREATE TRIGGER see BEFORE INSERT ON seen FOR EACH ROW EXECUTE FUNCTION see()")
	const count = "SELECT count(*) FROM outbox_event"
	for name, see := range map[string]func(ctx context.Context, tx pgx.Tx, h *heard) (n int, err error){
		"QueryRow": func(ctx context.Context, tx pgx.Tx, _ *heard) (n int, err error) {
			return n, tx.QueryRow(ctx, count).Scan(&n)
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx, _ *heard) (n int, err error) {
			b := &pgx.Batch{}
			b.Queue("SELECT 1")
			b.Queue(count).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			return n, tx.SendBatch(ctx, b).Close()
		},
		"a name": func(ctx context.Context, tx pgx.Tx, _ *heard) (n int, err error) {
			if _, err := tx.Prepare(ctx, "select", count); err != nil {
				return 0, err
			}
			return n, tx.QueryRow(ctx, "select").Scan(&n)
		},
		"a name in a batch": func(ctx context.Context, tx pgx.Tx, _ *heard) (n int, err error) {
			if _, err := tx.Prepare(ctx, "values", count); err != nil {
				return 0, err
			}
			b := &pgx.Batch{}
			b.Queue("values").QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			return n, tx.SendBatch(ctx, b).Close()
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx, h *heard) (n int, err error) {
			rows := pgx.CopyFromRows([][]any{{h.id}})
			copied, err := tx.CopyFrom(ctx, pgx.Identifier{"seen"}, []string{"event_id"}, rows)
			return int(copied), err
		},
		"Conn": func(ctx context.Context, tx pgx.Tx, _ *heard) (n int, err error) {
			return n, tx.Conn().QueryRow(ctx, count).Scan(&n)
		},
		"Flush": func(ctx context.Context, tx pgx.Tx, _ *heard) (n int, err error) {
			own, err := pgxoutbox.TxOf(ctx, tx)
			if err != nil {
				return 0, err
			}
			if err := sqltx.Flush(ctx, struct{ core.Tx }{own}); err != nil {
				return 0, err
			}
			return n, tx.QueryRow(ctx, "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND mode = $2 "+
				"AND pid = pg_backend_pid()", "outbox_event", "RowExclusiveLock").Scan(&n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{T: t, pool: w.pool, ob: w.ob}
			tx := w.begin()
			defer tx.Rollback(t.Context())
			h := w.mustPublish(tx)
			n, err := see(t.Context(), tx, h)
			w.check(err)
			fixture.Check(t, n == 1, "%d events, want 1", n)
		})
	}
}
