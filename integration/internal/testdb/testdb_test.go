package testdb_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Each kind of server gets a database of its own dialect.
func TestAt(t *testing.T) {
	t.Parallel()
	kinds := []string{"postgres", "mariadb"}
	if !testing.Short() { // `make test` starts only these two
		kinds = append(kinds, "postgres18", "mysql")
	}
	for _, kind := range kinds {
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
