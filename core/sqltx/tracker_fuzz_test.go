package sqltx_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
)

// FuzzTrackerObserve shows a tracker arbitrary texts. For any text, each callback is called once.
func FuzzTrackerObserve(f *testing.F) {
	f.Add("SAVEPOINT a\n+\nROLLBACK TO a\n+", uint8(0))
	f.Add("+\nCOMMIT\n+\n!x", uint8(3))
	f.Add("/* \n -- \n\"\nSAVEPOINT \"\n+\nROLLBACK TO [", uint8(1))
	f.Add("SELECT 1; ROLLBACK TO a\n+\n;;\nRELEASE", uint8(2))
	f.Fuzz(func(t *testing.T, script string, how uint8) {
		d := []core.Dialect{core.Postgres, core.MySQL, core.SQLite}[how%3]
		tr := track(d)
		registered := 0
		for line := range strings.SplitSeq(script, "\n") {
			if strings.HasPrefix(line, "+") {
				line = fmt.Sprint("+", registered)
				registered++
			}
			tr.steps(line)
		}
		if how%2 == 0 {
			tr.RolledBack()
		} else if err := tr.Commit(succeed); err != nil && !errors.Is(err, core.ErrCommitUnknown) {
			t.Fatal(err)
		}
		if len(tr.heard) != registered || tr.twice != nil {
			t.Fatalf("%d callbacks, heard %v (twice %v)", registered, tr.heard, tr.twice)
		}
		for n, o := range tr.heard {
			if o == core.Committed && how%2 == 0 {
				t.Fatalf("callback %s: %s after a rollback", n, o)
			}
		}
	})
}

// FuzzTrackerPrograms runs programs of savepoints in a database that has the savepoints of each
// dialect, and compares what the tracker reports with what is there.
func FuzzTrackerPrograms(f *testing.F) {
	f.Add([]byte{0, 1, 0, 2, 0}, uint8(0))
	f.Add([]byte{1, 0, 5, 0, 10, 0, 2, 6, 0, 3, 0, 7, 0}, uint8(7))
	f.Add([]byte{1, 9, 0, 13, 17, 0, 2, 0, 21, 3, 0, 25, 4, 0}, uint8(5))
	f.Add([]byte{17, 0, 13, 17, 1, 15, 0, 18}, uint8(3)) // RELEASE "A" takes the second b with it
	names := []string{"a", "A", `"a"`, `"A"`, "b", `"b"`, "c"}
	f.Fuzz(func(t *testing.T, program []byte, how uint8) {
		d := []core.Dialect{core.Postgres, core.MySQL, core.SQLite}[how%3]
		if len(program) > 200 {
			program = program[:200]
		}
		repo := outboxtest.NewRepository(outboxtest.WithDialect(d))
		tx, err := repo.Begin(t.Context())
		must(t, err)
		heard := map[core.RowID][]core.Outcome{}
		for _, b := range program {
			name := names[int(b/4)%len(names)]
			switch b % 4 {
			case 0:
				e := core.Event{ID: core.NewEventID(), Type: "t", Topic: "t", Key: "k"}
				id, err := core.NewRowID(e.ID, "t")
				must(t, err)
				row := core.NewRow{ID: id, Event: e, KeyID: core.NewKeyID("", "t", "k")}
				if _, err := repo.Insert(t.Context(), tx, core.InsertRequest{Rows: []core.NewRow{row}}); err == nil {
					heard[row.ID] = nil
					tx.OnOutcome(func(o core.Outcome) { heard[row.ID] = append(heard[row.ID], o) })
				}
			case 1:
				_, _ = tx.Exec(t.Context(), "SAVEPOINT "+name)
			case 2:
				_, _ = tx.Exec(t.Context(), "ROLLBACK TO SAVEPOINT "+name)
			case 3:
				_, _ = tx.Exec(t.Context(), "RELEASE SAVEPOINT "+name)
			}
		}
		if how%5 == 0 {
			_ = tx.Rollback()
		} else {
			_ = tx.Commit()
		}
		for id, outcomes := range heard {
			_, there := repo.Row(id)
			if len(outcomes) != 1 || outcomes[0] == core.Committed && !there ||
				outcomes[0] == core.RolledBack && there {
				t.Fatalf("%s: row %s: heard %v, there: %t", d, id, outcomes, there)
			}
		}
	})
}
