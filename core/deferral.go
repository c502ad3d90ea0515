package core

import (
	"context"
)

// InsertDeferrer is an optional interface of a Repository. Publish uses it in place of Insert if
// the commit of the transaction is tracked and no event of the call is Eager.
type InsertDeferrer interface {
	// InsertOrDefer inserts the rows, or leaves them with the connection of the transaction, and
	// reports deferred. Such a connection sends the rows together with COMMIT, or before the first
	// statement that could see them or could end the transaction. It never sends them twice. d's
	// functions are called as the rows are sent.
	InsertOrDefer(ctx context.Context, tx Tx, req InsertRequest,
		d Deferral) (places []Inserted, deferred bool, err error)
}

// Deferral has callbacks for deferred rows. Its functions are called on the goroutine that uses the
// transaction, before the outcome of the transaction is reported. If the transaction is rolled back
// before the rows are sent, neither is called.
type Deferral struct {
	// Sending is called just before the rows are sent. Their leases count from then. Rows that are
	// sent in one statement have one claim. Its ClaimNo comes from one of their requests.
	Sending func(claimNo int64)
	// Done is called after that, with the results of the insert. No error and no places means that
	// the rows are written and that their places are not known.
	Done func(places []Inserted, err error)
}
