package sqlonce

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// InboxFailure says how a handler failed.
type InboxFailure struct {
	Event InboxEvent
	Code  string // short and stable, at most 64 bytes
	Text  string // without credentials, at most 2 KiB of it are kept
	// Free spends no attempt.
	Free bool
	// Park parks the event at once. Else it is parked when it has failed MaxAttempts times (0 is no
	// limit), the first time, also for free, at least MinAge ago.
	Park        bool
	MaxAttempts int
	MinAge      time.Duration
}

// Fail records a failure, after the transaction of the handler was rolled back: it counts the
// attempt and writes FAILED or PARKED, unless the event has been processed meanwhile, by another
// copy. It returns what the row says then: InboxProcessed, InboxParked, or 0 for FAILED.
func (i *Inbox) Fail(ctx context.Context, f InboxFailure) (state InboxState, attempts int, err error) {
	if err := f.Event.Validate(); err != nil {
		return 0, 0, err
	}
	key := f.Event.InboxKey.args()
	err = i.s.inTx(ctx, "inbox failure", func(q sqlkit.Querier) error {
		if _, err := q.Exec(ctx, i.sql["open"], f.Event.args()...); err != nil {
			return err
		}
		var r inboxRow
		var opened int64
		found, err := sqlkit.FirstRow(ctx, q, i.sql["see_failed"], key, &r.status, &r.attempts, &opened)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: %w", core.ErrTxAborted, errVanished)
		}
		state, attempts = 0, r.attempts
		if r.status == inboxProcessed {
			state = InboxProcessed
			return nil
		}
		if !f.Free {
			attempts++
		}
		to := inboxFailed
		if f.Park || r.status == inboxParked ||
			!f.Free && f.MaxAttempts > 0 && attempts >= f.MaxAttempts &&
				time.Duration(-opened)*time.Microsecond >= f.MinAge {
			to, state = inboxParked, InboxParked
		}
		_, err = q.Exec(ctx, i.sql["fail"], append([]any{
			to, attempts, column(f.Code, 64),
			orNil(errtext.Redact(f.Text)),
		}, key...)...)
		return err
	})
	return state, attempts, err
}

// InboxParkedEvent is an event that waits for a person.
type InboxParkedEvent struct {
	InboxEvent
	Attempts   int
	Code, Text string    // of the last failure
	ReceivedAt time.Time // when it failed first, or was released
	FailedAt   time.Time
}

// InboxQuery selects parked events.
type InboxQuery struct {
	Consumer string            // required
	Handler  string            // empty: all
	EventID  string            // empty: all; else only this event of Tenant
	Tenant   string            // looked at with EventID
	Limit    int               // default 100, at most 1000
	After    *InboxParkedEvent // the last one of the page before
}

// ListParked returns parked events, those first that were received first.
func (i *Inbox) ListParked(ctx context.Context, q InboxQuery) (list []InboxParkedEvent, err error) {
	if q.Consumer == "" {
		return nil, fmt.Errorf("%w: consumer is empty", core.ErrInvalidRequest)
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	text, args := i.sql["parked"], []any{q.Consumer}
	if q.Handler != "" {
		text += i.s.names.expand(" AND handler = ?")
		args = append(args, q.Handler)
	}
	if q.EventID != "" {
		text += i.s.names.expand(" AND tenant_id = ? AND event_id = ?")
		args = append(args, q.Tenant, q.EventID)
	}
	if a := q.After; a != nil {
		text += i.s.names.expand(" AND ({us:received_at}, handler, tenant_id, event_id) > (?, ?, ?, ?)")
		args = append(args, a.ReceivedAt.UnixMicro(), a.Handler, a.Tenant, a.EventID)
	}
	text = i.s.names.statement(text + " ORDER BY received_at, handler, tenant_id, event_id LIMIT ?")
	args = append(args, min(limit, 1000))
	err = i.s.single(ctx, "inbox list", func(qr sqlkit.Querier) error {
		list = nil
		return sqlkit.EachRow(ctx, qr, text, args, func(rows core.Rows) error {
			var e InboxParkedEvent
			var received, failed int64
			err := rows.Scan(&e.Consumer, &e.Handler, &e.Tenant, &e.EventID, &e.Type, &e.Version, &e.AggregateType,
				&e.AggregateID, &e.PartitionKey,
				&e.KeySeq, &e.Topic, &e.Partition, &e.Offset, &e.Located, &e.Attempts, &e.Code, &e.Text, &received,
				&failed)
			e.ReceivedAt, e.FailedAt = time.UnixMicro(received).UTC(), time.UnixMicro(failed).UTC()
			list = append(list, e)
			return err
		})
	})
	return list, err
}

// Release lets parked events be processed again when they are delivered again, with fresh attempts.
// Who did so and why stays in the row until then. It returns how many changed: the others are not
// parked.
func (i *Inbox) Release(ctx context.Context, keys []InboxKey, actor, reason string) (changed int, err error) {
	if len(keys) == 0 || strings.TrimSpace(actor) == "" || strings.TrimSpace(reason) == "" {
		return 0, fmt.Errorf("%w: keys, actor and reason are required", core.ErrInvalidRequest)
	}
	for _, k := range keys {
		if err := k.Validate(); err != nil {
			return 0, err
		}
	}
	err = i.s.inTx(ctx, "inbox release", func(q sqlkit.Querier) error {
		changed = 0
		for _, k := range keys {
			n, err := q.Exec(ctx, i.sql["release"], append([]any{column(actor+": "+reason, 2048)}, k.args()...)...)
			if err != nil {
				return err
			}
			changed += int(n)
		}
		return nil
	})
	return changed, err
}
