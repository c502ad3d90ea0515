package entoutbox

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

func TestOpenOr(t *testing.T) {
	for _, tc := range []struct {
		query string
		d     core.Dialect
		want  bool
	}{
		{"UPDATE `t` SET `a` = ? WHERE `id` = ? AND (`x` = ? OR `y` = ?)", core.MySQL, false},
		{"UPDATE `t` SET `a` = ? WHERE `id` = ? AND `x` = ? OR `y` = ?", core.MySQL, true},
		{"UPDATE \"t\" SET \"a\" = $1 WHERE \"id\" = $2 AND x = 'a'\nor\ny = 2", core.Postgres, true},
		{"UPDATE \"t\" SET \"order\" = $1 WHERE \"id\" = $2 AND x = ' OR '", core.Postgres, false},
		{"DELETE FROM `t` WHERE `id` = ? AND x = 'it''s OR' AND for_or_nor = 1", core.SQLite, false},
		{`DELETE FROM t WHERE id = ? AND x = '\'' OR y = ''`, core.MySQL, true},
		{`DELETE FROM t WHERE id = $1 AND x = E'\'' OR y = ''`, core.Postgres, true},
		// The condition of edges in both directions.
		{"DELETE FROM `t` WHERE (`a` = ? AND `b` = ?) OR (`b` = ? AND `a` = ?)", core.MySQL, false},
		{"DELETE FROM t WHERE id = ? AND a || b", core.MySQL, true},
		{"DELETE FROM t WHERE id = ? AND a || b = 'x'", core.SQLite, false},
		{"DELETE FROM t WHERE id = ? AND a XOR b", core.MySQL, true},
		{"DELETE FROM t WHERE id = ? AND a /* ' */ OR b /* ' */", core.SQLite, true},
		{"DELETE FROM t WHERE id = ? AND a = 'x", core.SQLite, true},
		{"DELETE FROM t WHERE id = ? AND a) OR (b", core.SQLite, true},
		{"DELETE FROM t WHERE id = $1 AND a = $$x$$", core.Postgres, true},
	} {
		if got := openOr(tc.query, tc.d); got != tc.want {
			t.Errorf("%s (%s): %v, want %v", tc.query, tc.d, got, tc.want)
		}
	}
}
