package sqlstore

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
)

// Insert is an INSERT of one row in a caller's transaction, which leaves a row that is there. MySQL
// counts up seen of that, so that the number of affected rows tells what happened, whatever the
// driver counts; it never takes the shared lock that a refused INSERT takes, which deadlocks those
// who wait.
type Insert struct {
	Plain string
	// Guarded writes nothing outside a transaction: a deadlock whose error was ignored has ended
	// the caller's. Only MariaDB can have it.
	Guarded string
}

// InsertText returns which text of an INSERT is to be sent in a caller's transaction, after it made
// sure of the transaction where the text cannot.
func (s *Store) InsertText(ctx context.Context, tx core.Tx, i Insert) (string, error) {
	guarded, err := s.database.guarded(ctx, tx)
	if guarded {
		return i.Guarded, err
	}
	return i.Plain, err
}

// Inserted tells by the number of affected rows whether an Insert has inserted its row. An error
// says that the transaction has ended.
func (s *Store) Inserted(n int64) (bool, error) { return s.database.inserted(n) }
