package sqlinbox

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Cleanup deletes at most limit events that the consumer processed, or a person discarded, longer
// than keep ago. It returns how many it deleted. Rows of failed and dead events stay.
func (s *Store) Cleanup(ctx context.Context, consumer string, keep time.Duration, limit int) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if err := s.prepare(ctx); err != nil {
		return 0, err
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
	return sqlstore.List(ctx, s.db, "list handlers", s.sql.handlers, []any{consumer}, sqlkit.Text)
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
	if err := s.prepare(ctx); err != nil {
		return 0, err
	}
	args := []any{consumer, sqlstore.Micros(keep), int64(limit)}
	return sqlkit.Change(ctx, s.db.InTx, "clean up keys", s.sql.cleanupKeys, args...)
}

// archived is an event with the time of its row as the database has it.
type archived struct {
	inbox.ArchivedEvent
	ended int64
}

// Archive implements inbox.Archiver. It calls fn for each handler of the consumer.
func (s *Store) Archive(ctx context.Context, consumer string, keep time.Duration, limit int,
	fn func(ctx context.Context, events []inbox.ArchivedEvent) error,
) (deleted int, err error) {
	if limit <= 0 {
		return 0, nil
	}
	if err := s.prepare(ctx); err != nil {
		return 0, err
	}
	names, err := s.handlersOf(ctx, consumer)
	if err != nil {
		return 0, err
	}
	var problems []error
	for _, name := range names {
		n, err := s.archive(ctx, s.handlers.of(consumer, name), keep, limit-deleted, fn)
		problems = append(problems, err)
		if deleted += n; deleted >= limit || ctx.Err() != nil {
			break
		}
	}
	return deleted, errors.Join(problems...)
}

func (s *Store) archive(ctx context.Context, h *handler, keep time.Duration, limit int,
	fn func(ctx context.Context, events []inbox.ArchivedEvent) error,
) (deleted int, err error) {
	a := sqlstore.Archive[archived]{
		Find: s.sql.old, Lock: s.sql.lockOld, Delete: s.sql.remove,
		Scan: func(rows core.Rows) (e archived, _ int, err error) {
			var discarded int
			e.Key.Consumer, e.Key.Handler = h.consumer, h.name
			err = rows.Scan(&e.Key.Tenant, &e.Key.EventID, &e.Source, &e.Attempts, &e.ended, &discarded, &e.Note)
			e.EndedAt, e.Discarded = time.UnixMicro(e.ended).UTC(), discarded == 1
			return e, 0, err
		},
		Key: func(e archived) []any { return append(h.key(e.Key), e.ended) },
		ID:  func(e archived) []string { return []string{e.Key.Tenant, e.Key.EventID} },
		// An event that is new again must not find the row of a discarded one.
		Also: func(ctx context.Context, q sqlkit.Querier, events []archived) error {
			for _, e := range events {
				if !e.Discarded {
					continue
				}
				if _, err := q.Exec(ctx, s.sql.forget, failureKey(e.Key)...); err != nil {
					return err
				}
			}
			return nil
		},
	}
	args := []any{h.consumer, h.name, h.id, sqlstore.Micros(keep), int64(limit)}
	return a.Run(ctx, s.db, "archive", args, func(ctx context.Context, rows []archived) error {
		events := make([]inbox.ArchivedEvent, len(rows))
		for i := range rows {
			events[i] = rows[i].ArchivedEvent
		}
		return fn(ctx, events)
	})
}
