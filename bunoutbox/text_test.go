package bunoutbox

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// What needs a database is tested in the module "integration", on PostgreSQL, MariaDB and SQLite.

func TestBlank(t *testing.T) {
	for _, tc := range []struct {
		dialect     core.Dialect
		query, want string
	}{
		{core.Postgres, `SELECT 'a b' AND x`, `SELECT '   ' AND x`},
		{core.Postgres, `SELECT 'it''s' AND x`, `SELECT '  '' ' AND x`},
		{core.Postgres, `SELECT '\' AND 'x'`, `SELECT ' ' AND ' '`},
		{core.MySQL, `SELECT '\' AND ' AND x`, `SELECT '       ' AND x`},
		{core.SQLite, `SELECT 'never closed AND`, `SELECT '                `},
		{core.SQLite, ``, ``},
	} {
		got := blank(tc.query, tc.dialect)
		if got != tc.want {
			t.Errorf("%s on %s: %s, want %s", tc.query, tc.dialect, got, tc.want)
		}
		if len(got) != len(tc.query) {
			t.Errorf("%s on %s: positions have moved", tc.query, tc.dialect)
		}
	}
}

func TestInsertKind(t *testing.T) {
	for query, want := range map[string]struct {
		op    core.Op
		skips bool
	}{
		`INSERT INTO "t" ("a") VALUES ('x')`:                                       {core.OpCreate, false},
		`INSERT INTO "t" ("a") VALUES (' ON CONFLICT DO NOTHING') RETURNING "id"`:  {core.OpCreate, false},
		`INSERT INTO "t" ("a") VALUES ('x') ON CONFLICT DO NOTHING RETURNING "id"`: {core.OpUpsert, true},
		`INSERT INTO "t" ("a") VALUES (1) on conflict (a) do nothing`:              {core.OpUpsert, true},
		`INSERT INTO "t" ("a") VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 1`:     {core.OpUpsert, false},
		"INSERT INTO `t` (`a`) VALUES (1) ON DUPLICATE KEY UPDATE a = 1":           {core.OpUpsert, false},
		"INSERT IGNORE INTO `t` (`a`) VALUES (1)":                                  {core.OpUpsert, true},
		"REPLACE INTO `t` (`a`) VALUES (1)":                                        {core.OpUpsert, false},
		"/* INSERT IGNORE */ INSERT INTO `t` (`a`) VALUES ('REPLACE INTO')":        {core.OpCreate, false},
	} {
		if op, skips := insertKind(query, core.Postgres); op != want.op || skips != want.skips {
			t.Errorf("%s: %s, %v; want %s, %v", query, op, skips, want.op, want.skips)
		}
	}
}

func TestLastCondition(t *testing.T) {
	const condition = `("t"."id" = 'it''s')`
	for query, want := range map[string]bool{
		`UPDATE t SET a = 1 WHERE ("t"."id" = 'it''s')`:                    true,
		`UPDATE t SET a = 1 WHERE (a = 2) AND ("t"."id" = 'it''s')`:        true,
		`UPDATE t SET a = 1 WHERE (a = 2) OR ("t"."id" = 'it''s')`:         false,
		`UPDATE t SET a = 1 WHERE (NOT ("t"."id" = 'it''s'))`:              false,
		`UPDATE t SET a = ' WHERE ("t"."id" = ''it''''s'')' WHERE (b = 1)`: false,
		`UPDATE t SET a = 1 WHERE (b = 1)`:                                 false,
	} {
		if got := lastCondition(query, blank(query, core.Postgres), condition) >= 0; got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}
