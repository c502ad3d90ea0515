package sqlinbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Cleanup deletes at most limit events that the consumer processed longer than keep ago. It returns
// how many it deleted. Rows of failed and dead events stay.
func (s *Store) Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	return s.sql.cleanup.Run(ctx, s.db, "clean up", []any{consumer}, consumer, sqlstore.Micros(keep), int64(limit))
}

// CleanupKeys deletes at most limit keys whose newest event the consumer processed longer than keep
// ago. It returns how many it deleted. It reads all keys of the consumer, because they have no
// index by time.
func (s *Store) CleanupKeys(ctx context.Context, consumer string, keep time.Duration,
	limit int,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	err = s.db.InTx(ctx, "clean up keys", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, s.sql.cleanupKeys, consumer, sqlstore.Micros(keep), int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}
