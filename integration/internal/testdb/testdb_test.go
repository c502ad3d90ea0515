package testdb_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Each kind of server gets a database of its own dialect.
func TestAt(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "postgres18", "mariadb", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db := testdb.At(t, kind, testdb.Server(t, "OUTBOX_TEST_"+strings.ToUpper(kind)))
			if db.Name != kind {
				t.Errorf("the database is called %q", db.Name)
			}
			if err := db.Open(t).PingContext(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
