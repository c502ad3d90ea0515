package ops

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// MaxLook is how many rows one call looks at for each index that it reads.
const MaxLook = 10_000

// Store reads the table for an API. sqloutbox.Repository and outboxtest.Repository implement it. It
// is for authors of a core.Repository; everybody else calls the API.
type Store interface {
	// ScanEvents returns events that the filter selects, in an order that an index gives: by row
	// id; for open events first those without a key, by topic and due time, and then those of the
	// keys, by key and number. Without an error it returns fewer events than s.Limit only at the
	// end or if Truncated is set.
	ScanEvents(ctx context.Context, s Scan) (Scanned, error)

	// ReadContent returns the content of the row with that id.
	ReadContent(ctx context.Context, id core.RowID) (c Content, found bool, err error)

	// ReadAudit returns what people did to the row with that id, oldest first, at most 100 entries.
	ReadAudit(ctx context.Context, id core.RowID) ([]AuditEntry, error)
}

// Scan says what Store.ScanEvents reads.
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

// Scanned is what a Scan found.
type Scanned struct {
	Events    []Event
	Next      string // continues after these events; empty: there are no more
	Truncated bool   // Look rows were looked at before Limit events were found
}
