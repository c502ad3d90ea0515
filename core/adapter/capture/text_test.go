package capture

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestParseChange(t *testing.T) {
	for text, want := range map[string][]string{ // table, where, tail
		"UPDATE `o` SET `a`=?,`b`=(SELECT 1 WHERE 2) WHERE `c` = ? -- x": {"`o`", "`c` = ? -- x", ""},
		"UPDATE `o` AS x SET a = 'WHERE' ORDER BY b LIMIT 2":             {"`o` AS x", "", "ORDER BY b LIMIT 2"},
		"DELETE FROM `o` WHERE a IN (SELECT b FROM c ORDER BY d) LIMIT ?": {
			"`o`", "a IN (SELECT b FROM c ORDER BY d)", "LIMIT ?",
		},
		"/* hint */ DELETE FROM o":                                {"o", "", ""},
		"WITH x AS (SELECT 1 WHERE 2) UPDATE o SET a = 1 WHERE b": {"o", "b", ""},
		"UPDATE IGNORE o SET a = \"it\\\"s WHERE\" WHERE b":       {"o", "b", ""},
	} {
		args := make([]any, strings.Count(text, "?"))
		c, err := parseChange(core.OpUpdate, text, args)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for i, got := range []string{c.table.text, c.where.text, c.tail.text} {
			if strings.TrimSpace(got) != want[i] {
				t.Errorf("%s: part %d is %q, want %q", text, i, got, want[i])
			}
		}
		if n := len(c.head.args) + len(c.where.args) + len(c.tail.args); n != len(args) {
			t.Errorf("%s: its parts have %d arguments of %d", text, n, len(args))
		}
	}
	for _, text := range []string{
		"UPDATE a, b SET a.x = 1", "UPDATE a JOIN b ON 1 SET a.x = 1", "UPDATE o SET a = 'open", "UPDATE o SET (a = 1",
		"UPDATE o SET a = 1 /*! WHERE b */", "WITH x AS (SELECT 1) UPDATE o, y SET a = 1", "WITH x AS (SELECT 1)", "",
		"UPDATE o", "UPDATE o SET a = ?",
	} {
		if c, err := parseChange(core.OpUpdate, text, nil); err == nil {
			t.Errorf("%s was read as %+v", text, c)
		}
	}
}

// The rows of an update that is joined with table expressions are those of its table.
func TestParseJoined(t *testing.T) {
	c, err := parseChange(core.OpUpdate, "WITH `_data` (`id`) AS (VALUES ROW(1), ROW(2)), more AS (SELECT 1) "+
		"UPDATE `o` AS `a`, `_data`, more m SET `a`.`n` = _data.n WHERE (`a`.`id` = `_data`.`id`)", nil)
	if err != nil || strings.TrimSpace(c.own.text) != "`o` AS `a`" || c.as != "`a`" ||
		!strings.HasPrefix(c.with.text, "WITH `_data`") || strings.Contains(c.with.text, "UPDATE") {
		t.Errorf("%+v, %v", c, err)
	}
	if _, ok := c.sets["n"]; !ok || len(c.sets) != 1 {
		t.Errorf("it sets %v", c.sets)
	}
}

func TestReadText(t *testing.T) {
	for _, tc := range []struct {
		d       core.Dialect
		text    string
		op      core.Op
		nothing bool
		column  string
	}{
		{core.Postgres, `INSERT INTO "o" ("id") VALUES ('ON CONFLICT DO NOTHING')`, core.OpCreate, false, "id"},
		{
			core.Postgres, `INSERT INTO "o" AS "a" (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET n = 2`, core.OpUpsert,
			false, "id",
		},
		{core.SQLite, `INSERT INTO o SELECT 1 FROM a JOIN b ON c ON CONFLICT DO NOTHING`, core.OpCreate, true, "id"},
		{core.MySQL, "INSERT IGNORE INTO o (id) VALUES (1)", core.OpCreate, true, "id"},
		{core.MySQL, "INSERT INTO o (id) VALUES (1) ON DUPLICATE KEY UPDATE `id` = id", core.OpCreate, true, "id"},
		{core.MySQL, "INSERT INTO o (id) VALUES (1) ON DUPLICATE KEY UPDATE n = VALUES(n)", core.OpUpsert, false, "id"},
		{
			core.MySQL,
			"INSERT INTO o VALUES (?) ON DUPLICATE KEY UPDATE `a` = `o`.`a`, `id` = LAST_INSERT_ID(`o`.`id`)",
			core.OpCreate, true, "id",
		},
		{
			core.MySQL, "INSERT INTO o (a) VALUES (?) ON DUPLICATE KEY UPDATE a = VALUES(a), id = LAST_INSERT_ID(o.id)",
			core.OpUpsert, false, "id",
		},
		{
			core.MySQL, "INSERT INTO o VALUES (?) ON DUPLICATE KEY UPDATE a = ?, id = id RETURNING id", core.OpUpsert,
			false, "id",
		},
		{core.MySQL, "REPLACE INTO o (id) VALUES (1)", core.OpUpsert, false, "id"},
		{
			core.Postgres, `/* c */ WITH "x" AS (SELECT 1) UPDATE s."o" AS "a" SET n = 1 FROM x`, core.OpUpdate, false,
			`"a".id`,
		},
		{core.Postgres, `UPDATE ONLY "s"."o" SET "n" = 1`, core.OpUpdate, false, `"o".id`},
		{core.Postgres, `DELETE FROM o USING p AS x WHERE x.id = o.id`, core.OpUpdate, false, "o.id"},
		{core.SQLite, `DELETE FROM o WHERE id = 1`, core.OpUpdate, false, "id"},
	} {
		c := &Capture{st: Statement{Op: core.OpUpdate, Columns: []string{"id"}}, tx: dialectTx{d: tc.d}}
		all, err := tokens(tc.d, tc.text)
		if err != nil {
			t.Fatal(err)
		}
		c.readText(tc.text, all)
		if c.st.Op != tc.op || c.st.DoNothing != tc.nothing || c.st.Columns[0] != tc.column {
			t.Errorf("%s: %s, do nothing %v, %s", tc.text, c.st.Op, c.st.DoNothing, c.st.Columns[0])
		}
	}
}

func TestReadWrite(t *testing.T) {
	for text, want := range map[string]Write{
		`INSERT INTO "t" ("a", "b") VALUES ($1, $2)`:                            {"INSERT", "t", 1},
		`INSERT INTO "t" ("a (VALUES)") VALUES ($1), ($2), ($3) RETURNING "id"`: {"INSERT", "t", 3},
		"INSERT INTO `t` (`a`) VALUES (?), (LOWER('),(')), (?) ON DUPLICATE KEY UPDATE `a` = VALUES(`a`)": {
			"INSERT", "t", 3,
		},
		`INSERT INTO "s"."t" DEFAULT VALUES`:                                    {"INSERT", "s.t", 1},
		"INSERT INTO `t` VALUES ()":                                             {"INSERT", "t", 1},
		`INSERT INTO "t" ("a") VALUES (?), (?) ON CONFLICT ("a") DO NOTHING`:    {"INSERT", "t", 2},
		`INSERT INTO t (a) VALUES (?) ON CONFLICT (a) DO UPDATE SET b = (2), c`: {"INSERT", "t", 1},
		"/* app=shop */ -- x\n # y\nupdate `s`.`t` SET `a` = ?":                 {"UPDATE", "s.t", 1},
		"/*! a */ /* b /* c */ UPDATE T SET a = 1":                              {"UPDATE", "T", 1},
		`DELETE FROM ONLY "t" WHERE "t"."id" = ?`:                               {"DELETE", "t", 1},
		`WITH "x" AS (SELECT 1) UPDATE "t" SET "a" = 1`:                         {"WITH", "t", 1},
	} {
		if got, ok := ReadWrite(core.MySQL, strings.ReplaceAll(text, `"`, "`")); !ok || got != want {
			t.Errorf("%s: %+v, %v, want %+v", text, got, ok, want)
		}
	}
	for _, text := range []string{
		`SELECT "a" FROM "t" WHERE "a" = 'UPDATE "t"' FOR UPDATE`, `/* INSERT INTO "t" */`, "", "SAVEPOINT s",
		`WITH "x" AS (SELECT 1) SELECT * FROM "x"`, "/* open", "INSERT", `DELETE FROM "open`, "/*! open",
	} {
		if got, ok := ReadWrite(core.Postgres, text); ok {
			t.Errorf("%s is %+v", text, got)
		}
	}
}

// dialectTx is a transaction that has only a dialect.
type dialectTx struct {
	Tx
	d core.Dialect
}

func (t dialectTx) Dialect() core.Dialect { return t.d }

func TestTwice(t *testing.T) {
	lock := lockInShare
	for text, want := range map[string]string{
		"a = 1":                     "a = 1",
		"a IN (SELECT b FROM c)":    "a IN (SELECT b FROM c" + lock + ")",
		"a IN (SELECT (SELECT 1))":  "a IN (SELECT (SELECT 1" + lock + ")" + lock + ")",
		"a = 'RAND()' AND rand = 1": "a = 'RAND()' AND rand = 1",
	} {
		if p, err := twice(piece{text: text}); err != nil || p.text != want {
			t.Errorf("%s: %q, %v, want %q", text, p.text, err, want)
		}
	}
	for _, text := range []string{
		"a < RAND()", "a = uuid ()", "a IN (SELECT 1 UNION SELECT 2)", "a IN (SELECT b FROM c FOR UPDATE)",
	} {
		if p, err := twice(piece{text: text}); err == nil {
			t.Errorf("%s may be read twice: %q", text, p.text)
		}
	}
}

func TestParseInsert(t *testing.T) {
	in, err := parseInsert("INSERT INTO `o` (`id`,`n`) VALUES (?,(SELECT ?)),(DEFAULT,'a,b'),(7,NULL) "+
		"ON DUPLICATE KEY UPDATE `n`=VALUES(`n`),`o`.`id`=? RETURNING `id`", []any{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := in.of([]string{"`id`"})
	if err != nil || len(keys) != 3 || keys[0][0] != int64(1) || keys[1] != nil || keys[2][0] != Literal("7") {
		t.Errorf("the keys are %v, %v", keys, err)
	}
	if _, err := in.of([]string{"n"}); err == nil {
		t.Error("an expression was taken for a key")
	}
	if in.table != "`o`" || !in.onUpdate || strings.TrimSpace(in.rest.text) != "RETURNING `id`" ||
		len(in.end.args) != 3 {
		t.Errorf("%+v", in)
	}
	if !isValues(in.sets["n"].text, "n") || isValues(in.sets["id"].text, "id") {
		t.Errorf("the assignments are %+v", in.sets)
	}
	for _, text := range []string{"INSERT INTO o SELECT 1", "INSERT INTO o (a VALUES (1)"} {
		if in, err := parseInsert(text, nil); err == nil {
			t.Errorf("%s was read as %+v", text, in)
		}
	}
}

func TestReturningInText(t *testing.T) {
	for text, want := range map[string]bool{
		"UPDATE o SET a = 1 RETURNING a":                  true,
		"UPDATE o SET a = 1 -- RETURNING a":               false,
		"UPDATE o SET a = 'RETURNING'":                    false,
		"UPDATE o SET a = (SELECT RETURNING)":             false,
		"UPDATE o SET a = $x$ ' $x$ RETURNING a":          true,
		"UPDATE o SET \"RETURNING\" = E'\\'' /* x */":     false,
		"UPDATE o SET a = b #> '{}' /* -- */ RETURNING a": true,
	} {
		all, err := tokens(core.Postgres, text)
		if got := hasReturning(all); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestCountParams(t *testing.T) {
	for _, tc := range []struct {
		d    core.Dialect
		text string
		want int
	}{
		{core.Postgres, "a = $1 AND b ? 'c' AND d = $12", 12},
		{core.SQLite, "a = ? -- ?\nAND [?] = '?' AND b = ?", 2},
		{core.MySQL, "a = ? # ?\nAND `?` = \"?\" AND b = ?", 2},
	} {
		all, err := tokens(tc.d, tc.text)
		if got := countParams(all); err != nil || got != tc.want {
			t.Errorf("%s: %d, %v, want %d", tc.text, got, err, tc.want)
		}
	}
}

// No text makes the parsers panic, and the parts of a text that they can read are the whole of it.
func FuzzParse(f *testing.F) {
	f.Add("UPDATE `o` SET `a`=1,`b`=(SELECT 1) WHERE `c` = 'x' ORDER BY d LIMIT 1")
	f.Add("INSERT INTO `o` (`id`) VALUES (1),(DEFAULT) ON DUPLICATE KEY UPDATE `n`=VALUES(`n`) RETURNING a")
	f.Fuzz(func(t *testing.T, text string) {
		args := make([]any, strings.Count(text, "?"))
		if c, err := parseChange(core.OpUpdate, text, args); err == nil {
			if !strings.HasPrefix(strings.TrimSpace(text), c.head.text) {
				t.Errorf("%q begins with %q", text, c.head.text)
			}
			_, _ = twice(c.where)
		}
		if in, err := parseInsert(text, args); err == nil && in.end.text+in.rest.text != text {
			t.Errorf("%q is %q and %q", text, in.end.text, in.rest.text)
		}
	})
}
