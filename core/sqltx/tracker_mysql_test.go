package sqltx_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// MySQL and MariaDB commit before some statements, and each further statement then stands for
// itself.
func TestTrackerImplicitCommit(t *testing.T) {
	for _, query := range []string{
		"CREATE TABLE t (n INT)", "create index i on t (n)", "ALTER TABLE t ADD m INT", "DROP TABLE t", "TRUNCATE t",
		"RENAME TABLE t TO u", "GRANT SELECT ON t TO u", "LOCK TABLES t WRITE", "CALL p()", "ANALYZE TABLE t",
		"SET autocommit = 1", "/*!50000 CREATE */ TABLE t (n INT)", "CREATE OR REPLACE TABLE t (n INT)",
	} {
		for _, mark := range []string{"", "!"} { // it may have committed even when it failed
			tr := track(core.MySQL, "+a", mark+query, "+b")
			if !errors.Is(tr.Err(), core.ErrTxAborted) {
				t.Errorf("%s%s: Err is %v, want ErrTxAborted", mark, query, tr.Err())
			}
			tr.RolledBack()
			if want := outcomes("", "", "a b"); !maps.Equal(tr.heard, want) {
				t.Errorf("%s%s: heard %v, want %v", mark, query, tr.heard, want)
			}
		}
		for _, d := range []core.Dialect{core.Postgres, core.SQLite} {
			if verb, _, _ := strings.Cut(query, " "); !slices.Contains([]string{"CREATE", "create", "ALTER", "DROP"},
				verb) {
				continue
			}
			tr := track(d, "+a", query)
			_ = tr.Commit(succeed)
			if tr.Err() == nil || tr.heard["a"] != core.Committed {
				t.Errorf("%s, %s: heard %v, want that it is part of the transaction", d, query, tr.heard)
			}
		}
	}
	for _, query := range []string{
		"CREATE TEMPORARY TABLE t (n INT)", "CREATE OR REPLACE TEMPORARY TABLE t (n INT)", "DROP TEMPORARY TABLE t",
		"DROP PREPARE p", "REPLACE INTO t VALUES (1)", "DELETE FROM t", "/*!40101 SET NAMES utf8 */", "",
	} {
		tr := track(core.MySQL, "+a", query)
		_ = tr.Commit(succeed)
		equal(t, tr.heard["a"], core.Committed, "%q: heard %v", query, tr.heard)
	}
}

// The part of a comment that MySQL and MariaDB execute may be transaction control.
func TestTrackerExecutedComment(t *testing.T) {
	for _, query := range []string{
		"/*! ROLLBACK */", "/*!50000 COMMIT*/", "/*M!100100 ROLLBACK */",
		"/* x */ /*!ROLLBACK*/", "SELECT 1; /*! COMMIT */",
	} {
		tr := track(core.MySQL, "+a", query)
		_ = tr.Commit(succeed)
		equal(t, tr.heard["a"], core.Unknown, "%s: heard %v", query, tr.heard)
	}
}
