package cli_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
)

// Doctor finds a transaction that was prepared and forgotten: it has no session.
func TestDoctorFindsPreparedTransactions(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	server, db := fixture.StartPrivateDatabase(t, "postgres")
	pool := db.Open(t)
	fixture.MustExec(t, pool, "ALTER SYSTEM SET max_prepared_transactions = 10")
	server.Kill(t)
	server.Up(t)
	fixture.Await(t, "the server answers", func() bool { return pool.PingContext(t.Context()) == nil })
	_, errs, code := outbox(t, db, "migrate", "up")
	fixture.Must(t, code == 0, "migrate: %s", errs)
	for _, stmt := range []string{"CREATE ROLE reader LOGIN", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"} {
		fixture.MustExec(t, pool, stmt)
	}
	conn, err := pool.Conn(t.Context())
	fixture.NoError(t, err)
	for _, stmt := range []string{
		"BEGIN", "UPDATE outbox_event SET attempts = attempts", "SELECT pg_current_xact_id()",
		"PREPARE TRANSACTION 'it''s 7'",
	} {
		_, err := conn.ExecContext(t.Context(), stmt)
		fixture.NoError(t, err)
	}
	for _, address := range []string{db.DSN, strings.Replace(db.DSN, "postgres@", "reader@", 1)} {
		db.DSN = address
		out, errs, _ := outbox(t, db, "doctor", "--max-transaction", "1us")
		fixture.Check(t, strings.Contains(out, "transactions: transaction 'it''s 7' has been prepared for ") &&
			strings.Contains(out, "ROLLBACK PREPARED 'it''s 7'"), "doctor does not find it:\n%s%s", out, errs)
	}
	_, err = conn.ExecContext(t.Context(), "ROLLBACK PREPARED 'it''s 7'")
	fixture.NoError(t, err)
}
