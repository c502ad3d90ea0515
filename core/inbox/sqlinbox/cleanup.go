package sqlinbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Cleanup deletes at most limit events that the consumer processed, or a person discarded, longer
// than keep ago. It returns how many it deleted. Rows of failed and dead events stay.
func (s *Store) Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if err := s.cleanDiscarded(ctx, consumer, keep, limit); err != nil {
		return 0, err
	}
	names, err := s.handlersOf(ctx, consumer)
	for _, name := range names {
		id := s.handlers.of(consumer, name).id
		n, err := s.sql.cleanup.Run(ctx, s.db, "clean up", []any{id}, id, sqlstore.Micros(keep), int64(limit-deleted))
		deleted += n
		if err != nil || deleted >= limit {
			return deleted, err
		}
	}
	return deleted, err
}

// handlersOf returns the names of the handlers of a consumer.
func (s *Store) handlersOf(ctx context.Context, consumer string) (names []string, err error) {
	err = s.db.Single(ctx, "list handlers", func(q sqlkit.Querier) error {
		names = nil
		return sqlkit.EachRow(ctx, q, s.sql.handlers, []any{consumer}, func(rows core.Rows) error {
			var name string
			err := rows.Scan(&name)
			names = append(names, name)
			return err
		})
	})
	return names, err
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
