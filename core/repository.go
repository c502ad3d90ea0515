package core

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Repository is the outbox table. Package sqloutbox implements it for PostgreSQL, MySQL, MariaDB
// and SQLite. Package outboxtest has one in memory, and the suite that every implementation passes.
// Many goroutines call its methods at once.
//
// # Contract
//
// Every time that is written or compared is read from the database's clock; callers pass durations.
// Insert runs in the caller's transaction and never repeats a statement. Every other method is one
// short transaction of its own, and is repeated on a deadlock or a serialization failure.
//
// A claim is the pair of node and claim number. The node chooses the number, and never gives it to
// another claim of the same row. A number from the row itself would start again when a row is
// deleted and the same event is published again. A mark under a claim of the first row could then
// change the second. Rows that come with an error are not claimed: their transaction may have been
// rolled back, so the relay does not look at them. MarkFailed, BeginSuspect, Renew and Release are
// "guesses". A guess changes a row only while the claim is the latest of the row, the row is open,
// and the claim was not given back. The lease of the claim may be over. So a guess changes nothing
// when it is repeated because its answer was lost. A guess that changes nothing is normal and no
// error. MarkDone is a "fact": it changes a row from NEW, RETRY or DEAD, regardless of the claim.
//
// Facts and guesses wait at most about 100 ms for the locks of other transactions. A locked row
// stays unchanged. A *LockedError names it, and comes together with the result for the other rows.
//
// Texts for people (Failure.Code, Failure.Message, Done.Receipt) never make a call fail. A
// character that the database cannot store is replaced or left out.
//
// A row that cannot be read, because another program wrote or changed it, is claimed like any other
// row, and Claimed.Err says so.
type Repository interface {
	// Insert writes rows in the transaction and returns, for each row, its place in its key. For
	// ordered rows it locks the row of each key until the end of the transaction: once per key, in
	// ascending order of KeyIDs. A row id that exists is refused with an error wrapping
	// ErrDuplicateEvent, and none of the rows stays written. If the database leaves the transaction
	// usable, the keys are as before. If it cannot do that, the error also wraps ErrTxAborted.
	Insert(ctx context.Context, tx Tx, req InsertRequest) ([]Inserted, error)

	// ClaimUnordered leases due, free rows without a key, oldest due first within a topic. It
	// returns at most req.Limit rows and req.MaxBytes, but at least one row.
	ClaimUnordered(ctx context.Context, req ClaimRequest) ([]Claimed, error)

	// ClaimHeads scans at most req.Keys keys after the key "after". It leases the head of each key
	// if it is due and free, together with up to req.Run-1 rows that follow it directly and are due
	// and free too. A head is the first row of its key that is open or, unless req.SkipDead, dead.
	// The rows of one key come in ascending KeySeq. next is the key to go on after. A zero next
	// means that the scan reached the end.
	ClaimHeads(ctx context.Context, req ClaimRequest, after KeyID) (rows []Claimed, next KeyID, err error)

	// ClaimKey does for one key what ClaimHeads does for all.
	ClaimKey(ctx context.Context, req ClaimRequest, lane KeyID) ([]Claimed, error)

	// MarkDone records that the destination accepted the rows. It makes them DONE and clears their
	// last error, or deletes them if deleteRows is set. It returns how many rows changed. The other
	// rows were DONE already, discarded or deleted.
	MarkDone(ctx context.Context, done []Done, deleteRows bool) (changed int, err error)

	// MarkFailed records failed publishes, each fenced by its claim. It reports for each whether it
	// changed a row.
	MarkFailed(ctx context.Context, node string, failures []Failure) (changed []bool, err error)

	// BeginSuspect records, fenced as a guess, that a publish of a suspicious row begins, and that
	// no other suspicious row is being published. If wait is 0 and the claim is lost from here on,
	// it counts as lost during a publish (see Claimed.LostClaims). The record ends together with the
	// claim. If wait is positive, a lost claim does not count, and the row is not due again before
	// wait from now is over. BeginSuspect reports for each claim whether it is still held.
	BeginSuspect(ctx context.Context, node string, wait time.Duration, claims []ClaimRef) (held []bool, err error)

	// Renew extends leases to lease from now. It reports for each claim whether it is still held.
	Renew(ctx context.Context, node string, lease time.Duration, claims []ClaimRef) (held []bool, err error)

	// Release gives claims back before their lease ends: the rows are free at once. It returns how
	// many rows changed.
	Release(ctx context.Context, node string, claims []ClaimRef) (changed int, err error)

	// NextDue returns how long it takes until a row that is not claimable now becomes claimable by
	// time alone. It looks at unordered rows and at the heads of keys. ok is false if there is no
	// such row. The query is bounded: the answer may be too early, and it is too late only because
	// of rows that were not looked at. 0 means that a row is claimable now.
	NextDue(ctx context.Context, req ClaimRequest) (d time.Duration, ok bool, err error)

	// Backlog counts open and dead rows, each count up to limit.
	Backlog(ctx context.Context, limit int) (Backlog, error)

	// ListDead returns dead rows in ascending row id. A part of a row that cannot be read is left
	// out of its Event.
	ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error)

	// Redrive opens dead rows again with fresh attempts, and writes an audit row for each changed
	// row. With req.SkipDead, and for a row that has left its key, it appends a new row at the end
	// of the key instead, and discards the old one. It returns how many rows changed.
	Redrive(ctx context.Context, req AdminRequest) (changed int, err error)

	// Discard ends dead rows, and open rows without a live lease. With req.Force it also ends
	// leased rows. It writes an audit row for each changed row, and returns how many rows changed.
	Discard(ctx context.Context, req AdminRequest) (changed int, err error)

	// Cleanup deletes at most limit DONE and DISCARDED rows that ended longer than keep ago. It
	// returns how many it deleted. If that is at least half of limit, there may be more. A
	// *LockedError says that transactions are in its way: a later call does what is left.
	Cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)

	// CollectKeys looks at up to limit key rows after the key "after". It deletes those that were
	// unused for longer than idle and have no open or dead row. It checks that again in a new
	// statement once it holds their locks. A zero next means that the scan reached the end.
	CollectKeys(ctx context.Context, idle time.Duration, after KeyID, limit int) (deleted int, next KeyID, err error)

	// ResetKeys moves every key row to one reading of the clock. From then on the table alone
	// orders the next event of each key, and the memory of a process does not. Use it after a
	// failover or a restore that lost commits, before writers resume.
	ResetKeys(ctx context.Context) (changed int, err error)
}

// InsertRequest says which rows Publish writes.
type InsertRequest struct {
	// Node and ClaimNo are the claim of the hot rows. Lease is how long they are leased to it.
	Node    string
	ClaimNo int64 // greater than 0
	Lease   time.Duration
	Rows    []NewRow
}

// NewRow is one event for one destination. Its Event is validated and has its Topic, and its
// Payload is final.
type NewRow struct {
	ID    RowID
	Event Event
	KeyID KeyID // zero: unordered
	Hot   bool  // insert leased, under the claim of the request
	// ByLog: insert DONE, done now, claimed_by LogReader, with no lease and claim number 0. It is
	// never Hot. A replay of such a row inserts its copy in the same way.
	ByLog bool
}

// Inserted is the place of a new row in its key. All fields are zero for an unordered row.
type Inserted struct {
	KeySeq int64
	Prev   RowID // the previous row of the key, in any status; zero if the key row records none
	Opened bool  // this row opened the key: the key never had a row before since it was created
}

// ClaimRequest says which rows a relay wants.
type ClaimRequest struct {
	// Node and ClaimNo are the claim of all rows that the call returns. ClaimNo is greater than 0,
	// and no other claim of the node has it.
	Node    string
	ClaimNo int64
	Lease   time.Duration
	// MaxLease is the longest possible lease. A lease that ends later comes from a clock that
	// jumped, so the row is free.
	MaxLease time.Duration
	Limit    int   // rows
	MaxBytes int64 // payload bytes; at least one row is returned however large
	Run      int   // rows of one key
	Keys     int   // keys that a head scan looks at
	// AtOnce is how many keys can be published at once. If Limit has no room for a whole run of
	// each key, a claim takes shorter runs: of about AtOnce keys, and of at least 64.
	AtOnce int
	// Only has the topics. Nil: all, except those of ServedTopicPrefix that Served does not name.
	Only []string
	// Served has topics of ServedTopicPrefix that are wanted in addition when Only is nil.
	Served []string
	Except []string // topics that are stopped
	// ExceptTenants are tenants that are paused, none of them empty, at most 1000. All rows of a
	// key have one tenant.
	ExceptTenants []string
	SkipDead      bool // no dead row blocks its key, not even one that died under another policy
}

// Suspicious is the number of lost claims after which a row is suspected to end the process that
// publishes it.
const Suspicious = 3

// ServedTopicPrefix starts the topics that are served in a process and do not exist at a broker:
// those of the effects of package command. A relay takes events of such a topic only if its
// publisher names the topic. So a relay with a plain bridge leaves them to the process that
// executes them.
const ServedTopicPrefix = "effect."

// Wants reports whether the request asks for rows of the topic and the tenant. The tenant is empty
// for rows that have none.
func (r ClaimRequest) Wants(topic, tenant string) bool {
	switch {
	case slices.Contains(r.Except, topic), slices.Contains(r.ExceptTenants, tenant):
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
	// LostClaims counts the leases that expired while their holder disappeared, and that another
	// node claimed. Up to Suspicious it counts all of them. From then on it counts only those for
	// which BeginSuspect had been called without a wait.
	LostClaims int
	ReplayOf   RowID
	Age        time.Duration // since the insert, by the database's clock

	// Err says why the event cannot be published: a part of it cannot be read, and Event lacks that
	// part. Nil: it was read.
	Err error
}

// ClaimRef names a claim of a node: the row and its claim number.
type ClaimRef struct {
	ID      RowID
	ClaimNo int64
}

// Done says that the destination accepted the row.
type Done struct {
	ID      RowID
	Receipt string // empty: none
}

// FailureKind says what a failed publish does to its row.
type FailureKind uint8

// Kinds of Failure.
const (
	FailRetry       FailureKind = iota + 1 // RETRY, one attempt more
	FailDead                               // DEAD, one attempt more
	FailUnavailable                        // due later, no attempt
)

// Failure describes a failed publish of a claimed row.
type Failure struct {
	ClaimRef
	Kind  FailureKind
	Delay time.Duration // until it is due again; not for FailDead
	// SkipDead of a FailDead: the row leaves its key, so that it does not block it, whatever the
	// policy will be later.
	SkipDead bool
	Code     string // short and stable, at most 64 bytes
	Message  string // redacted, at most 2 KB of valid UTF-8
	// Group is the same for events that failed alike: a hash of code, topic, type and message, at
	// most 16 characters of ASCII. Empty: none is stored.
	Group string
}

// Backlog counts the rows of the table. Counts stop at the limit that was asked for.
type Backlog struct {
	Pending     int64         // NEW and RETRY
	Dead        int64         // DEAD
	BlockedKeys int64         // keys of the dead rows that were counted
	OldestAge   time.Duration // age of the oldest pending row, by the database's clock
	Limit       int64         // a count that equals it may be larger in reality
	// ByLog: a reader of the log publishes the events of this process, see Config.RelayedByLog. The
	// table does not know which of them are published, and the other fields do not count them.
	// Outbox.Backlog sets it.
	ByLog bool
}

// DeadQuery selects dead rows.
type DeadQuery struct {
	Topic, Type, TenantID string // empty: all
	After                 RowID  // keyset paging
	Limit                 int    // default 100, at most 1000
}

// DeadEvent is a dead row.
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

// AdminRequest names rows that a person redrives or discards.
type AdminRequest struct {
	IDs    []RowID
	Actor  string // the person; required, saved in the audit row
	Reason string // the reason; required, saved in the audit row
	Force  bool   // Discard: also a row with a live lease, which may still be published once

	// SkipDead is for the Repository. The Outbox sets it from Config.DeadPolicy, whatever it was.
	SkipDead bool
}

// TxChecker is implemented by a Repository that can tell transactions of another database. It
// returns an error wrapping ErrOtherDatabase for those, and nil where it cannot tell. Publish asks
// it before anything is written, so it should cost nothing for a transaction like those before.
type TxChecker interface {
	CheckTx(ctx context.Context, tx Tx) error
}
