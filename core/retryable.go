package core

import (
	"errors"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
)

// Retryable reports whether err says that a transaction failed only because of others, or can no
// longer be trusted (ErrTxAborted), so that the whole transaction may be rolled back and run again:
// serialization failures, deadlocks and lock timeouts of PostgreSQL, MySQL, MariaDB and SQLite. It
// is false when the outcome of the commit is unknown.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, ErrCommitUnknown) {
		return false
	}
	return errors.Is(err, ErrTxAborted) || sqlerr.Retryable(err)
}
