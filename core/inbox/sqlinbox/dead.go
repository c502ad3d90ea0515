package sqlinbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
)

// Fail records a failure, after the transaction of the handler was rolled back. It counts the
// attempt and writes FAILED or DEAD, unless another copy has processed the event meanwhile. It
// returns the new state of the row: inbox.StateProcessed, inbox.StateDead, or 0 for FAILED.
func (s *Store) Fail(ctx context.Context, f inbox.Failure) (state inbox.State, attempts int, err error) {
	if err := f.Event.Validate(); err != nil {
		return 0, 0, err
	}
	if err := s.prepare(ctx); err != nil {
		return 0, 0, err
	}
	h := s.handlers.of(f.Event.Consumer, f.Event.Handler)
	err = s.db.InTx(ctx, "record a failure", func(q sqlkit.Querier) error {
		state, attempts, err = s.recordFailure(ctx, q, h, f)
		return err
	})
	return state, attempts, err
}

// recordFailure is the work of Fail in its transaction.
func (s *Store) recordFailure(ctx context.Context, q sqlkit.Querier, h *handler, f inbox.Failure) (
	state inbox.State, attempts int, err error,
) {
	if _, err := q.Exec(ctx, s.sql.open, seenArgs(h, f.Event)...); err != nil {
		return 0, 0, err
	}
	var processed int
	found, err := sqlkit.FirstRow(ctx, q, s.sql.see, h.key(f.Event.Key), &processed, &attempts)
	switch {
	case err != nil:
		return 0, 0, err
	case !found:
		return 0, 0, fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
	case processed == 1:
		return inbox.StateProcessed, attempts, nil
	}
	if _, err := q.Exec(ctx, s.sql.openFailure, failureArgs(f.Event)...); err != nil {
		return 0, 0, err
	}
	var before failure
	found, err = before.read(ctx, q, s.sql.firstFailure, f.Event.Key)
	if err == nil && !found {
		err = fmt.Errorf("%w: %w", core.ErrTxAborted, sqlstore.ErrVanished)
	}
	if err != nil {
		return 0, 0, err
	}
	attempts = before.attempts
	if !f.Free {
		attempts++
	}
	to := statusFailed
	if f.Dead || before.status == statusDead ||
		!f.Free && f.MaxAttempts > 0 && attempts >= f.MaxAttempts && before.age() >= f.MinAge {
		to, state = statusDead, inbox.StateDead
	}
	_, err = q.Exec(ctx, s.sql.fail, append([]any{
		to, attempts, sqlstore.Column(f.Code, 64),
		sqlstore.OrNil(errtext.Redact(f.Text)),
	}, failureKey(f.Event.Key)...)...)
	return state, attempts, err
}

// ListDead returns dead events. The events that were received first come first.
func (s *Store) ListDead(ctx context.Context, q inbox.DeadQuery) (list []inbox.DeadEvent, err error) {
	if q.Consumer == "" {
		return nil, fmt.Errorf("%w: DeadQuery.Consumer is empty", inbox.ErrInvalidRequest)
	}
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	text, args := s.sql.dead, []any{q.Consumer}
	if q.Handler != "" {
		text += s.db.Expand(" AND handler = ?")
		args = append(args, q.Handler)
	}
	if q.EventID != "" {
		text += s.db.Expand(" AND tenant_id = ? AND event_id = ?")
		args = append(args, q.Tenant, q.EventID)
	}
	if a := q.After; a != nil {
		text += s.db.Expand(" AND ({us:received_at}, handler, tenant_id, event_id) > (?, ?, ?, ?)")
		args = append(args, a.ReceivedAt.UnixMicro(), a.Handler, a.Tenant, a.EventID)
	}
	text = s.db.Statement(text + " ORDER BY received_at, handler, tenant_id, event_id LIMIT ?")
	args = append(args, min(limit, 1000))
	return sqlstore.List(ctx, s.db, "list dead events", text, args,
		func(rows core.Rows) (inbox.DeadEvent, error) { return scanFailure(rows) })
}

// Redrive lets dead events be processed again, with fresh attempts, when they are delivered again.
// The row keeps the actor and the reason until then. It returns how many events changed; the others
// were not dead.
func (s *Store) Redrive(ctx context.Context, keys []inbox.Key, actor, reason string) (changed int, err error) {
	if err := checkRequest(keys, actor, reason); err != nil {
		return 0, err
	}
	if err := s.prepare(ctx); err != nil {
		return 0, err
	}
	err = s.db.InTx(ctx, "redrive", func(q sqlkit.Querier) error {
		changed = 0
		for _, k := range ascending(keys) {
			n, err := q.Exec(ctx, s.sql.redrive, append([]any{noteOf(actor, reason)}, failureKey(k)...)...)
			if err != nil {
				return err
			}
			changed += int(n)
		}
		return nil
	})
	return changed, err
}

func checkRequest(keys []inbox.Key, actor, reason string) error {
	if len(keys) == 0 || strings.TrimSpace(actor) == "" || strings.TrimSpace(reason) == "" {
		return fmt.Errorf("%w: keys, actor and reason are required", inbox.ErrInvalidRequest)
	}
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("%w: %w", inbox.ErrInvalidRequest, err)
		}
	}
	return nil
}

// ascending returns the keys in the order in which requests lock their rows, so that two requests
// wait for each other and do not deadlock.
func ascending(keys []inbox.Key) []inbox.Key {
	return slices.SortedFunc(slices.Values(keys), func(a, b inbox.Key) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Handler, b.Handler),
			cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.EventID, b.EventID))
	})
}

// noteOf is what a row keeps of a person's request.
func noteOf(actor, reason string) any { return sqlstore.Column(actor+": "+reason, 2048) }

// Discard ends dead events: from then on they are inbox.StateProcessed, and Redrive does not change
// them. It returns how many events changed; the others were not dead.
//
// The row of a discarded event in {seen} looks like a processed event's, so every version of this
// package acknowledges its copies and deletes it in time. Its row in {failure} has the status 0,
// the code "discarded" and the actor with the reason. No processed event has a row there.
func (s *Store) Discard(ctx context.Context, keys []inbox.Key, actor, reason string) (changed int, err error) {
	if err := checkRequest(keys, actor, reason); err != nil {
		return 0, err
	}
	if err := s.prepare(ctx); err != nil {
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
