package entoutbox

import "testing"

func TestReadInsert(t *testing.T) {
	for query, want := range map[string]struct {
		table     string
		rows      int
		onCollide collision
	}{
		`INSERT INTO "t" ("a", "b") VALUES ($1, $2)`: {
			`"t"`, 1,
			collisionFails,
		},
		`INSERT INTO "t" ("a (VALUES)") VALUES ($1), ($2), ($3) RETURNING "id"`: {
			`"t"`, 3,
			collisionFails,
		},
		"INSERT INTO `t` (`a`) VALUES (?), (LOWER('),(')), (?) ON DUPLICATE KEY UPDATE `a` = VALUES(`a`)": {
			"`t`", 3,
			collisionUpdates,
		},
		`INSERT INTO "s"."t" DEFAULT VALUES`: {
			`"s"."t"`, 1,
			collisionFails,
		},
		"INSERT INTO `t` VALUES ()": {"`t`", 1, collisionFails},
		`INSERT INTO "t" ("a") VALUES (?), (?) ON CONFLICT ("a") DO NOTHING`: {
			`"t"`, 2,
			collisionSkips,
		},
		`INSERT INTO "t" ("a") VALUES (?) ON CONFLICT ("a") DO UPDATE SET "a" = (SELECT (1)), "b" = (2)`: {
			`"t"`, 1,
			collisionUpdates,
		},
	} {
		in := readInsert(query)
		if in == nil || in.table != want.table || in.rows != want.rows || in.onCollide != want.onCollide {
			t.Errorf("%s: %+v, want %+v", query, in, want)
		}
	}
	if in := readInsert(`UPDATE "t" SET "a" = 'INSERT INTO '`); in != nil {
		t.Errorf("an UPDATE is %+v", in)
	}
}
