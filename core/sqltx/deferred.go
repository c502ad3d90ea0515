package sqltx

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// DeferredInsert is an INSERT of events that a connection may keep and send later, at the latest
// together with COMMIT. It is for authors of repositories and of connectors. A repository puts it
// into the context of the statement with Offer. A connection that keeps the INSERT does not execute
// that statement, returns no rows for it and calls Take. Every other connection executes the
// statement as ever.
//
// A connection may keep an INSERT only if it sees every way in which the transaction can end, and
// sends what it keeps before any statement that might notice the difference.
type DeferredInsert struct {
	// Into is where the rows go. It is comparable. Inserts with equal values can be joined.
	Into any
	// Names are texts in lower case. A statement without any of them, in any case, does not name a
	// table that the rows are written to.
	Names []string
	// Keep: a connection may prepare the statement once, under a name, and keep it.
	Keep bool
	// Rows and Bytes are the size of the INSERT.
	Rows, Bytes int
	// Join returns one statement with the effect of all inserts' statements, in their order. The
	// inserts have an equal Into, and the first is the one whose Join is called.
	Join func(all []*DeferredInsert) (JoinedInsert, error)
	// Sending is called just before the statement is sent.
	Sending func()
	// Done is called when the rows are written (nil), after JoinedInsert.Read, or when they are not
	// and never will be.
	Done func(error)
	// Own is for the repository.
	Own any

	query string
	args  []any
	taken bool
}

// JoinedInsert is a statement that inserts events.
type JoinedInsert struct {
	Query string
	Args  []any
	// Read reads the rows that the statement returns. An error means that the rows cannot be
	// decoded; the events are written all the same.
	Read func(core.Rows) error
	// Wrap returns the error of the statement with the repository's context.
	Wrap func(error) error
}

type offerKey struct{}

// Offer returns a context for the statement that executes the INSERT at once.
func (d *DeferredInsert) Offer(ctx context.Context) context.Context {
	return context.WithValue(ctx, offerKey{}, d)
}

// OfferedInsert returns the repository's offer in the context of a statement, or nil if there is
// none or it was taken already.
func OfferedInsert(ctx context.Context) *DeferredInsert {
	d, _ := ctx.Value(offerKey{}).(*DeferredInsert)
	if d == nil || d.taken {
		return nil
	}
	return d
}

// offerTaken reports whether the INSERT that was offered with ctx waits.
func offerTaken(ctx context.Context) bool {
	d, _ := ctx.Value(offerKey{}).(*DeferredInsert)
	return d != nil && d.taken
}

// Take makes d wait. query and args are the statement that would have executed it.
func (d *DeferredInsert) Take(query string, args []any) { d.query, d.args, d.taken = query, args, true }

// Taken reports whether a connection keeps d.
func (d *DeferredInsert) Taken() bool { return d.taken }

// Statement returns the query and the arguments that were given to Take.
func (d *DeferredInsert) Statement() (query string, args []any) { return d.query, d.args }

// flushQuery is answered by a connection of Connector, as probeQuery is.
const flushQuery = "SELECT 1 /* " + probeMark + " flush */"

type flushKey struct{}

// flush is a call of Flush on its way to a connection.
type flush struct {
	seen bool
	err  error
}

// Flush writes the waiting events on the connection of tx now, and returns the error of their
// INSERT. Afterwards events of tx may wait again. Only connections of module pgxoutbox keep events;
// for other transactions Flush returns nil.
//
// Use it before a statement that can notice whether the events are written in a way that its text
// does not show: a function that reads the tables of the outbox, for example.
func Flush(ctx context.Context, tx core.Tx) error {
	if tx == nil {
		return core.ErrNoTransaction
	}
	if own, ok := tx.(*Tx); ok && own.watch || !tx.Tracked() || tx.Dialect() != core.Postgres {
		return nil
	}
	var f flush
	_, err := tx.Exec(context.WithValue(ctx, flushKey{}, &f), flushQuery)
	if f.seen { // the answer is no result of a statement
		return f.err
	}
	return err
}

// FlushAsked reports whether a statement with this context is that of Flush. It is for transactions
// that keep inserts and do not run on a connection of Connector: they write what they keep, and do
// not send the statement.
func FlushAsked(ctx context.Context) bool { return ctx.Value(flushKey{}) != nil }

// flush answers flushQuery.
func (c *trackingConn) flush(ctx context.Context, f *flush) {
	f.seen = true
	if keeper, ok := c.inner.(interface{ Flush(context.Context) error }); ok {
		f.err = keeper.Flush(ctx)
	}
}
