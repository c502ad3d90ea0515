package cli_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Every command, and the relay, refuses a server that is too old or only speaks the protocol.
func TestUnsupportedServer(t *testing.T) {
	t.Parallel()
	cockroach, say := fixture.PostgresThatSays(t, "CockroachDB CCL v25.2.1")
	say()
	for want, db := range map[string]testdb.DB{
		"the server is TiDB":                           fixture.MySQLThatSays(t, "8.0.11-TiDB-v8.5.1"),
		"the server is MySQL 5.7.44, which is too old": fixture.MySQLThatSays(t, "5.7.44-log"),
		"the server is CockroachDB":                    cockroach,
	} {
		for _, command := range []string{
			"status", "doctor", "migrate up", "inbox", "effects", "idempotency", "relay --to kafka://127.0.0.1:1",
		} {
			out, errs, code := outbox(t, db, strings.Fields(command)...)
			if code != 1 || !strings.Contains(errs, want) ||
				!strings.Contains(errs, "keep the tables in PostgreSQL 12") ||
				strings.Contains(errs, "sqloutbox") {
				t.Errorf("outbox %s: exit code %d, want %q\n%s%s", command, code, want, out, errs)
			}
		}
	}
}
