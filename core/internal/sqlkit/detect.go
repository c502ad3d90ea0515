package sqlkit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
)

// Detect asks a database which dialect it speaks. It refuses a server as CheckServer does.
func Detect(ctx context.Context, db Conn) (core.Dialect, error) {
	d, err := dialectOf(ctx, db)
	if err != nil {
		return "", err
	}
	return d, CheckServer(ctx, On{db}, d)
}

func dialectOf(ctx context.Context, db Conn) (core.Dialect, error) {
	version, err := text(ctx, db, "SELECT version()")
	if err == nil {
		for _, s := range strangers {
			if strings.Contains(version, s.part) {
				return s.dialect, nil
			}
		}
		if strings.HasPrefix(version, "PostgreSQL") {
			return core.Postgres, nil
		}
		if version != "" && version[0] >= '0' && version[0] <= '9' {
			return core.MySQL, nil
		}
		return "", fmt.Errorf("cannot tell the dialect from version %.80q: set Config.Dialect", version)
	}
	if _, err2 := text(ctx, db, "SELECT sqlite_version()"); err2 == nil {
		return core.SQLite, nil
	}
	return "", fmt.Errorf("cannot ask the database for its version, set Config.Dialect: %w", err)
}

func text(ctx context.Context, db Conn, query string) (string, error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var s string
	if !rows.Next() {
		return "", errors.Join(errors.New("no row"), rows.Err())
	}
	if err := rows.Scan(&s); err != nil {
		return "", err
	}
	return s, rows.Close()
}

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
