package core

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Repository is the outbox table. Package sqloutbox implements it for PostgreSQL, MySQL/MariaDB and
// SQLite; package outboxtest has one in memory and the suite that every implementation passes. Its
// methods are called by many goroutines at once.
//
// Contract. Every instant that is persisted or compared is read from the database's clock; callers
// pass durations. Except for Insert, which runs in the caller's transaction and never repeats a
// statement, each method is one short transaction of its own that is repeated on a deadlock or a
// serialization failure. A claim is the pair of node and claim number: a "guess" (MarkFailed,
// BeginSuspect, Renew, Release) changes a row only while that claim is its latest, the row is open
// and the claim was not given back (its lease may have run out), so that a guess that is repeated
// because its answer was lost changes nothing; a "fact" (MarkDone) changes a row from NEW, RETRY or
// DEAD whoever reports it. A guess that changes nothing is normal and no error.
//
// Facts and guesses do not wait for the locks of other transactions (not for longer than some 100
// ms): what is locked is left as it is and named by a *LockedError, which comes together with the
// result for the other rows. And a text for people (Failure.Code and Message, Done.Receipt) never
// makes them fail: what the database cannot store of it is replaced or left out. A row that cannot
// be read, because another program wrote or changed it, is claimed like any other and says so in
// Claimed.Err.
type Repository interface {
	// Insert writes rows in the transaction and returns, for each, its place in its lane. For
	// ordered rows it locks the key row of each lane until the end of the transaction, lanes in
	// ascending order, once per lane. A row id that exists is refused with an error wrapping
	// ErrDuplicateEvent, and none of the rows stays written (where the database leaves the
	// transaction usable, the lanes are as before; if that cannot be had, the error also wraps
	// ErrTxAborted).
	Insert(ctx context.Context, tx Tx, req InsertRequest) ([]Inserted, error)

	// ClaimUnordered leases due, free rows without a lane, at most req.Limit and req.MaxBytes (but
	// at least one), oldest due first within a topic.
	ClaimUnordered(ctx context.Context, req ClaimRequest) ([]Claimed, error)

	// ClaimHeads scans lanes after the lane "after", at most req.Keys of them, and leases the due
	// and free head of each together with up to req.Run-1 rows that follow it directly and are due
	// and free too. A head is the first row of its lane that is open or, unless req.SkipDead, dead.
	// The rows of one lane come in ascending KeySeq. next is the lane to resume after; a zero next
	// means that the scan reached the end.
	ClaimHeads(ctx context.Context, req ClaimRequest, after KeyID) (rows []Claimed, next KeyID, err error)

	// ClaimKey does for one lane what ClaimHeads does for all.
	ClaimKey(ctx context.Context, req ClaimRequest, lane KeyID) ([]Claimed, error)

	// MarkDone records that the destination accepted the rows: DONE with its last error cleared, or
	// deleted when deleteRows. It returns how many changed; the others were DONE already, discarded
	// or gone.
	MarkDone(ctx context.Context, done []Done, deleteRows bool) (changed int, err error)

	// MarkFailed records what became of claims whose publish failed, each fenced. It reports for
	// each whether it changed a row.
	MarkFailed(ctx context.Context, node string, failures []Failure) (changed []bool, err error)

	// BeginSuspect writes down, fenced as a guess, that a publish of the claimed row begins with
	// nothing of its like beside it: if the claim is lost from here on, it counts as lost while it
	// was published (see Claimed.LostClaims). That ends with the claim, however it ends. It reports
	// for each claim whether it is still held.
	BeginSuspect(ctx context.Context, node string, claims []ClaimRef) (held []bool, err error)

	// Renew extends leases to lease from now. It reports for each claim whether it is still held.
	Renew(ctx context.Context, node string, lease time.Duration, claims []ClaimRef) (held []bool, err error)

	// Release gives claims back before their lease ends: the rows are free at once. It returns how
	// many changed.
	Release(ctx context.Context, node string, claims []ClaimRef) (changed int, err error)

	// NextDue returns how long it takes until a row that is not claimable now becomes so by the
	// clock alone, looking at unordered rows and heads of lanes; ok is false when there is none. It
	// is a bounded query: the answer may be early, never late by more than the rows it did not look
	// at. 0 means that something is claimable now.
	NextDue(ctx context.Context, req ClaimRequest) (d time.Duration, ok bool, err error)

	// Backlog counts what is open and dead, each count up to limit.
	Backlog(ctx context.Context, limit int) (Backlog, error)

	// ListDead returns dead rows in ascending row id. What cannot be read of a row is left out of
	// its Event.
	ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error)

	// Redrive opens dead rows again with fresh attempts and writes an audit row for each changed
	// row. With req.SkipDead it appends a new row at the end of the lane instead and discards the
	// old one. It returns how many changed.
	Redrive(ctx context.Context, req AdminRequest) (changed int, err error)

	// Discard ends dead rows, and open rows without a live lease (with req.Force also leased ones),
	// and writes an audit row for each changed row. It returns how many changed.
	Discard(ctx context.Context, req AdminRequest) (changed int, err error)

	// Cleanup deletes at most limit DONE and DISCARDED rows that ended longer than keep ago. It
	// returns how many it deleted.
	Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)

	// CollectKeys looks at up to limit key rows after the lane "after" and deletes those unused for
	// longer than idle and without an open or dead row, re-checked in a new statement once it holds
	// their locks. A zero next means that the end was reached.
	CollectKeys(ctx context.Context, idle time.Duration, after KeyID, limit int) (deleted int, next KeyID, err error)

	// ResetKeys moves every key row to one reading of the clock, so that the next event of each key
	// is ordered by the table and not by anybody's memory. For use after a failover or a restore
	// that lost commits, before writers resume.
	ResetKeys(ctx context.Context) (changed int, err error)
}

// InsertRequest is what Publish asks a Repository to write.
type InsertRequest struct {
	// Node is the claimed_by of hot rows, Lease how long they are leased to it.
	Node  string
	Lease time.Duration
	Rows  []NewRow
}

// NewRow is one event for one destination. Its Event is validated, has its Topic, and its Payload
// is final.
type NewRow struct {
	ID    RowID
	Event Event
	KeyID KeyID // zero: unordered
	Hot   bool  // insert leased: claim number 1
}

// Inserted is the place a new row got in its lane. All fields are zero for an unordered row.
type Inserted struct {
	KeySeq int64
	Prev   RowID // the row before it in the lane, whatever became of it; zero when the key row did not know
	Opened bool  // this row opened the key: nothing of the lane is or ever was before it in this life of the key
}

// ClaimRequest says which rows a relay wants.
type ClaimRequest struct {
	Node     string
	Lease    time.Duration
	MaxLease time.Duration // a lease further ahead than this is taken for a clock that jumped: the row is free
	Limit    int           // rows
	MaxBytes int64         // payload bytes; at least one row is returned however large
	Run      int           // rows of one lane
	Keys     int           // lanes a head scan looks at
	Only     []string      // topics; nil: all but those of ServedTopicPrefix that Served does not name
	Served   []string      // topics of ServedTopicPrefix that are wanted beside the others when Only is nil
	Except   []string      // topics that are stopped
	SkipDead bool          // a dead row does not block its lane
}

// Suspicious is how many lost claims make a row one that may end the process that publishes it.
const Suspicious = 3

// ServedTopicPrefix starts the topics that are served in a process and mean nothing to a broker:
// those of the effects of package command. A relay takes events of such a topic only when its
// publisher names it: a relay with a plain bridge leaves them to the process that executes them.
const ServedTopicPrefix = "effect."

// Wants reports whether the request asks for rows of the topic.
func (r ClaimRequest) Wants(topic string) bool {
	switch {
	case slices.Contains(r.Except, topic):
		return false
	case r.Only != nil:
		return slices.Contains(r.Only, topic)
	}
	return !strings.HasPrefix(topic, ServedTopicPrefix) || slices.Contains(r.Served, topic)
}

// Claimed is a row that was leased to the caller.
type Claimed struct {
	ID       RowID
	Event    Event
	KeyID    KeyID
	KeySeq   int64
	ClaimNo  int64
	Attempts int // refusals so far
	// LostClaims counts the leases that ran out without a word from their holder and were claimed
	// by another node: up to Suspicious all of them, from then on only those for which BeginSuspect
	// had been called.
	LostClaims int
	ReplayOf   RowID
	Age        time.Duration // since the insert, by the database's clock

	// Err says why the event cannot be published: a part of it cannot be read. Event is without
	// that part. Nil: it was read.
	Err error
}

// ClaimRef names a claim: the fencing number of a row for a node.
type ClaimRef struct {
	ID      RowID
	ClaimNo int64
}

// Done is a fact: the destination accepted the row.
type Done struct {
	ID      RowID
	Receipt string // empty: none
}

// FailureKind is what becomes of a claim whose publish failed.
type FailureKind uint8

// Kinds of Failure.
const (
	FailRetry       FailureKind = iota + 1 // RETRY, one attempt more
	FailDead                               // DEAD, one attempt more
	FailUnavailable                        // due later, no attempt
)

// Failure is a guess: how the holder of a claim failed to publish it.
type Failure struct {
	ClaimRef
	Kind    FailureKind
	Delay   time.Duration // until it is due again; not for FailDead
	Code    string        // short and stable, at most 64 bytes
	Message string        // redacted, at most 2 KB of valid UTF-8
}

// Backlog says how the table stands. Counts stop at the limit that was asked for.
type Backlog struct {
	Pending     int64         // NEW and RETRY
	Dead        int64         // DEAD
	BlockedKeys int64         // lanes that have a DEAD row
	OldestAge   time.Duration // age of the oldest pending row, by the database's clock
	Limit       int64         // a count that equals it may be larger in truth
}

// DeadQuery selects dead rows.
type DeadQuery struct {
	Topic, Type, TenantID string // empty: all
	After                 RowID  // keyset paging
	Limit                 int    // default 100, at most 1000
}

// DeadEvent is a row that was given up.
type DeadEvent struct {
	ID         RowID
	Event      Event
	KeySeq     int64
	Attempts   int
	LostClaims int
	ErrorCode  string
	Error      string
	CreatedAt  time.Time
}

// AdminRequest names rows a person acts on.
type AdminRequest struct {
	IDs    []RowID
	Actor  string // who; required, stored in the audit row
	Reason string // why; required, stored in the audit row
	Force  bool   // Discard: also a row with a live lease, which may still be published once

	// SkipDead is filled in from Config.DeadPolicy.
	SkipDead bool
}
