package sqlkit

import (
	"context"
	"strings"
	"sync/atomic"
)

// Flavor distinguishes MariaDB from MySQL. The zero value has not asked the server yet. A Flavor is
// safe for use by several goroutines.
type Flavor struct{ mariadb atomic.Pointer[bool] }

// MariaDB asks the server once, through the given connection, because the pool may have no other.
func (f *Flavor) MariaDB(ctx context.Context, q Querier) (bool, error) {
	if known := f.mariadb.Load(); known != nil {
		return *known, nil
	}
	var version string
	if _, err := FirstRow(ctx, q, "SELECT VERSION()", nil, &version); err != nil {
		return false, err
	}
	is := isMariaDB(version)
	f.mariadb.Store(&is)
	return is, nil
}

// isMariaDB recognises MariaDB by the text of VERSION().
func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }
