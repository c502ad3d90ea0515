package sqloutbox

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
)

// checkDialect refuses an unknown dialect. Only checkDialect and outboxsql.ByDialect distinguish
// dialects.
func checkDialect(d core.Dialect) error {
	switch d {
	case core.Postgres, core.MySQL, core.SQLite:
		return nil
	default:
		return fmt.Errorf("sqloutbox: Config.Dialect %q is not one of postgres, mysql, sqlite", string(d))
	}
}

// words are pieces of the SQL of a dialect; see names.expand.
var words = outboxsql.ByDialect[map[string]word]{Postgres: postgresWords, MySQL: mysqlWords, SQLite: sqliteWords}

// openDatabase returns the database of the dialect of the names.
func openDatabase(p pool, n names) database {
	open := outboxsql.ByDialect[func(pool, names) database]{Postgres: newPostgres, MySQL: newMySQL, SQLite: newSQLite}
	return open.Of(n.dialect)(p, n)
}
