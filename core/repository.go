package core

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Repository is the outbox table. Package sqloutbox implements it for PostgreSQL, MySQL, MariaDB
// and SQLite. Package outboxtest has one in memory, and the suite that every implementation passes.
// Many goroutines call its methods at once. A Repository may also be an InsertDeferrer, a Waker
// and a Historian.
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
// row, with Claimed.Err set.
//
// If a table is missing, the errors of all methods wrap ErrNoTables.
type Repository interface {
	Writer
	Claimer
	Operations
	Registry

	// Check returns an error wrapping ErrNoTables when the statements of the Repository cannot
	// work, and one wrapping ErrTablesDiffer when the tables differ but the statements work. Any
	// other error means that the database cannot be asked. Run calls it before the relay starts.
	Check(ctx context.Context) error

	// Warnings returns dangers of the database that stop no relay. Run logs them when the relay
	// starts.
	Warnings(ctx context.Context) ([]Warning, error)

	// Classify classifies an error of this database, whether it comes from a method of the
	// Repository or from another statement. It does no I/O.
	Classify(err error) ErrorKind

	// Cleanup deletes at most req.Limit DONE and DISCARDED rows that are older than req allows. It
	// returns the number of deleted rows, and whether another call at once may delete more. The
	// rows that req.Archive gets are deleted when it returns nil. They stay when it fails: the
	// error then wraps req.Archive's error, and the next call begins with these rows again. A
	// *LockedError means that transactions hold rows: a later call deletes them.
	Cleanup(ctx context.Context, req CleanupRequest) (deleted int, more bool, err error)

	// CollectKeys looks at up to limit key rows after the key "after". It deletes keys that were
	// unused for longer than idle and have no open or dead row. It checks both again in a new
	// statement while it holds their locks. A zero next means that the scan reached the end.
	CollectKeys(ctx context.Context, idle time.Duration, after KeyID, limit int) (deleted int, next KeyID, err error)
}

// ErrorKind is the class of a database error.
type ErrorKind uint8

// Kinds of errors, see Repository.Classify.
const (
	ErrorOther       ErrorKind = iota // the statement or its values are at fault, or nothing is known
	ErrorConflict                     // only other transactions are at fault: a repetition may succeed
	ErrorTimeLimit                    // a time limit ended the statement or its wait for a lock
	ErrorUnavailable                  // the database cannot be used now
	ErrorPoolClosed                   // the program has closed the pool
)

// Writer is the part of a Repository that Publish uses.
type Writer interface {
	// CheckTx returns an error wrapping ErrOtherDatabase if the transaction belongs to another
	// database, and nil if this cannot be decided. Publish calls it before anything is written, so
	// it should cost nothing for further transactions of the same kind.
	CheckTx(ctx context.Context, tx Tx) error

	// Insert writes rows in the transaction and returns, for each row, its place in its key. For
	// ordered rows it locks the row of each key until the end of the transaction: once per key, in
	// ascending order of KeyIDs. A row id that exists is refused with an error wrapping
	// ErrDuplicateEvent, and none of the rows stays written. If the database leaves the transaction
	// usable, the keys are as before. If the keys cannot be restored, the error also wraps
	// ErrTxAborted.
	Insert(ctx context.Context, tx Tx, req InsertRequest) ([]Inserted, error)
}

// Claimer is the part of a Repository from which a relay takes events, and in which it records
// their results.
type Claimer interface {
	// ClaimUnordered leases due, free rows without a key, oldest due first within a topic. It
	// returns at most req.Limit rows and req.MaxBytes, but at least one row.
	ClaimUnordered(ctx context.Context, req ClaimRequest) ([]Claimed, error)

	// ClaimHeads scans at most req.Keys keys after the key "after". It leases the head of each key
	// if it is due and free, together with up to req.Run-1 rows that follow it directly and are due
	// and free too. A head is the first row of its key that is open or dead. With req.SkipDead,
	// dead heads leave their keys for good, as with Failure.SkipDead: this call or a later one
	// claims the rows behind them. The rows of one key come in ascending KeySeq. next is the key to
	// go on after. A zero next means that the scan reached the end.
	ClaimHeads(ctx context.Context, req ClaimRequest, after KeyID) (rows []Claimed, next KeyID, err error)

	// ClaimKey is ClaimHeads for a single key.
	ClaimKey(ctx context.Context, req ClaimRequest, lane KeyID) ([]Claimed, error)

	// MarkDone records that the destination accepted the rows. It makes them DONE and clears their
	// last error, or deletes them if deleteRows is set. It returns how many rows changed. The other
	// rows were DONE already, discarded or deleted.
	MarkDone(ctx context.Context, done []Done, deleteRows bool) (changed int, err error)

	// MarkFailed records failed publishes, each fenced by its claim. It reports for each whether it
	// changed a row. The last ten failures of an event that count (not FailUnavailable) are kept
	// until the row is deleted: a done mark, a redrive and a discard leave them alone.
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
	// time alone. It looks at unordered rows and at the heads of req.Keys keys. ok is false if there
	// is no such row. The query is bounded: the answer may be too early, and it is too late only
	// because of rows that were not looked at. 0 means that a row is claimable now, or that a claim
	// with req.SkipDead finds a dead head.
	NextDue(ctx context.Context, req ClaimRequest) (d time.Duration, ok bool, err error)
}

// Operations is the part of a Repository with which operators see and change the events and control
// the relays. Relays read the Settings before they publish and then every 2 s, and again after a
// failure of the database. No method gets a request with DryRun.
type Operations interface {
	// Backlog counts open and dead rows. It looks at no more than limit rows of each kind, see
	// Backlog.More.
	Backlog(ctx context.Context, limit int) (Backlog, error)

	// TypeBacklog counts unfinished events by type. Like Backlog it looks at no more than limit
	// rows of each kind. It returns up to 1000 types, the most frequent first.
	TypeBacklog(ctx context.Context, limit int) ([]TypeBacklog, error)

	// ListDead returns dead rows in ascending row id. A part of a row that cannot be read is left
	// out of its Event.
	ListDead(ctx context.Context, q DeadQuery) ([]DeadEvent, error)

	// Redrive opens dead rows again with fresh attempts, and writes an audit row for each changed
	// row. It leaves rows alone that differ from req.Seen. With req.SkipDead, and for a row that
	// has left its key, it appends a new row at the end of the key instead, and discards the old
	// one. It returns how many rows changed.
	Redrive(ctx context.Context, req AdminRequest) (changed int, err error)

	// Discard ends dead rows, and open rows without a live lease. With req.Force it also ends
	// leased rows. It leaves rows alone that differ from req.Seen. It writes an audit row for each
	// changed row, and returns how many rows changed.
	Discard(ctx context.Context, req AdminRequest) (changed int, err error)

	// ResetKeys moves every key row to one reading of the clock, and writes an audit row with the
	// action AuditResetKeys in the same transaction. From then on the table alone orders the next
	// event of each key. Use it after a failover or a restore that lost commits, before writers
	// resume.
	ResetKeys(ctx context.Context, actor, reason string) (changed int, err error)

	// ListAudit returns the audit rows that q selects, the newest first. q.Limit is between 1 and
	// 1000.
	ListAudit(ctx context.Context, q AuditQuery) ([]AuditRecord, error)

	// CountAudit counts the audit rows whose No is above after, and at most upTo, by their action.
	CountAudit(ctx context.Context, after, upTo int64) (map[string]int64, error)

	// Pause replaces an earlier pause of the same topic or tenant, and writes an audit row with the
	// action AuditPause in the same transaction. A pause whose Until is over by the database's
	// clock is refused with ErrInvalidRequest.
	Pause(ctx context.Context, req PauseRequest) error

	// Resume removes a pause that holds, and writes an audit row with the action AuditResume in the
	// same transaction. Without such a pause it changes nothing and returns false.
	Resume(ctx context.Context, req ResumeRequest) (resumed bool, err error)

	// SetRate replaces an earlier rate of the same topic, or removes it if PerSecond and InFlight
	// are 0. It writes an audit row with the action AuditRate in the same transaction.
	SetRate(ctx context.Context, req RateRequest) error

	// Settings returns the pauses that hold by the database's clock, and the rates, in one round trip.
	Settings(ctx context.Context) (Settings, error)
}

// Settings are what operators have set, at most 1000 of each.
type Settings struct {
	Pauses []Pause // of everything, then of topics, then of tenants, each in ascending order
	Rates  []Rate  // in ascending order of their topics
}

// Registry is the part of a Repository that records which relays are alive. Run writes a heartbeat
// when it starts and then every 10 s, and removes it at its end. An error of these methods never
// ends a relay.
type Registry interface {
	// Beat records that a relay is alive now, by the database's clock.
	Beat(ctx context.Context, b Heartbeat) error

	// RemoveRelay removes the record of Beat.
	RemoveRelay(ctx context.Context, node string) error

	// Relays returns up to 1000 relays, dead ones too, the last seen first.
	Relays(ctx context.Context) ([]RelayStatus, error)

	// ForgetRelays removes the relays that were not seen for that time, and returns how many.
	ForgetRelays(ctx context.Context, unseen time.Duration) (int, error)

	// PendingTopics returns the topics that have open rows, in ascending order. Of the keys
	// it looks at up to sample topics, and in each of them at the first 100 open and dead rows.
	PendingTopics(ctx context.Context, sample int) ([]string, error)
}

// InsertRequest has the rows that Publish writes.
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
	Opened bool  // this is the first row since the key was created
}

// ClaimRequest selects the rows that a relay claims.
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
	// Only has the topics to claim. Nil: every topic outside ServedTopicPrefix, and all of Served.
	Only []string
	// Served has topics of ServedTopicPrefix that are wanted in addition when Only is nil.
	Served []string
	Except []string // topics that are stopped
	// ExceptTenants are tenants that are paused, none of them empty, at most 1000. All rows of a
	// key have one tenant.
	ExceptTenants []string
	SkipDead      bool // no dead row blocks its key, not even a row that died under another policy
}

// Suspicious is the number of lost claims after which a row is suspected to end the process that
// publishes it.
const Suspicious = 3

// ServedTopicPrefix starts topics that are served in a process and do not exist at a broker: the
// topics of package command's effects. A relay takes events of such a topic only if its publisher
// names the topic. So a relay with a plain bridge leaves them to the process that executes them.
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
	// node claimed. Up to Suspicious it counts all of them, and beyond that only leases for which
	// BeginSuspect had been called without a wait.
	LostClaims int
	ReplayOf   RowID
	Age        time.Duration // since the insert, by the database's clock

	// Err is set if the event cannot be published because a part of it cannot be read. Event lacks
	// that part.
	Err error
}

// ClaimRef names a claim of a node: the row and its claim number.
type ClaimRef struct {
	ID      RowID
	ClaimNo int64
}

// Done marks a row as accepted by the destination.
type Done struct {
	ID      RowID
	Receipt string // empty: none
}

// FailureKind is the effect of a failed publish on its row.
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
	// SkipDead, with FailDead: the row leaves its key and never blocks it, whatever the policy will
	// be later.
	SkipDead bool
	Code     string // short and stable, at most 64 bytes
	Message  string // redacted, at most 2 KB of valid UTF-8
	// Group is the same for events that failed alike: a hash of code, topic, type and message, at
	// most 16 characters of ASCII. Empty: none is stored.
	Group string
	// Path is how the event was taken. It is kept with a failure that counts, see MarkFailed.
	Path Path
}

// Backlog counts the rows of the table. At most Limit rows of each kind are examined: open rows
// without a key; open and dead rows with a key, of which the dead are passed over; and dead rows.
type Backlog struct {
	Pending     int64         // NEW and RETRY
	Dead        int64         // DEAD
	BlockedKeys int64         // keys of the dead rows that were counted
	OldestAge   time.Duration // age of the oldest pending row, by the database's clock
	Limit       int64
	// More: rows were left out, so the counts and the age are lower bounds.
	More bool
	// ByLog: a reader of the log publishes the events of this process, see Config.RelayedByLog. The
	// table does not show which of them are published, and the other fields do not count them.
	// Outbox.Backlog sets it.
	ByLog bool
}

// TypeBacklog is how many events of a type are not finished.
type TypeBacklog struct {
	Type  string
	New   int64 // not refused so far, also while they are published
	Retry int64 // refused, and tried again
	Dead  int64
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

// Sight is the state in which somebody saw a row, as a number that changes when the row dies or is
// redriven. See ops.Event.Sight.
type Sight uint32

// AdminRequest names rows that a person redrives or discards.
type AdminRequest struct {
	IDs []RowID
	// Seen is the state in which the person saw these rows: rows that have changed since are left
	// alone. Rows without an entry are not compared. See ops.Event.Sight.
	Seen   map[RowID]Sight
	Actor  string // the person; required, saved in the audit row
	Reason string // the reason; required, saved in the audit row
	Force  bool   // Discard: also a row with a live lease, which may still be published once

	// SkipDead is for the Repository. The Outbox sets it from Config.DeadPolicy, whatever it was.
	SkipDead bool
}
