package sqltext_test

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core/internal/sqltext"
)

const (
	pg = 1 << iota
	my
	lite
	other
	all = pg | my | lite | other
)

var dialects = map[int]sqltext.Dialect{
	pg: sqltext.Postgres, my: sqltext.MySQL, lite: sqltext.SQLite,
	other: sqltext.Other,
}

var texts = []struct {
	on   int
	text string
	kind sqltext.Kind
	name string
}{
	{all, "", sqltext.Empty, ""},
	{all, " ;; \n", sqltext.Empty, ""},
	{all, "/* nothing */ -- at all", sqltext.Empty, ""},
	{all, "SELECT 1", sqltext.Harmless, ""},
	{all, "select 1;", sqltext.Harmless, ""},
	{all, "\r\n\t INSERT INTO t VALUES (';')", sqltext.Harmless, ""},
	{all, "UPDATE t SET a = 'it''s; COMMIT' WHERE b = ?;\n", sqltext.Harmless, ""},
	{all, "SELECT 1; SELECT 2", sqltext.Harmless, ""},
	{all, "SELECT 'COMMIT; ROLLBACK'; SELECT \"; END\"", sqltext.Harmless, ""},
	{all, "SELECT ''';COMMIT'; SELECT 2", sqltext.Harmless, ""},
	{pg | my, "(SELECT 1) UNION (SELECT 2)", sqltext.Harmless, ""},
	{pg, "CALL p()", sqltext.Harmless, ""},
	{my, "CALL p()", sqltext.Opaque, ""},
	{pg, "EXECUTE p", sqltext.Harmless, ""},
	{my, "EXECUTE p", sqltext.Opaque, ""},
	{my, "EXECUTE IMMEDIATE 'COMMIT'", sqltext.Opaque, ""},
	{pg, "DO $$ BEGIN PERFORM 1; END $$", sqltext.Harmless, ""},
	{pg, "SELECT $a$ ; COMMIT $a$; SELECT 1", sqltext.Harmless, ""},
	{pg, "SELECT $1; COMMIT", sqltext.Hidden, ""},
	{pg, "SELECT a$a$ ; COMMIT", sqltext.Hidden, ""},
	{pg, `SELECT E'\'; COMMIT'; SELECT 1`, sqltext.Harmless, ""},
	{pg, `SELECT '\'; COMMIT; SELECT '`, sqltext.Hidden, ""},
	{pg, `SELECT 'C:\', '; COMMIT'`, sqltext.Opaque, ""}, // if standard_conforming_strings is off
	{my, `SELECT 'it\'s; COMMIT'`, sqltext.Opaque, ""},   // if NO_BACKSLASH_ESCAPES is on
	{my, `SELECT 'a\nb; c'`, sqltext.Harmless, ""},
	{lite, `SELECT '\'; COMMIT`, sqltext.Hidden, ""},
	{lite, "SELECT [a;b]; SELECT `;COMMIT`", sqltext.Harmless, ""},

	{all, "SAVEPOINT s1", sqltext.Savepoint, "s1"},
	{all, " savepoint\n\tS1 ; ", sqltext.Savepoint, "s1"},
	{all, `SAVEPOINT "S1"`, sqltext.Savepoint, "s1"},
	{all, "SAVEPOINT `s1`", sqltext.Savepoint, "s1"},
	{all, "/* one */ SAVEPOINT /* two */ s1 -- three", sqltext.Savepoint, "s1"},
	{all, "RELEASE s1", sqltext.Release, "s1"},
	{all, "RELEASE SAVEPOINT s1;", sqltext.Release, "s1"},
	{all, "ROLLBACK TO s1", sqltext.RollbackTo, "s1"},
	{all, "ROLLBACK WORK TO SAVEPOINT s1", sqltext.RollbackTo, "s1"},
	{all, "ROLLBACK TRANSACTION TO s1", sqltext.RollbackTo, "s1"},
	{all, "SAVE TRAN s1", sqltext.Savepoint, "s1"},
	{all, "ROLLBACK TRAN s1", sqltext.RollbackTo, "s1"},
	{lite, "ROLLBACK TRANSACTION x TO s1", sqltext.Hidden, ""},
	{all, `SAVEPOINT "a""b"`, sqltext.Hidden, ""},
	{all, "SAVEPOINT é", sqltext.Hidden, ""},
	{all, "SAVEPOINT", sqltext.Hidden, ""},
	{all, "SAVEPOINT a b", sqltext.Hidden, ""},
	{pg, `SAVEPOINT U&"\0061"`, sqltext.Hidden, ""},
	{all, "SAVEPOINT a; SELECT 1", sqltext.Hidden, ""},
	{all, "SELECT 1; ROLLBACK TO s1", sqltext.Hidden, ""},
	{all, "SAVEPOINT " + strings.Repeat("a", 70), sqltext.Savepoint, strings.Repeat("a", 63)},

	{all, "COMMIT", sqltext.End, ""},
	{all, "COMMIT AND CHAIN;", sqltext.End, ""},
	{all, "ROLLBACK", sqltext.End, ""},
	{all, "ROLLBACK WORK", sqltext.End, ""},
	{all, "\fROLLBACK", sqltext.End, ""},
	{all, "\vROLLBACK", sqltext.End, ""},
	{all, "END", sqltext.End, ""},
	{all, "ABORT", sqltext.End, ""},
	{all, "BEGIN", sqltext.End, ""},
	{all, "START TRANSACTION", sqltext.End, ""},
	{pg, "PREPARE TRANSACTION 'x'", sqltext.End, ""},
	{my, "XA END 'x'", sqltext.End, ""},
	{all, ";ROLLBACK", sqltext.End, ""},
	{all, "-- x\nROLLBACK", sqltext.End, ""},
	{pg, "--x\rROLLBACK", sqltext.End, ""},
	{lite | my | other, "-- x\rROLLBACK", sqltext.Empty, ""},
	{my, "--x\nROLLBACK", sqltext.Opaque, ""}, // two minus signs
	{my, "#x\nROLLBACK", sqltext.End, ""},
	{pg, "/* /* */ */ ROLLBACK", sqltext.End, ""},
	{pg, "/* /* */ ROLLBACK */ SELECT 1", sqltext.Harmless, ""},
	{my | lite, "/* /* */ ROLLBACK", sqltext.End, ""},
	{my | lite, "/* /* */ */ ROLLBACK", sqltext.Opaque, ""},
	{pg | my, "/* ROLLBACK", sqltext.Opaque, ""},
	{lite, "/* ROLLBACK", sqltext.Empty, ""},
	{lite, "\uFEFFROLLBACK", sqltext.End, ""},
	{pg | my, "\uFEFFROLLBACK", sqltext.Opaque, ""},
	{all, "\u00A0ROLLBACK", sqltext.Opaque, ""},
	{my, "\xA0ROLLBACK", sqltext.Opaque, ""},
	{all, "SELECT 1;\fROLLBACK", sqltext.Hidden, ""},
	{all, "SELECT 1;/**/COMMIT", sqltext.Hidden, ""},
	{all, "SELECT '; --' ; ROLLBACK", sqltext.Hidden, ""},
	{all, "COMMIT; SELECT 1", sqltext.Hidden, ""},
	{my, "/*!50000 ROLLBACK */", sqltext.Opaque, ""},
	{my, "/*M!100000 COMMIT */", sqltext.Opaque, ""},
	{my, "/*!99999 SELECT 1 */ ROLLBACK", sqltext.Opaque, ""},
	{my, "/*!40101 SET NAMES utf8 */;", sqltext.Harmless, ""},
	{my, "/* /*! */ /*! ROLLBACK */", sqltext.Opaque, ""},
	{my, "SAVEPOINT /*!50000 a */ b", sqltext.Hidden, ""},
	{my, "SELECT 1 /*!99999 ' */ ; ROLLBACK -- ' */", sqltext.Hidden, ""},
	{my, strings.Repeat("/*!1*/", 40) + "SELECT 1", sqltext.Hidden, ""},
	{pg | lite, "/*!50000 ROLLBACK */ SELECT 1", sqltext.Harmless, ""},

	{my, "CREATE TABLE t (n INT)", sqltext.End, ""},
	{my, "CREATE OR REPLACE TABLE t (n INT)", sqltext.End, ""},
	{my, "CREATE TEMPORARY TABLE t (n INT)", sqltext.Harmless, ""},
	{my, "DROP TABLE t", sqltext.End, ""},
	{my, "DROP TEMPORARY TABLE t", sqltext.Harmless, ""},
	{my, "DROP /*!40000 TEMPORARY */ TABLE t", sqltext.Opaque, ""},
	{my, "TRUNCATE t", sqltext.End, ""},
	{my, "LOCK TABLES t READ", sqltext.End, ""},
	{my, "UNLOCK TABLES", sqltext.Opaque, ""},
	{my, "SET @a = 1", sqltext.Harmless, ""},
	{my, "SET SESSION time_zone = '+00:00'", sqltext.Harmless, ""},
	{my, "SET autocommit = 1", sqltext.Opaque, ""},
	{my, "SET @@SESSION.AutoCommit = 1", sqltext.Opaque, ""},
	{my, "SET STATEMENT max_statement_time=1 FOR COMMIT", sqltext.Opaque, ""},
	{my, "ANALYZE TABLE t", sqltext.Opaque, ""},
	{my, "LOAD DATA INFILE 'x' INTO TABLE t", sqltext.Opaque, ""},
	{pg | lite, "CREATE TABLE t (n INT)", sqltext.Harmless, ""},
	{all, "FROBNICATE", sqltext.Opaque, ""},
	{all, "SELECTED", sqltext.Opaque, ""},
	{all, "SELECT_ALL_OF_IT_WITHOUT_A_BREAK", sqltext.Opaque, ""},
}

func TestRead(t *testing.T) {
	for _, tc := range texts {
		for bit, d := range dialects {
			if tc.on&bit == 0 {
				continue
			}
			k, name := sqltext.Read(d, tc.text)
			if k != tc.kind || name.Folded != tc.name {
				t.Errorf("dialect %d: %q is %d %q, want %d %q", d, tc.text, k, name.Folded, tc.kind, tc.name)
			}
		}
	}
}

// Read runs before every statement goes to the database, so the usual statements must not allocate.
func TestReadDoesNotAllocate(t *testing.T) {
	for _, text := range usual {
		for _, d := range dialects {
			if n := testing.AllocsPerRun(100, func() { sqltext.Read(d, text) }); n != 0 {
				t.Errorf("dialect %d: %q allocates %v times", d, text, n)
			}
		}
	}
}

var usual = []string{
	"INSERT INTO outbox_event (id, event_id, event_type, topic, payload) VALUES ($1, $2, $3, $4, $5) RETURNING id",
	"UPDATE orders SET status = ? WHERE id = ?;",
	"/* trace */ SELECT id, status, total FROM orders WHERE customer = ? AND status IN (?, ?, ?) ORDER BY id LIMIT 100",
	"SAVEPOINT sp1",
	"ROLLBACK TO SAVEPOINT sp1",
	"INSERT INTO notes (body) VALUES ('one; two; three')",
}

func BenchmarkRead(b *testing.B) {
	for _, text := range usual {
		b.Run(strings.ReplaceAll(text[:12], " ", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sqltext.Read(sqltext.Postgres, text)
			}
		})
	}
}

// FuzzRead requires that the result does not depend on case, nor on whitespace and comments in
// front. Read must also see every statement that follows the text, if the text ends in no literal
// or comment.
func FuzzRead(f *testing.F) {
	for _, tc := range texts {
		f.Add(tc.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range dialects {
			k, _ := sqltext.Read(d, text)
			if ascii(text) {
				if u, _ := sqltext.Read(d, strings.ToUpper(text)); u != k && !strings.Contains(text, "$") {
					t.Errorf("dialect %d: %q is %d, in upper case %d", d, text, k, u)
				}
			}
			if p, _ := sqltext.Read(d, "\f/* before */\n"+text); p != k && !strings.HasPrefix(text, "*/") {
				t.Errorf("dialect %d: %q is %d, behind a comment %d", d, text, k, p)
			}
			if k > sqltext.Empty {
				continue
			}
			for _, control := range []string{"ROLLBACK", "\fCOMMIT", "SAVEPOINT s", "/**/ROLLBACK TO s"} {
				// The control follows a line end and the ends of all comments and literals, in both
				// orders.
				for _, closing := range []string{"\n;", "\n*/;", "\n';", "\n\";"} {
					if n, _ := sqltext.Read(d, text+closing+control); n <= sqltext.Empty && executes(d, text+closing) {
						t.Errorf("dialect %d: %q is judged %d", d, text+closing+control, n)
					}
				}
			}
		}
	})
}

// executes reports whether a statement behind prefix is certainly run, because prefix contains no
// opening sign of a literal or a comment.
func executes(_ sqltext.Dialect, prefix string) bool {
	return !strings.ContainsAny(prefix, "'\"`[$/*-#\\")
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
