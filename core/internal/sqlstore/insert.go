package sqlstore

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// Insert is an INSERT of one row in a caller's transaction. It does not change the columns of a row
// that exists, except that MySQL and MariaDB increment its column seen. So the number of affected
// rows tells what happened, whichever rows the driver counts. A refused INSERT would take a shared
// lock instead, and transactions that wait for such a lock deadlock.
type Insert struct {
	Plain string
	// Guarded inserts nothing outside a transaction, because a deadlock whose error was ignored has
	// ended the caller's transaction. Only MariaDB can have this text.
	Guarded string
}

// InsertText returns the text of an INSERT in a caller's transaction. If the text cannot check that
// the transaction is open, InsertText has checked it.
func (s *Store) InsertText(ctx context.Context, tx core.Tx, i Insert) (string, error) {
	guarded, err := s.database.guarded(ctx, tx)
	if guarded {
		return i.Guarded, err
	}
	return i.Plain, err
}

// Inserted tells from the number of affected rows whether an Insert has inserted its row. An error
// means that the transaction has ended.
func (s *Store) Inserted(n int64) (bool, error) { return s.database.inserted(n) }
