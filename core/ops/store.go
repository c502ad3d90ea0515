package ops

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// MaxLook is how many rows one call looks at for each index that it reads.
const MaxLook = 10_000

// Store reads and changes the tables for an API. Package sqlops implements it for the tables of
// package sqloutbox, and outboxtest.Repository in memory. It is for authors of a core.Repository;
// everybody else calls the API. If a table is missing, the errors wrap core.ErrNoTables. No method
// gets a request with DryRun.
type Store interface {
	// ScanEvents returns events that the filter selects, in the order of an index: by row id; for
	// open events first events without a key, by topic and due time, and then by key and number.
	// Without an error it returns fewer events than s.Limit only at the end or if Truncated is set.
	ScanEvents(ctx context.Context, s Scan) (Scanned, error)

	// ReadContent returns the content of the row with that id.
	ReadContent(ctx context.Context, id core.RowID) (c Content, found bool, err error)

	// Reveal returns the content of the row with that id, and writes an audit row with the action
	// AuditReveal in the same transaction.
	Reveal(ctx context.Context, id core.RowID, req core.AdminRequest) (c Content, found bool, err error)

	// ReadDestinations counts the events that wait and that are dead, by topic. It reads at most
	// limit events of each kind: open ones without a key, events with a key, and dead ones. more
	// reports whether there may be more.
	ReadDestinations(ctx context.Context, limit int) (all []Destination, more bool, err error)

	// ReadAudit returns the manual actions on the row with that id: the last 100 entries, oldest
	// first.
	ReadAudit(ctx context.Context, id core.RowID) ([]AuditEntry, error)

	// ReadFailures returns the last refusals of the row with that id that counted, oldest first, at
	// most MaxAttempts.
	ReadFailures(ctx context.Context, id core.RowID) ([]Attempt, error)

	// EditEvent puts a row with other content in the place of a dead one: see API.Edit. In one
	// transaction it locks the dead row and asks c.CheckDead, reads the content and asks c.Apply,
	// inserts the new row as c.NewID, discards the dead row, and writes the audit row with
	// AuditEdit and c.Detail. If c.Appends, the new row takes the next number of c.KeyOf. Otherwise
	// it has the key and the number of the dead row, and it becomes the last row of the key row in
	// its place, so that no process takes a late acknowledgement of the dead row for one of the new
	// row. The error wraps ErrNotFound if there is no such row.
	EditEvent(ctx context.Context, c Edit) (keySeq int64, diff string, err error)

	// EraseEvents erases the content of the rows with c.IDs in one transaction: the payload is
	// empty, there is no content type, the headers are KeptHeaders, and the text of the last error,
	// if there is one, is Erased; there are no failed attempts. Each gets an audit row with
	// AuditErase. A row that has core.HeaderErased already stays as it is, and so does a waiting
	// row, unless c.Open is set and no process holds it.
	EraseEvents(ctx context.Context, c EraseChange) (EraseOutcome, error)

	// EraseAudit looks at up to 1000 audit rows with numbers above after. It puts Erased in place of
	// each detail that begins with head, or with dryRun counts them. next is 0 after the last row.
	EraseAudit(ctx context.Context, after int64, head string, dryRun bool) (erased int, next int64, err error)

	// RecordErase writes an audit row with AuditErase that names no event. Its reason has c.Subject.
	RecordErase(ctx context.Context, c EraseChange) error

	// RecordAudit writes audit rows with the Action, Actor, Reason, RowID, EventID and Topic of the
	// records, and with a detail, which may be empty, in one transaction.
	RecordAudit(ctx context.Context, detail string, records ...core.AuditRecord) error

	// InsertPlan stores a new plan, and writes an audit row with that action in the same
	// transaction. It deletes plans that ended longer than keep ago.
	InsertPlan(ctx context.Context, p StoredPlan, audit string, keep time.Duration) error

	// ReadPlan returns a plan with its ids.
	ReadPlan(ctx context.Context, id string) (p StoredPlan, found bool, err error)

	// ReadPlans returns the newest plans without their ids.
	ReadPlans(ctx context.Context, limit int) ([]StoredPlan, error)

	// ChangePlan makes a change in one transaction. It returns false, and has changed nothing, if
	// the plan has another version. The plan that it returns has the new version and the new times.
	ChangePlan(ctx context.Context, c PlanChange) (p StoredPlan, ok bool, err error)

	// ReadStatuses returns the state of rows that were redriven with that reason. With an empty
	// reason they are rows that a replay inserted, and were not redriven. Rows that were deleted
	// are missing. If another row took the place of one, only that other row counts. ids has at
	// most 500.
	ReadStatuses(ctx context.Context, ids []core.RowID, reason string) ([]RowStatus, error)

	// ChangeGroup makes a change and writes its audit row in one transaction. A group that has no
	// note and is not muted is forgotten.
	ChangeGroup(ctx context.Context, c GroupChange) error

	// ReadGroupNotes returns the stored notes, the latest change first, at most 1000.
	ReadGroupNotes(ctx context.Context) ([]GroupNote, error)

	// DeclareWindow replaces an earlier window of the same topic and consumer, and writes an audit
	// row with the action AuditDeclareWindow in the same transaction.
	DeclareWindow(ctx context.Context, req WindowRequest) error

	// WithdrawWindow removes the window of a topic and a consumer, and writes an audit row with the
	// action AuditWithdrawWindow in the same transaction. Without such a window it changes nothing
	// and returns false.
	WithdrawWindow(ctx context.Context, req WindowRequest) (withdrawn bool, err error)

	// Windows returns up to 1000 windows, by topic and then by consumer.
	Windows(ctx context.Context) ([]Window, error)
}

// Scan is the query of Store.ScanEvents.
type Scan struct {
	Filter // its EventID is spelled as it is stored

	// ID selects the row with that id. Zero: all.
	ID core.RowID

	// KeyID selects the open and the dead events of one key, in the order of the key, with numbers
	// greater than AfterSeq and less than BeforeSeq. A BeforeSeq of 0 is no limit. Zero: all
	// events.
	KeyID               core.KeyID
	AfterSeq, BeforeSeq int64

	Newest bool   // in reverse order
	After  string // Scanned.Next of the page before
	Limit  int    // events to return; at least 1
	Look   int    // rows to look at for each index; at least 1
}

// Scanned is the result of a Scan.
type Scanned struct {
	Events    []Event
	Next      string // continues after these events; empty: there are no more
	Truncated bool   // Look rows were looked at before Limit events were found
}
