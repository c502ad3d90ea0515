package sql_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Random programs of inserts, refused inserts and savepoints run against the real database. The
// names of savepoints differ only in case and quotes, and the application ignores every error. Rows
// reported as committed must be in the table, and rows reported as rolled back must not. Rows in
// the table may be reported as unknown.
func TestSQLTxRandomSavepointPrograms(t *testing.T) {
	t.Parallel()
	const programs = 150
	eachSQLPool(t, func(t *testing.T, db testdb.DB, pool sqlPool) {
		seed := uint64(time.Now().UnixNano())
		rnd := rand.New(rand.NewPCG(seed, 1))
		names := []string{"a", "A", `"A"`, "b", `"b"`, "c"}
		if db.Dialect == core.MySQL {
			names = []string{"a", "A", "`A`", "b", "`b`", "c"}
		}
		next, unknown, total := 0, 0, 0
		fixture.MustExec(t, pool.DB, "INSERT INTO written (n) VALUES (0)")
		for i := range programs {
			tx := pool.mustBegin(t, t.Context())
			var program []string
			for range 3 + rnd.IntN(10) {
				name := names[rnd.IntN(len(names))]
				var query string
				switch rnd.IntN(7) {
				case 0, 1:
					next++
					program = append(program, fmt.Sprint("insert ", next))
					if _, err := tx.Exec(t.Context(),
						fmt.Sprintf("INSERT INTO written (n) VALUES (%d)", next)); err == nil {
						tx.follow(next)
					}
					continue
				case 2, 3:
					query = "SAVEPOINT " + name
				case 4:
					query = "ROLLBACK TO SAVEPOINT " + name
				case 5:
					query = "RELEASE SAVEPOINT " + name
				case 6:
					query = "INSERT INTO written (n) VALUES (0)" // a duplicate
				}
				program = append(program, query)
				_, _ = tx.business.ExecContext(t.Context(), query)
			}
			if rnd.IntN(4) == 0 {
				_ = tx.business.Rollback()
			} else {
				_ = tx.business.Commit()
			}
			there := map[int]bool{}
			for _, n := range rowsOf(t, pool.DB) {
				there[n] = true
			}
			for n, o := range tx.outcomes {
				total++
				switch {
				case o == core.Committed && !there[n]:
					t.Fatalf("seed %d, program %d: row %d is a ghost: %q", seed, i, n, program)
				case o == core.RolledBack && there[n]:
					t.Fatalf("seed %d, program %d: row %d is there, but was reported as rolled back: %q", seed, i, n,
						program)
				case o == core.Unknown:
					unknown++
				}
			}
			fixture.MustExec(t, pool.DB, "DELETE FROM written WHERE n <> 0")
		}
		t.Logf("%d of %d outcomes unknown", unknown, total)
		fixture.Must(t, unknown != total, "all of %d rows were unknown: the test proves nothing", total)
	})
}
