package sqlonce

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// Cleanup deletes at most limit events that the consumer processed longer than keep ago. It returns
// how many. What failed or is parked stays.
func (i *Inbox) Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if i.s.dialect == core.MySQL {
		return i.cleanupMySQL(ctx, consumer, keep, limit)
	}
	err = i.s.single(ctx, "inbox cleanup", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, i.sql["cleanup"], consumer, micros(keep), int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}

// cleanupMySQL works as Store.cleanupMySQL does.
func (i *Inbox) cleanupMySQL(ctx context.Context, consumer string, keep time.Duration,
	limit int,
) (deleted int, err error) {
	err = i.s.inTx(ctx, "inbox cleanup", func(q sqlkit.Querier) error {
		deleted = 0
		var keys []InboxKey
		err := sqlkit.EachRow(ctx, q, i.sql["old"], []any{consumer, micros(keep), int64(limit)},
			func(rows core.Rows) error {
				k := InboxKey{Consumer: consumer}
				err := rows.Scan(&k.Handler, &k.Tenant, &k.EventID)
				keys = append(keys, k)
				return err
			})
		if err != nil {
			return err
		}
		for start := 0; start < len(keys); start += deleteChunk {
			chunk := keys[start:min(start+deleteChunk, len(keys))]
			args := make([]any, 0, 4*len(chunk))
			for _, k := range chunk {
				args = append(args, k.args()...)
			}
			text := "DELETE FROM {inbox} WHERE " + strings.Repeat("("+inboxIs+") OR ", len(chunk)-1) + "(" + inboxIs +
				")"
			n, err := q.Exec(ctx, i.s.names.statement(text), args...)
			if err != nil {
				return err
			}
			deleted += int(n)
		}
		return nil
	})
	return deleted, err
}

// CleanupKeys deletes at most limit keys of which the consumer processed the newest event longer
// than keep ago. It returns how many. It walks through all keys of the consumer, which are not
// indexed by time.
func (i *Inbox) CleanupKeys(ctx context.Context, consumer string, keep time.Duration,
	limit int,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	err = i.s.inTx(ctx, "inbox key cleanup", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, i.sql["cleanup_keys"], consumer, micros(keep), int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}
