package entoutbox

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestReadWrite(t *testing.T) {
	for query, want := range map[string]struct {
		verb, table string
		op          core.Op
		doNothing   bool
		rows        int
	}{
		`INSERT INTO "t" ("a", "b") VALUES ($1, $2)`: {"INSERT", "t", core.OpCreate, false, 1},
		`INSERT INTO "t" ("a (VALUES)") VALUES ($1), ($2), ($3) RETURNING "id"`: {
			"INSERT", "t", core.OpCreate, false, 3,
		},
		"INSERT INTO `t` (`a`) VALUES (?), (LOWER('),(')), (?) ON DUPLICATE KEY UPDATE `a` = VALUES(`a`)": {
			"INSERT", "t", core.OpUpsert, false, 3,
		},
		"INSERT INTO `t` (`a`) VALUES (?) ON DUPLICATE KEY UPDATE `a` = `t`.`a`, `id` = LAST_INSERT_ID(`t`.`id`)": {
			"INSERT", "t", core.OpCreate, true, 1,
		},
		"INSERT INTO `t` (`a`) VALUES (?) ON DUPLICATE KEY UPDATE `a` = VALUES(`a`), `id` = LAST_INSERT_ID(`t`.`id`)": {
			"INSERT", "t", core.OpUpsert, false, 1,
		},
		`INSERT INTO "s"."t" DEFAULT VALUES`: {
			"INSERT", "s.t", core.OpCreate, false,
			1,
		},
		"INSERT INTO `t` VALUES ()": {"INSERT", "t", core.OpCreate, false, 1},
		`INSERT INTO "t" ("a") VALUES (?), (?) ON CONFLICT ("a") DO NOTHING`: {"INSERT", "t", core.OpCreate, true, 2},
		`INSERT INTO "t" ("a") VALUES (?) ON CONFLICT ("a") DO UPDATE SET "a" = (SELECT (1)), "b" = (2)`: {
			"INSERT", "t", core.OpUpsert, false, 1,
		},
		"/* app=shop */ -- x\n # y\nupdate `s`.`t` SET `a` = ?": {"UPDATE", "s.t", core.OpUpdate, false, 1},
		`DELETE FROM "t" WHERE "t"."id" = $1`:                   {"DELETE", "t", core.OpDelete, false, 1},
		`WITH "x" AS (SELECT 1) UPDATE "t" SET "a" = 1`:         {"WITH", "t", core.OpCreate, false, 1},
	} {
		w, ok := readWrite(query)
		op, doNothing := w.op()
		if !ok || w.verb != want.verb || w.table != want.table || op != want.op || doNothing != want.doNothing ||
			w.rows() != want.rows {
			t.Errorf("%s: %+v, %v, %v, %d rows, want %+v", query, w, op, doNothing, w.rows(), want)
		}
	}
	for _, query := range []string{
		`SELECT "a" FROM "t" WHERE "a" = 'UPDATE "t"' FOR UPDATE`, `/* INSERT INTO "t" */`, "", "SAVEPOINT s",
		`WITH "x" AS (SELECT 1) SELECT * FROM "x"`, "/* open", "INSERT", `DELETE FROM "open`,
	} {
		if w, ok := readWrite(query); ok {
			t.Errorf("%s is %+v", query, w)
		}
	}
}
