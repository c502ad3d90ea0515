package sqlinbox

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

var mysqlVariant = variant{
	list:        "INSERT IGNORE " + listHandler,
	cleanupKeys: "DELETE FROM {inbox_key} WHERE consumer = ? AND updated_at < {ago} LIMIT ?",
	database: func(n sqlstore.Names) database {
		const see = "SELECT tenant_id, event_id, " + isProcessed + ", copies FROM {seen} WHERE "
		return &mysql{
			key: n.Statement(strings.Replace(laneHead, " AS k", "", 1) +
				"ON DUPLICATE KEY UPDATE updated_at = UTC_TIMESTAMP(6)"),
			advanceKey: n.Statement("UPDATE {inbox_key} SET last_seq = ?, updated_at = {now} WHERE " + laneIs +
				" AND last_seq < ?"),
			insert: func(rows int) string { return n.Statement(insertRows(rows) + unlessSeen(n)) },
			see:    func(keys int) string { return n.Statement(see + seeByKeys(keys)) },
		}
	},
}

// mysql is MariaDB or MySQL. There an INSERT does not return the rows that it inserted.
type mysql struct {
	numbered
	key, advanceKey string
	insert, see     func(n int) string
}

// advance takes two statements, because the upsert of MySQL does not report whether it inserted or
// updated. The first statement makes sure that there is a row with an older number, and locks it.
// Without a row the UPDATE would lock the gap, and two transactions would deadlock.
func (d *mysql) advance(ctx context.Context, tx core.Tx, key []any, seq int64) (newer bool, err error) {
	if _, err := tx.Exec(ctx, d.key, append(key, seq-1)...); err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, d.advanceKey, append([]any{seq}, append(key, seq)...)...)
	return n == 1, err
}

func (*mysql) batchSize() int { return batchSize }

func (*mysql) stillOpen(ctx context.Context, tx core.Tx) error { return sqlkit.StillOpen(ctx, tx) }

// insertRows adds 1 to the column copies of each row that was there. A row with 0 was inserted now.
func (d *mysql) insertRows(ctx context.Context, tx core.Tx, h *handler, events []inbox.Event,
	fresh func(inbox.Key), see seeRows,
) error {
	affected, err := tx.Exec(ctx, d.insert(len(events)), eventsArgs(h, events)...)
	if err != nil {
		return err
	}
	keys := make([]inbox.Key, len(events))
	for i := range events {
		keys[i] = events[i].Key
	}
	if affected == int64(len(events)) { // an insert counts 1, a row that was there counts 2
		for _, k := range keys {
			fresh(k)
		}
		return nil
	}
	return see(keys, func(k inbox.Key, r seenBefore) error {
		if r.copies == 0 {
			fresh(k)
		}
		return nil
	})
}

func (d *mysql) seeRows(h *handler, keys []inbox.Key) (text string, args []any) {
	return d.see(len(keys)), keysArgs(h, keys)
}
