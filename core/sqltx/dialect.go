package sqltx

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
)

func checkDialect(d core.Dialect) error {
	switch d {
	case core.Postgres, core.MySQL, core.SQLite:
		return nil
	}
	return fmt.Errorf("sqltx: dialect %q is not supported: use core.Postgres, core.MySQL or core.SQLite", string(d))
}

// DialectOf returns the dialect of a pool by its driver, without a query. It returns an error for
// an unknown driver; see Connector for the known ones.
func DialectOf(db *sql.DB) (core.Dialect, error) {
	if db == nil {
		return "", errors.New("sqltx: DialectOf was given a nil *sql.DB")
	}
	return dialectOf(db.Driver())
}

// dialectOf finds the dialect by the import path of a driver's types, so that no driver needs to be
// imported.
func dialectOf(v any) (core.Dialect, error) {
	t := reflect.TypeOf(v)
	if t == nil {
		return "", errors.New("sqltx: the driver is nil: name the dialect")
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	path := t.PkgPath()
	for _, known := range []struct {
		part    string
		dialect core.Dialect
	}{
		{"jackc/pgx/", core.Postgres},
		{"lib/pq", core.Postgres},
		{"driver/pgdriver", core.Postgres},
		{"go-sql-driver/mysql", core.MySQL},
		{"modernc.org/sqlite", core.SQLite},
		{"go-sqlite3", core.SQLite},
		{"glebarez/go-sqlite", core.SQLite},
	} {
		if strings.Contains(path, known.part) {
			return known.dialect, nil
		}
	}
	return "", fmt.Errorf("sqltx: cannot tell the dialect of the driver %s: name it (core.Postgres, core.MySQL or "+
		"core.SQLite)", t)
}
