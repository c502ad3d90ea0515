package bunoutbox

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// Code that needs a database is tested in the module "integration", on PostgreSQL, MariaDB and
// SQLite.

func TestParseInsert(t *testing.T) {
	for query, want := range map[string]insertRows{
		`INSERT INTO "t" ("a") VALUES ('x')`:                                      {values: true},
		`INSERT INTO "t" ("a") VALUES (' ON CONFLICT DO NOTHING') RETURNING "id"`: {values: true},
		`INSERT INTO "t" ("a") VALUES ('x') ON CONFLICT DO NOTHING RETURNING "id"`: {
			values: true, upsert: true, skips: true,
		},
		`INSERT INTO "t" ("a") VALUES (1) on conflict (a, "B") do nothing`: {
			values: true, upsert: true, skips: true, targets: []string{"a", "B"},
		},
		`INSERT INTO "t" ("a") VALUES (1) ON CONFLICT (lower(a)) ` +
			`DO UPDATE SET a = (SELECT 1 WHERE (TRUE)) WHERE "t"."a" = ' DO NOTHING'`: {
			values: true, upsert: true,
		},
		"INSERT INTO `t` (`a`) VALUES (1) ON DUPLICATE KEY UPDATE a = 1":    {values: true, upsert: true},
		"INSERT IGNORE INTO `t` (`a`) VALUES (1)":                           {values: true, upsert: true, skips: true},
		"REPLACE INTO `t` (`a`) VALUES (1)":                                 {values: true, upsert: true},
		"/* INSERT IGNORE */ INSERT INTO `t` (`a`) VALUES ('REPLACE INTO')": {values: true},
		`INSERT INTO "t" ("a") SELECT "a" FROM "u"`:                         {},
	} {
		p := parse(query, core.Postgres)
		if !p.understood || !reflect.DeepEqual(p.rows, want) {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

func TestParseChange(t *testing.T) {
	for query, want := range map[string]parsed{
		`UPDATE "t" AS "a" SET "x" = 1, y = 'it''s, WHERE' ` +
			`WHERE ("a"."id" = 1) AND (b IN (SELECT 1 FROM u WHERE id = 2)) RETURNING "a"."x", *`: {
			verb: "UPDATE", target: `"t" AS "a"`, set: []assignment{{"x", "1"}, {"y", "'it''s, WHERE'"}},
			where:     `("a"."id" = 1) AND (b IN (SELECT 1 FROM u WHERE id = 2))`,
			returning: columns{any: true, all: true, names: map[string]bool{"x": true}},
		},
		`WITH "_data" ("id") AS (VALUES (1)) ` +
			`UPDATE "t" AS "a" SET "x" = _data."x" FROM _data WHERE ("a"."id" = _data."id")`: {
			verb: "UPDATE", with: `WITH "_data" ("id") AS (VALUES (1)) `, target: `"t" AS "a"`, others: true,
			set: []assignment{{"x", `_data."x"`}}, where: `("a"."id" = _data."id")`,
		},
		`UPDATE "t" SET "x" = "x" IS DISTINCT FROM 2 WHERE (id = 1)`: {
			verb: "UPDATE", target: `"t"`, set: []assignment{{"x", `"x" IS DISTINCT FROM 2`}}, where: "(id = 1)",
		},
		`UPDATE "t", "u" SET "t"."x" = 1 WHERE (id = 1) ORDER BY "x" LIMIT 2`: {
			verb: "UPDATE", target: `"t"`, others: true, set: []assignment{{"x", "1"}}, where: "(id = 1)",
			limited: true,
		},
		`UPDATE "t" SET ("x", "y") = (1, 2) WHERE (id = 1)`: {
			verb: "UPDATE", target: `"t"`, set: []assignment{{}}, where: "(id = 1)",
		},
		`DELETE FROM "t" AS "a" USING "u" WHERE (id = 1) RETURNING count(*) AS id, "id"`: {
			verb: "DELETE", target: `"t" AS "a"`, others: true, where: "(id = 1)",
			returning: columns{any: true, odd: true, names: map[string]bool{"id": true}},
		},
	} {
		want.understood = true
		if p := parse(query, core.Postgres); !reflect.DeepEqual(p, want) {
			t.Errorf("%s:\n%+v, want\n%+v", query, p, want)
		}
	}
}

// A text that could hide a clause counts as not understood.
func TestParseIsSure(t *testing.T) {
	for _, query := range []string{
		``, `SELECT 1`, `UPDATE t SET a = 1 WHERE (id = 1`, `UPDATE t SET a = 1 WHERE id = 1)`,
		`UPDATE t SET a = 'x WHERE (id = 1)`, `UPDATE t SET a = 1 WHERE (id = 1) -- OR TRUE`,
		`UPDATE t SET a = 1 /* x */ WHERE (id = 1)`, `UPDATE t SET a = 1 WHERE (id = 1); DELETE FROM t`,
		`/*! x */ UPDATE t SET a = 1 WHERE (id = 1)`, `/* /* x */ UPDATE t SET a = 1 WHERE (id = 1)`,
		`UPDATE t SET a = $x$ WHERE (id = 1) $x$`, `UPDATE t SET a = 1 WHERE (id = 1) WHERE (b = 1)`,
		"UPDATE t SET a = 1 WHERE (id = 1)\r", `DELETE t WHERE (id = 1)`,
	} {
		if p := parse(query, core.Postgres); p.understood {
			t.Errorf("%s: %+v", query, p)
		}
	}
	for query, d := range map[string]core.Dialect{
		`UPDATE t SET a = 1 WHERE (id = 1) # OR TRUE`: core.MySQL,
		`UPDATE t SET a = '\' WHERE (id = 1)`:         core.MySQL,
		`UPDATE t SET a = [x WHERE (id = 1)] = 1`:     core.SQLite,
	} {
		if p := parse(query, d); p.understood {
			t.Errorf("%s: %+v", query, p)
		}
	}
}

func TestConjuncts(t *testing.T) {
	for condition, want := range map[string][]string{
		`(id = 1)`: {`id = 1`},
		`(a = 'x AND y') AND ((id = 1) AND ((b)))`:  {`a = 'x AND y'`, `id = 1`, `b`},
		`(a = 1) OR (id = 1)`:                       {`(a = 1) OR (id = 1)`},
		`(a = 1 OR id = 1) AND (b = 1)`:             {`a = 1 OR id = 1`, `b = 1`},
		`(NOT (id = 1)) AND NOT (b = 1)`:            {`NOT (id = 1)`, `NOT (b = 1)`},
		`(a BETWEEN 1 AND id = 1)`:                  {`a BETWEEN 1 AND id = 1`},
		`(a || b AND id = 1)`:                       {`a || b AND id = 1`},
		`(a XOR b AND id = 1)`:                      {`a XOR b AND id = 1`},
		`(CASE WHEN a AND id = 1 AND b THEN 1 END)`: {`CASE WHEN a AND id = 1 AND b THEN 1 END`},
		`("id" = 'it''s (1) AND') AND id IN (1, 2)`: {`"id" = 'it''s (1) AND'`, `id IN (1, 2)`},
		`(EXISTS (SELECT 1 FROM u WHERE (id = 1)))`: {`EXISTS (SELECT 1 FROM u WHERE (id = 1))`},
		`(id = ANY(ARRAY[1, 2])) AND (a[1] = id)`:   {`id = ANY(ARRAY[1, 2])`, `a[1] = id`},
		`(E'\' AND id = 1 AND ' = a) AND (id = 2)`:  {`E'\' AND id = 1 AND ' = a`, `id = 2`},
		`(a = 1)) AND (id = 1`:                      nil,
	} {
		if got := conjuncts(condition, core.Postgres); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", condition, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`UPDATE "t" AS "a" SET "x" = 1 WHERE ("a"."id" = 1) AND (b = 'x') RETURNING *`, true)
	f.Add("DELETE FROM `t` WHERE (`id` IN (1, 2)) LIMIT 3", false)
	f.Add(`INSERT INTO "t" ("a") VALUES (1), ('(') ON CONFLICT (a) DO NOTHING RETURNING "id"`, true)
	f.Fuzz(func(t *testing.T, query string, postgres bool) {
		d := core.MySQL
		if postgres {
			d = core.Postgres
		}
		p := parse(query, d)
		if !p.understood {
			return
		}
		for _, part := range append(conjuncts(p.where, d), p.where, p.target, p.with) {
			if !strings.Contains(query, part) {
				t.Fatalf("%q: %q is not in it", query, part)
			}
		}
	})
}
