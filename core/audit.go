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
	Action  string    // "redrive" or "discard"
	Actor   string
	Reason  string
	RowID   RowID
	EventID string
	Topic   string
	NewID   RowID // the row that redrive appended at the end of the key; zero: none
}

// ListAudit lists what people did to rows with Redrive and Discard, the newest first. To read the
// next page, set AuditQuery.Before to the last No. The error wraps errors.ErrUnsupported if the
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
