package outboxtest

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Status is the status of a row. A claimed row has no status of its own: its lease has not ended.
type Status uint8

// The statuses of a row.
const (
	StatusNew Status = iota
	StatusDone
	StatusRetry
	StatusDead
	StatusDiscarded
)

// String returns the name of the status in lower case.
func (s Status) String() string {
	switch s {
	case StatusNew:
		return "new"
	case StatusDone:
		return "done"
	case StatusRetry:
		return "retry"
	case StatusDead:
		return "dead"
	case StatusDiscarded:
		return "discarded"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// open reports whether a row with this status is still to be published.
func (s Status) open() bool { return s == StatusNew || s == StatusRetry }

// Row is one row of the table, as Repository.Rows returns it. Times are by the repository's clock,
// or zero.
type Row struct {
	ID     core.RowID
	Event  core.Event
	KeyID  core.KeyID
	KeySeq int64

	Status       Status
	Attempts     int
	LostClaims   int
	suspectBegun bool // a publish that counts was begun under the latest claim
	leftKey      bool // where dead rows are skipped: its key goes on without it
	ClaimNo      int64
	ClaimedBy    string
	LeaseUntil   time.Time

	CreatedAt   time.Time
	AvailableAt time.Time
	DoneAt      time.Time

	ErrorCode  string
	Error      string
	ErrorGroup string // core.Failure.Group of the last failure
	Receipt    string
	failures   string // lines of outboxsql.AttemptLine, as the column of a database has them

	ReplayOf core.RowID // the row that this row replays; zero: none
}

// Audit is one row of the audit table, as Repository.Audits returns it.
type Audit struct {
	RowID   core.RowID // zero: the row names no event
	Action  string     // such as "redrive", "discard", core.AuditPause or core.AuditResetKeys
	Actor   string
	Reason  string
	At      time.Time
	EventID string
	Topic   string

	newID  core.RowID // the row that took the place of this one, or that replays it
	detail string     // ops.AuditEntry.Detail
}

// leased reports whether a process holds the row. A lease that ends later than maxLease from now
// does not count. A maxLease of 0 accepts every lease.
func (r *Row) leased(now time.Time, maxLease time.Duration) bool {
	if r.LeaseUntil.IsZero() || !r.LeaseUntil.After(now) {
		return false
	}
	return maxLease <= 0 || !r.LeaseUntil.After(now.Add(maxLease))
}

// claimable reports whether a claim may take the row.
func (r *Row) claimable(now time.Time, maxLease time.Duration) bool {
	return r.Status.open() && !r.AvailableAt.After(now) && !r.leased(now, maxLease)
}

// heldBy reports whether the claim is the row's latest, the row is open, and the claim was neither
// released nor marked.
func (r *Row) heldBy(node string, claimNo int64) bool {
	return r.Status.open() && r.ClaimNo == claimNo && r.ClaimedBy == node && !r.LeaseUntil.IsZero()
}

// byLog makes a new row into a row that a reader of the log publishes.
func (r *Row) byLog(now time.Time) { r.Status, r.ClaimedBy, r.DoneAt = StatusDone, core.LogReader, now }

func (r *Row) claim(req core.ClaimRequest, now time.Time) core.Claimed {
	// A claim is lost if its holder neither released nor marked it. A claim of the caller is not
	// lost, because the caller is alive.
	lost := !r.LeaseUntil.IsZero() && r.ClaimedBy != req.Node
	if lost && (r.LostClaims < core.Suspicious || r.suspectBegun) {
		r.LostClaims++
	}
	r.suspectBegun = false
	r.ClaimedBy, r.ClaimNo = req.Node, req.ClaimNo
	r.LeaseUntil = now.Add(req.Lease)
	return core.Claimed{
		ID: r.ID, Event: cloneEvent(r.Event), KeyID: r.KeyID, KeySeq: r.KeySeq, ClaimNo: r.ClaimNo,
		Attempts: r.Attempts, LostClaims: r.LostClaims, Age: now.Sub(r.CreatedAt), ReplayOf: r.ReplayOf,
	}
}

// cloneEvent copies the shared parts of e, so that neither side sees the other's changes.
func cloneEvent(e core.Event) core.Event {
	e.Headers = maps.Clone(e.Headers)
	e.Payload = bytes.Clone(e.Payload)
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	return e
}
