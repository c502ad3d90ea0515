package sqlkit

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// StillOpen returns an error wrapping core.ErrTxAborted if a MySQL or MariaDB server no longer has
// the transaction. The server rolls back the victim of a deadlock, and an application may ignore
// that error. StillOpen is for untracked transactions, and costs a round trip. Statements for
// MariaDB read @@in_transaction instead. MySQL has no such variable.
func StillOpen(ctx context.Context, tx core.Tx) error {
	if tx.Tracked() {
		return nil // the tracker has refused the statement already
	}
	// MySQL refuses the statement within a transaction. Outside one, the statement sets the access
	// mode of the next transaction, and the ROLLBACK of the caller undoes that.
	const inProgress = 1568
	switch _, err := tx.Exec(ctx, "SET TRANSACTION READ WRITE"); {
	case err == nil:
		return fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
	case sqlerr.MySQL(err) != inProgress:
		return err
	}
	return nil
}
