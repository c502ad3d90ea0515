package cli

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/ormoutbox/ormoutbox/core"
)

// A role that may not see the transactions of others is told so. The GRANT that doctor names shows
// them.
func TestDoctorHiddenTransactions(t *testing.T) {
	servers(t, func(w *world) {
		reader := w.reader()
		tx, err := w.open().BeginTx(w.Context(), nil)
		must(w, err)
		defer tx.Rollback()
		must(w, errOf(tx.ExecContext(w.Context(), "UPDATE outbox_event SET attempts = attempts")))
		right := map[core.Dialect]string{core.Postgres: "pg_read_all_stats", core.MySQL: "PROCESS"}[w.dialect]
		grant := reader.requireHidden("transactions", "needs "+right)
		reader.requireHidden("transactions", "needs "+right, "--max-transaction", "1us")
		w.exec(grant)
		w.await("doctor sees the transaction", func() bool { // MariaDB repeats its last answer for a while
			return found(reader.doctor("--max-transaction", "1us"), "transactions", "open for").Level == levelWarning
		})
		reader.requireFinding(levelOK, "transactions", "none has been open", "--max-transaction", "100h")
	})
}

// Tables that a role may not read are named as such, and not as missing. What is in them is not in
// order.
func TestDoctorHiddenTables(t *testing.T) {
	servers(t, func(w *world) {
		w.ok("migrate", "up", "--tables", "inbox,keys,effects")
		w.deadEffect("1")
		one := map[core.Dialect]string{
			core.Postgres: "GRANT SELECT ON outbox_event TO ROLE",
			core.MySQL:    "GRANT SELECT ON DATABASE.outbox_event TO ROLE",
		}[w.dialect]
		reader := w.role(one)
		grant := ""
		for _, check := range []string{"pauses", "relays", "destinations", "names", "effects", "leases", "versions"} {
			grant = reader.requireHidden(check, "needs SELECT")
		}
		if w.dialect == core.MySQL {
			reader.requireHidden("tables", "needs SELECT")
		}
		for stmt := range strings.SplitSeq(grant, "; ") {
			w.exec(stmt)
		}
		for _, f := range reader.doctor() {
			if strings.HasPrefix(f.Found, "not visible") && f.Check != "transactions" {
				w.Errorf("with the rights that it asks for: %+v", f)
			}
		}
		reader.requireFinding(levelWarning, "effects", "dead effects: 1 of mail")
	})
}

// Where a role may not use the schema, the tables are not missing.
func TestDoctorHiddenSchema(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	reader := w.reader()
	w.exec("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
	w.exec(reader.requireHidden("tables", "needs USAGE"))
	reader.requireFinding(levelOK, "tables", "of this version")
}

// Another outbox in the schema is known of, whoever may read it.
func TestDoctorHiddenOutbox(t *testing.T) {
	servers(t, func(w *world) {
		w.exec(map[core.Dialect]string{
			core.Postgres: "CREATE TABLE shop_event (claim_no bigint); CREATE TABLE shop_migration (version int, " +
				"applied_at timestamptz)",
			core.MySQL: "CREATE TABLE shop_event (claim_no bigint)",
		}[w.dialect])
		grant := map[core.Dialect]string{
			core.Postgres: "GRANT SELECT ON outbox_event, outbox_migration TO ROLE",
			core.MySQL:    "GRANT SELECT ON DATABASE.outbox_event TO ROLE",
		}[w.dialect]
		w.role(grant).requireHidden("versions", "needs SELECT")
	})
}

// What walrelay knows is not seen by a role that may not read its table.
func TestDoctorHiddenLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t, newPostgres)
	w.ok("migrate", "up")
	reader := w.reader()
	w.exec(`CREATE TABLE outbox_log (slot text, node text, repairing boolean, checkpoint xid8, confirmed pg_lsn,
		checkpoint_at timestamptz, system_id text)`)
	grant := reader.requireHidden("log", "needs SELECT")
	for stmt := range strings.SplitSeq(grant, "; ") {
		w.exec(stmt)
	}
	for _, f := range reader.doctor() {
		if f.Check == "log" && f.Level != levelOK {
			w.Errorf("%+v", f)
		}
	}
	w.exec("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_control_system() FROM PUBLIC")
	w.exec(reader.requireHidden("log", "needs EXECUTE on pg_control_system()"))
	if f := found(reader.doctor(), "log", "not visible"); f.Found != "" {
		w.Errorf("%+v", f)
	}
}

// A prepared transaction holds its locks without a session.
func TestDoctorPreparedTransactions(t *testing.T) {
	servers(t, func(w *world) {
		if w.dialect != core.MySQL {
			return // PostgreSQL prepares none unless it is set up for it: integration/cli has that test
		}
		id := unique()
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		conn, err := w.open().Conn(w.Context())
		must(w, err)
		for _, stmt := range []string{
			"XA START '" + id + "'", "UPDATE outbox_event SET attempts = attempts + 1", "XA END '" + id + "'",
			"XA PREPARE '" + id + "'",
		} {
			must(w, errOf(conn.ExecContext(w.Context(), stmt)))
		}
		admin := w.open()
		w.Cleanup(func() { noError(w, errOf(admin.ExecContext(context.Background(), "XA ROLLBACK '"+id+"'"))) })
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // its session ends
		w.requireFinding(levelOK, "transactions", "none has been open", "--max-transaction", "100h")
		w.await("doctor sees the prepared transaction", func() bool {
			return found(w.doctor("--max-transaction", "1us"), "transactions", "been prepared").Level == levelWarning
		})
		w.reader().requireHidden("transactions", "needs PROCESS")
	})
}

// A standby and a slot hold back what vacuum may remove. A role with SELECT alone sees both.
func TestDoctorHorizon(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"OUTBOX_TEST_POSTGRES", "OUTBOX_TEST_POSTGRES18"} {
		if variable == "OUTBOX_TEST_POSTGRES18" && testing.Short() {
			continue
		}
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(t *testing.T) (string, core.Dialect) {
				t.Helper()
				return newPostgresOf(t, variable)
			})
			w.ok("migrate", "up")
			reader := w.reader()
			w.exec("GRANT pg_read_all_stats TO " + reader.user())
			slot, standby := unique(), unique()
			w.exec("SELECT pg_create_logical_replication_slot('" + slot + "', 'pgoutput')")
			w.Cleanup(func() {
				once(t, "pgx", server(t, variable), "SELECT pg_drop_replication_slot('"+slot+"')")
			})
			w.feedback(standby)
			for range 10 {
				w.exec("SELECT pg_current_xact_id()")
			}
			reader.requireFinding(levelOK, "transactions", "none has been open")
			for _, what := range []string{
				"slot " + slot + " keeps the old rows of the catalogs", "standby " + standby,
			} {
				w.await("doctor tells of "+what, func() bool {
					return found(reader.doctor("--max-horizon", "9"), "transactions", what).Level == levelWarning
				})
			}
		})
	}
}

// feedback lets a standby without a slot tell the server which transactions its queries see.
func (w *world) feedback(name string) {
	w.Helper()
	cfg, err := pgconn.ParseConfig(w.address)
	must(w, err)
	cfg.RuntimeParams["replication"], cfg.RuntimeParams["application_name"] = "true", name
	conn, err := pgconn.ConnectConfig(w.Context(), cfg)
	must(w, err)
	w.Cleanup(func() { _ = conn.Close(context.Background()) })
	var text, lsn string
	must(w, w.open().QueryRowContext(w.Context(),
		"SELECT pg_current_xact_id()::text, pg_current_wal_flush_lsn()::text").Scan(&text, &lsn))
	id, err := strconv.ParseUint(text, 10, 64)
	must(w, err)
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + lsn})
	must(w, conn.Frontend().Flush())
	for { // until it streams
		msg, err := conn.ReceiveMessage(w.Context())
		must(w, err)
		if _, ok := msg.(*pgproto3.CopyBothResponse); ok {
			break
		}
	}
	message := append([]byte("h"), make([]byte, 24)...) // the time, xmin and its epoch, catalog_xmin and its epoch
	binary.BigEndian.PutUint32(message[9:], uint32(id))
	binary.BigEndian.PutUint32(message[13:], uint32(id>>32))
	conn.Frontend().Send(&pgproto3.CopyData{Data: message})
	must(w, conn.Frontend().Flush())
}

// MySQL fails to list its sessions while one of them runs a statement with binary text.
func TestDoctorBesideBinaryText(t *testing.T) {
	servers(t, func(w *world) {
		if w.dialect != core.MySQL {
			return
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		other := w.open()
		ended := make(chan error, 1)
		go func() { ended <- errOf(other.ExecContext(ctx, "SELECT SLEEP(600), '\xe0\x5c\xd0\xd9'")) }()
		admin := w.open()
		w.await("the statement runs", func() bool {
			var n int
			err := admin.QueryRowContext(w.Context(),
				"SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP(600)%'").Scan(&n)
			return err != nil || n > 0
		})
		w.requireFinding(levelOK, "transactions", "none has been open", "--max-transaction", "100h")
		cancel()
		<-ended
	})
}
