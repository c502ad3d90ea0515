package sqlkit

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// ErrEnded is the error of a statement that needs a transaction and finds that the database has ended
// it, which nobody has said before. It wraps core.ErrTxAborted, and core.ErrCommitUnknown: what the
// program has written since then was committed statement by statement, so running the transaction
// again would repeat it.
var ErrEnded error = ended{}

type ended struct{}

func (ended) Error() string {
	return core.ErrCommitUnknown.Error() + ": the database had ended the transaction before its events were " +
		"written, and statements after that have committed one by one: read the business data to find out"
}

func (ended) Unwrap() []error { return []error{core.ErrTxAborted, core.ErrCommitUnknown} }

// StillOpen returns ErrEnded if a MySQL or MariaDB server no longer has the transaction. The server
// rolls back the victim of a deadlock, and an application may ignore that error. StillOpen is for
// untracked transactions, and costs a round trip. Statements for MariaDB read @@in_transaction
// instead. MySQL has no such variable.
func StillOpen(ctx context.Context, tx core.Tx) error {
	if tx.Tracked() {
		return nil // the tracker has refused the statement already
	}
	// MySQL refuses the statement within a transaction. Outside one, the statement sets the access
	// mode of the next transaction, and the ROLLBACK of the caller undoes that.
	const inProgress = 1568
	switch _, err := tx.Exec(ctx, "SET TRANSACTION READ WRITE"); {
	case err == nil:
		return ErrEnded
	case sqlerr.MySQL(err) != inProgress:
		return err
	}
	return nil
}
