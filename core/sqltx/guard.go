package sqltx

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/internal/sqltext"
)

// Harmless reports whether a text can neither end the transaction nor set, release or roll back to
// a savepoint, except by failing. If the database itself tells whether the transaction is still
// open, as the state of a connection of PostgreSQL does, such a statement need not be shown to the
// Tracker. A text that the Tracker cannot read is not harmless.
func (t *Tracker) Harmless(query string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	kind, _ := t.read(query)
	return kind <= sqltext.Empty
}

// Guard sets a savepoint before an opaque statement; see Before. Call release with the result of
// the statement, instead of Observe: it finds out what the statement did to the transaction. exec
// runs a statement in the transaction. If Guard returns an error, do not run the statement.
func (t *Tracker) Guard(ctx context.Context, exec func(ctx context.Context, query string) error) (
	release func(err error), err error,
) {
	run := executor(exec)
	if err := run.setGuard(ctx); err != nil {
		t.Observe("", err)
		return nil, err
	}
	return func(err error) { run.releaseGuard(ctx, t, err) }, nil
}
