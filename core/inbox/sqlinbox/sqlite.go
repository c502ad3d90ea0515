package sqlinbox

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

var sqliteVariant = variant{
	list: listOnce,
	cleanupKeys: "DELETE FROM {inbox_key} WHERE (consumer, handler, tenant_id, topic, partition_key) IN " +
		"(SELECT consumer, handler, tenant_id, topic, partition_key " +
		"FROM {inbox_key} WHERE consumer = ? AND updated_at < {ago} LIMIT ?)",
	database: func(n sqlstore.Names) database {
		const see = "SELECT tenant_id, event_id, " + isProcessed + ", 0 FROM {seen} WHERE "
		return &sqlite{
			upsertLane: upsertLane{n.Statement(advanceLane)},
			insert: func(rows int) string {
				return n.Statement(insertRows(rows) + unlessSeen(n) + " RETURNING tenant_id, event_id")
			},
			see: func(keys int) string { return n.Statement(see + seeByKeys(keys)) },
		}
	},
}

type sqlite struct {
	named
	upsertLane
	insert, see func(n int) string
}

// batchSize is small: a statement of SQLite needs no network, and its drivers get slow with many
// parameters.
func (*sqlite) batchSize() int { return 40 }

func (d *sqlite) insertRows(ctx context.Context, tx core.Tx, h *handler, events []inbox.Event,
	fresh func(inbox.Key), _ seeRows,
) error {
	return showFresh(ctx, tx, h, fresh, d.insert(len(events)), eventsArgs(h, events))
}

func (d *sqlite) seeRows(h *handler, keys []inbox.Key) (text string, args []any) {
	return d.see(len(keys)), keysArgs(h, keys)
}
