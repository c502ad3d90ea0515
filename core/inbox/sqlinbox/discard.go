package sqlinbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Discard ends dead events: from then on they are inbox.StateProcessed, and Redrive does not change
// them. It returns how many events changed; the others were not dead.
//
// The row of a discarded event in {seen} is that of a processed one. So every version of this
// package acknowledges its copies and deletes it in time. Its row in {failure} has the status 0,
// the code "discarded" and the actor with the reason. No processed event has a row there.
func (s *Store) Discard(ctx context.Context, keys []inbox.Key, actor, reason string) (changed int, err error) {
	if err := checkRequest(keys, actor, reason); err != nil {
		return 0, err
	}
	err = s.db.InTx(ctx, "discard", func(q sqlkit.Querier) error {
		changed = 0
		for _, k := range ascending(keys) {
			done, err := s.discard(ctx, q, k, noteOf(actor, reason))
			if err != nil {
				return err
			}
			if done {
				changed++
			}
		}
		return nil
	})
	return changed, err
}

// discard ends one event. Like Begin and Fail it locks the row in {seen} first.
func (s *Store) discard(ctx context.Context, q sqlkit.Querier, k inbox.Key, note any) (done bool, err error) {
	h := s.handlers.of(k.Consumer, k.Handler)
	var processed, attempts int
	found, err := sqlkit.FirstRow(ctx, q, s.sql.see, h.key(k), &processed, &attempts)
	if err != nil || !found || processed == 1 {
		return false, err
	}
	var f failure
	if _, err := f.read(ctx, q, s.sql.seeFailure, k); err != nil || f.status != statusDead {
		return false, err
	}
	if _, err := q.Exec(ctx, s.sql.discard, append([]any{note}, failureKey(k)...)...); err != nil {
		return false, err
	}
	_, err = q.Exec(ctx, s.sql.take, append([]any{f.attempts}, h.key(k)...)...)
	return err == nil, err
}

// cleanDiscarded deletes at most limit rows in {failure} of events that a person discarded longer
// than keep ago. Cleanup does this before it deletes the rows of these events in {seen}, so that no
// event that is new again finds the row of a discarded one.
func (s *Store) cleanDiscarded(ctx context.Context, consumer string, keep time.Duration, limit int) error {
	_, err := s.sql.cleanupDiscarded.Run(ctx, s.db, "clean up discarded events", []any{consumer}, consumer,
		sqlstore.Micros(keep), int64(limit))
	return err
}
