package ops

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/who"
)

// Actions of the audit rows about messages of consumers and effects: one row for each of them that a
// call names, written before the change. The row has the id of the event, or of the effect.
const (
	AuditRedriveMessage = "redrive-message"
	AuditDiscardMessage = "discard-message"
	AuditRedriveEffect  = "redrive-effect"
	AuditDiscardEffect  = "discard-effect"
)

// record writes audit rows about changes beside the outbox. Without tables of an outbox, actor and
// reason are only in the changed rows.
func (a *API) record(ctx context.Context, records []core.AuditRecord) error {
	for i := range records {
		if problem := who.Problem(records[i].Actor, records[i].Reason); problem != "" {
			return invalid(problem)
		}
	}
	err := a.store.RecordAudit(ctx, "", records...)
	if errors.Is(err, core.ErrNoTables) {
		return nil
	}
	return err
}

// AuditQuery selects audit rows. RowID is found by an index. The other fields are compared row by
// row, the newest first.
type AuditQuery struct {
	RowID  core.RowID // of one row; zero: all
	Action string     // such as "redrive", "discard" or core.AuditPause; empty: all
	Actor  string     // empty: all
	Topic  string     // empty: all
	Since  time.Time  // zero: all
	Before int64      // AuditPage.Next of the page before; 0: from the newest
	Limit  int        // default DefaultLimit, at most MaxLimit
}

func (q *AuditQuery) match(r *core.AuditRecord) bool {
	is := func(want, is string) bool { return want == "" || want == is }
	return is(q.Action, r.Action) && is(q.Actor, r.Actor) && is(q.Topic, r.Topic)
}

// AuditPage is a part of the audit, the newest entries first.
type AuditPage struct {
	Records []core.AuditRecord `json:"records"`
	// Next is AuditQuery.Before of the next page, which may be empty. 0: this is the last page.
	Next int64 `json:"next,omitempty"`
}

// Audit lists manual actions: who, when, why, and on which row. It looks at MaxLook rows and a page
// more at most, so a page may be short.
func (a *API) Audit(ctx context.Context, q AuditQuery) (page AuditPage, err error) {
	if q.Before < 0 {
		return page, invalid("{AuditQuery.Before} %d is negative", q.Before)
	}
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	page.Records = []core.AuditRecord{}
	from := core.AuditQuery{RowID: q.RowID, Before: q.Before, Limit: MaxLimit}
	for looked := 0; looked < MaxLook; {
		records, err := a.outbox.ListAudit(ctx, from)
		if err != nil {
			return page, err
		}
		for _, r := range records {
			if r.At.Before(q.Since) {
				return page, nil
			}
			if len(page.Records) == q.Limit {
				page.Next = from.Before
				return page, nil
			}
			if from.Before = r.No; q.match(&r) {
				page.Records = append(page.Records, r)
			}
		}
		if len(records) < from.Limit {
			return page, nil
		}
		looked += len(records)
	}
	page.Next = from.Before
	return page, nil
}
