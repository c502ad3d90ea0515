package core

import (
	"context"
	"errors"
	"time"
)

// AuditLister is implemented by a Repository that can list its audit rows.
type AuditLister interface {
	// ListAudit returns the audit rows that q selects, the newest first. q.Limit is between 1 and
	// 1000.
	ListAudit(ctx context.Context, q AuditQuery) ([]AuditRecord, error)
}

// AuditCounter is implemented by a Repository that can count its audit rows.
type AuditCounter interface {
	// CountAudit counts the audit rows whose No is above after, and at most upTo, by their action.
	CountAudit(ctx context.Context, after, upTo int64) (map[string]int64, error)
}

// KeyResetter is implemented by a Repository that can record who reset its keys.
type KeyResetter interface {
	// ResetKeysBy does what Repository.ResetKeys does, and writes an audit row with the action
	// AuditResetKeys in the same transaction.
	ResetKeysBy(ctx context.Context, actor, reason string) (changed int, err error)
}

// AuditResetKeys is the action of the audit row that ResetKeysBy writes. The row names no event.
const AuditResetKeys = "reset-keys"

// AuditQuery selects audit rows.
type AuditQuery struct {
	RowID  RowID // of one row; zero: all
	Before int64 // keyset paging: the last No of the page before; 0: from the newest
	Limit  int   // default 100, at most 1000
}

// AuditRecord says what a person did to a row. It is written in the transaction of the change.
type AuditRecord struct {
	No      int64     // ascending
	At      time.Time // by the database's clock
	Action  string    // such as "redrive", "discard", "replay" or AuditResetKeys
	Actor   string
	Reason  string
	RowID   RowID
	EventID string
	Topic   string
	NewID   RowID // the row that redrive appended to the key, or that replays RowID; zero: none
}

// ListAudit lists what people did with Redrive, Discard and ResetKeysBy, the newest first. To read
// the next page, set AuditQuery.Before to the last No. The error wraps errors.ErrUnsupported if the
// Repository is no AuditLister.
func (o *Outbox) ListAudit(ctx context.Context, q AuditQuery) ([]AuditRecord, error) {
	l, ok := o.cfg.Repository.(AuditLister)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	if q.Limit <= 0 {
		q.Limit = 100
	}
	q.Limit = min(q.Limit, 1000)
	return l.ListAudit(ctx, q)
}

// CountAudit counts the audit rows whose No is above after, and at most upTo, by their action. It
// reads each of them, so it is for the rows since the last look, as the metrics need them. The
// error wraps errors.ErrUnsupported if the Repository is no AuditCounter.
func (o *Outbox) CountAudit(ctx context.Context, after, upTo int64) (map[string]int64, error) {
	c, ok := o.cfg.Repository.(AuditCounter)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return c.CountAudit(ctx, after, upTo)
}
