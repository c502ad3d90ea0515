package core

import (
	"errors"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Retryable reports whether the whole transaction may be rolled back and run again after err. It is
// true for errors caused by other transactions: serialization failures, deadlocks and lock timeouts
// of PostgreSQL, MySQL, MariaDB and SQLite. It is also true for ErrTxAborted. It is false when the
// outcome of the commit is unknown.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, ErrCommitUnknown) {
		return false
	}
	return errors.Is(err, ErrTxAborted) || sqlerr.Retryable(err)
}
