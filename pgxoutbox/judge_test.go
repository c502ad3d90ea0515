package pgxoutbox

import "testing"

var outboxNames = []string{"outbox_"}

// Only statements that are known to touch neither the transaction nor the rows that wait may pass.
func TestJudge(t *testing.T) {
	t.Parallel()
	for want, texts := range map[kind][]string{
		harmless: {
			"SELECT 1", "select 1", "INSERT INTO a VALUES (1)", "Update a SET b = 1", "DELETE FROM a",
			"WITH a AS (SELECT 1) SELECT * FROM a", "MERGE INTO a USING b ON true WHEN MATCHED THEN DELETE",
			"VALUES (1)", "SELECT 1;", "SELECT 1 ; \n", "SELECT(1)", "SELECT/* COMMIT */ 1", "SELECT 'COMMIT'",
			"INSERT INTO inbox_message VALUES (1)", "SELECT outbox FROM a", "SELECT 1 AS commit",
		},
		looking: {
			"SELECT * FROM outbox_event", "SELECT * FROM OutBox_Event", `SELECT * FROM "outbox_open"`,
			"INSERT INTO a SELECT id FROM s.outbox_key", "SELECT 'outbox_event'::regclass",
			"SELECT set_config('search_path', 'a', true)", "SELECT pg_catalog.SET_CONFIG('a', 'b', true)",
			"UPDATE pg_settings SET setting = 'a' WHERE name = 'search_path'",
			`SELECT * FROM U&"\006futbox_event"`, `SELECT * FROM u&"outbo\0078_event"`,
			"SET search_path = a", "set local role a", "RESET ALL", "SHOW a", "LOCK TABLE a",
			"EXPLAIN ANALYZE SELECT 1", "DO 'begin end'", "CALL a()", "DECLARE c CURSOR FOR SELECT 1", "FETCH c",
			"MOVE c", "CLOSE c", "NOTIFY a", "LISTEN a", "UNLISTEN a", "TRUNCATE a", "CREATE TABLE a ()",
			"ALTER TABLE a ADD b int", "DROP TABLE a", "GRANT SELECT ON a TO b", "REVOKE SELECT ON a FROM b",
			"COPY a FROM STDIN",
		},
		other: {
			"", " ", ";", "SAVEPOINT a", "savepoint a", "RELEASE a", "ROLLBACK", "ROLLBACK TO a", "COMMIT", "END",
			"ABORT", "BEGIN", "START TRANSACTION", "PREPARE TRANSACTION 'a'", "PREPARE a AS SELECT 1", "EXECUTE a",
			"DISCARD ALL", "DEALLOCATE a", "TABLE a", "VACUUM", "CHECKPOINT", "(SELECT 1)", "ANALYZE",
			" SELECT 1", "\nSELECT 1", "\fCOMMIT", "--x\rCOMMIT", "/* /* */ */ COMMIT", "/* a */ SELECT 1",
			"-- a\nSELECT 1", "SELECT 1;\fCOMMIT", "SELECT 1;--\rCOMMIT", "SELECT 1; SELECT 2", "SELECT ';'",
			"SET a = 1; COMMIT", "SELECTED 1", "SELECT_1", "select$1", "SELECTé", "INSERTS", "DOCK", "SETS a",
			"UNLISTENS a", "\xef\xbb\xbfSELECT 1", "SELECT 1;\x00", "SELECT 1;;\fROLLBACK", "SELECT 1;\v",
			"SELECT", "insert", // perhaps the names of prepared statements
		},
	} {
		for _, text := range texts {
			if got := judge(text, false, outboxNames); got != want {
				t.Errorf("%q is %d, want %d", text, got, want)
			}
		}
	}
}

// The extended protocol takes one statement, so a semicolon says nothing there. Without rows that
// wait, names of tables say nothing.
func TestJudgeExtended(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		text     string
		extended bool
		names    []string
		want     kind
	}{
		{"INSERT INTO a VALUES ($1, ';')", true, outboxNames, harmless},
		{"INSERT INTO a VALUES ($1, ';')", false, outboxNames, other},
		{"SELECT 1; COMMIT", true, outboxNames, harmless}, // the server refuses it
		{"COMMIT", true, outboxNames, other},
		{"SELECT * FROM outbox_event WHERE a = $1", true, outboxNames, looking},
		{"SELECT * FROM outbox_event", false, nil, harmless},
		{"SELECT * FROM orders_out_event", false, []string{"orders_out_"}, looking},
	} {
		if got := judge(tc.text, tc.extended, tc.names); got != tc.want {
			t.Errorf("%q, extended %t, %v is %d, want %d", tc.text, tc.extended, tc.names, got, tc.want)
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add("SELECT 1", "outbox_")
	f.Add("\fCOMMIT", "a")
	f.Fuzz(func(t *testing.T, text, name string) {
		if name == "" {
			return
		}
		plain, extended := judge(text, false, []string{name}), judge(text, true, []string{name})
		if plain < extended {
			t.Errorf("%q is %d, and in the extended protocol %d", text, plain, extended)
		}
		if text != "" && judge(" "+text, true, nil) != other {
			t.Errorf("%q passes with a blank in front", text)
		}
	})
}
