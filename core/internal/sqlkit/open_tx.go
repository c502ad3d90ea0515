package sqlkit

import (
	"context"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// StillOpen returns an error wrapping core.ErrTxAborted when a MySQL or MariaDB server no longer
// has the transaction: it has rolled back a deadlock's victim, and the application has ignored the
// error. It is for transactions that nobody follows, and costs a round trip. Statements for MariaDB
// can do without, because they can read @@in_transaction; MySQL has nothing like it.
func StillOpen(ctx context.Context, tx core.Tx) error {
	if tx.Tracked() {
		return nil // who follows it has refused already
	}
	// Refused within a transaction. Outside it is for the next one, and the caller's ROLLBACK
	// undoes it.
	const inProgress = 1568
	switch _, err := tx.Exec(ctx, "SET TRANSACTION READ WRITE"); {
	case err == nil:
		return fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
	case sqlerr.MySQL(err) != inProgress:
		return err
	}
	return nil
}
