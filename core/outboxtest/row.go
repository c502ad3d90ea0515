package outboxtest

import (
	"bytes"
	"fmt"
	"maps"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// Status is the state of a row. "Claimed" is none of them: a claim is a lease that has not ended.
type Status uint8

// The states of a row.
const (
	StatusNew Status = iota
	StatusDone
	StatusRetry
	StatusDead
	StatusDiscarded
)

// String returns the name of the state in lower case.
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

// open reports whether a row in this state is still to be published.
func (s Status) open() bool { return s == StatusNew || s == StatusRetry }

// Row is one row of the table, as Repository.Rows shows it. Times are those of the repository's
// clock, zero for none.
type Row struct {
	ID     core.RowID
	Event  core.Event
	KeyID  core.KeyID
	KeySeq int64

	Status       Status
	Attempts     int
	LostClaims   int
	suspectBegun bool // under the latest claim
	ClaimNo      int64
	ClaimedBy    string
	LeaseUntil   time.Time

	CreatedAt   time.Time
	AvailableAt time.Time
	DoneAt      time.Time

	ErrorCode string
	Error     string
	Receipt   string
}

// Audit is one row of the audit table, as Repository.Audits shows it.
type Audit struct {
	RowID  core.RowID
	Action string // redrive or discard
	Actor  string
	Reason string
	At     time.Time
}

// leased reports whether somebody holds the row. A lease further ahead than maxLease is none; 0
// accepts every lease.
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

// heldBy reports whether the claim is the row's latest, the row is open and the claim was neither
// released nor marked.
func (r *Row) heldBy(node string, claimNo int64) bool {
	return r.Status.open() && r.ClaimNo == claimNo && r.ClaimedBy == node && !r.LeaseUntil.IsZero()
}

func (r *Row) claim(req core.ClaimRequest, now time.Time) core.Claimed {
	// neither released nor marked by its holder; the caller itself is alive
	lost := !r.LeaseUntil.IsZero() && r.ClaimedBy != req.Node
	if lost && (r.LostClaims < core.Suspicious || r.suspectBegun) {
		r.LostClaims++
	}
	r.suspectBegun = false
	r.ClaimNo++
	r.ClaimedBy = req.Node
	r.LeaseUntil = now.Add(req.Lease)
	return core.Claimed{
		ID: r.ID, Event: cloneEvent(r.Event), KeyID: r.KeyID, KeySeq: r.KeySeq, ClaimNo: r.ClaimNo,
		Attempts: r.Attempts, LostClaims: r.LostClaims, Age: now.Sub(r.CreatedAt),
	}
}

// cloneEvent copies what e shares, so that neither side sees the other's changes.
func cloneEvent(e core.Event) core.Event {
	e.Headers = maps.Clone(e.Headers)
	e.Payload = bytes.Clone(e.Payload)
	if e.Payload == nil {
		e.Payload = []byte{}
	}
	return e
}
