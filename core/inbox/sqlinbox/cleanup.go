package sqlinbox

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Cleanup deletes at most limit events that the consumer processed longer than keep ago. It returns
// how many. Rows of failed and dead events stay.
func (s *Store) Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if s.db.Dialect() == core.MySQL {
		return s.cleanupMySQL(ctx, consumer, keep, limit)
	}
	err = s.db.Single(ctx, "inbox cleanup", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, s.sql["cleanup"], consumer, sqlstore.Micros(keep), int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}

// cleanupMySQL works as Store.cleanupMySQL does.
func (s *Store) cleanupMySQL(ctx context.Context, consumer string, keep time.Duration,
	limit int,
) (deleted int, err error) {
	err = s.db.InTx(ctx, "inbox cleanup", func(q sqlkit.Querier) error {
		deleted = 0
		var keys []inbox.Key
		err := sqlkit.EachRow(ctx, q, s.sql["old"], []any{consumer, sqlstore.Micros(keep), int64(limit)},
			func(rows core.Rows) error {
				k := inbox.Key{Consumer: consumer}
				err := rows.Scan(&k.Handler, &k.Tenant, &k.EventID)
				keys = append(keys, k)
				return err
			})
		if err != nil {
			return err
		}
		for start := 0; start < len(keys); start += sqlstore.DeleteChunk {
			chunk := keys[start:min(start+sqlstore.DeleteChunk, len(keys))]
			args := make([]any, 0, 4*len(chunk))
			for _, k := range chunk {
				args = append(args, keyArgs(k)...)
			}
			text := "DELETE FROM {inbox} WHERE " + strings.Repeat("("+inboxIs+") OR ", len(chunk)-1) + "(" + inboxIs +
				")"
			n, err := q.Exec(ctx, s.db.Statement(text), args...)
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
func (s *Store) CleanupKeys(ctx context.Context, consumer string, keep time.Duration,
	limit int,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	err = s.db.InTx(ctx, "inbox key cleanup", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, s.sql["cleanup_keys"], consumer, sqlstore.Micros(keep), int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}
