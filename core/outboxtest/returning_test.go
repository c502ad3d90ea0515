package outboxtest_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// RETURNING of a database that stores nothing has the inserted values.
func TestOpenDBReturning(t *testing.T) {
	for query, tc := range map[string]struct {
		args []any
		want string
	}{
		`INSERT INTO "orders" ("status") VALUES ($1) RETURNING "id"`: {[]any{"new"}, "[[1]]"},
		"INSERT INTO orders (status, n) VALUES (?,?),(?,DEFAULT)\nRETURNING orders.id, orders.status, orders.n": {
			[]any{"new", 7, "old"}, "[[1 new 7] [2 old <nil>]]",
		},
		`INSERT INTO coupons (code) VALUES ($2), ($1) RETURNING "code"` + "\n, code, percent": {
			[]any{"a", "b"}, "[[b b 1] [a a 2]]",
		},
		"INSERT INTO orders (id, note) VALUES (DEFAULT, 'it''s (2), 3') RETURNING id, note": {nil, "[[1 it's (2), 3]]"},
		`INSERT INTO orders (id, s) VALUES (5, NULL) ON CONFLICT (id) DO UPDATE SET s = (1), t = 2` + "\n" +
			`RETURNING id, s, CASE WHEN id = $1 THEN '1' ELSE '0' END`: {[]any{5}, "[[5 <nil> 1]]"},
		"INSERT INTO orders (id) VALUES (8),(9) RETURNING id, CASE WHEN id = ? THEN '1' ELSE '0' END || " +
			"CASE WHEN id = ? THEN '1' ELSE '0' END": {[]any{8, 9}, "[[8 10] [9 01]]"},
		"UPDATE orders SET status = 'x' RETURNING id, status": {nil, "[]"},
		"SELECT 1": {nil, "[]"},
	} {
		db, err := outboxtest.OpenDB(core.Postgres)
		must(t, err)
		if got := fmt.Sprint(all(t, db, query, tc.args)); got != tc.want {
			t.Errorf("%s: %s, want %s", query, got, tc.want)
		}
		must(t, db.Close())
	}
}

func all(t *testing.T, db *sql.DB, query string, args []any) (all [][]any) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	must(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		row, dest := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			dest[i] = &row[i]
		}
		must(t, rows.Scan(dest...))
		all = append(all, row)
	}
	must(t, rows.Err())
	return all
}
