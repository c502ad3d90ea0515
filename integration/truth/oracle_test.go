package truth_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

var (
	truthFirst    = flag.Uint64("truth.first", 0, "seed of the first program")
	truthPrograms = flag.Uint64("truth.programs", 0,
		"programs on each database; 0: 300 with -short, else 2000 on SQLite and 300 on the others")
	truthShow = flag.String("truth.show", "", "a regular expression of the failures to show, such as 'stale at save'")
)

// enough programs run every kind of statement.
const enough = 200

// eachDatabase runs fn on SQLite alone with -short, so that `make test` stays quick.
func eachDatabase(t *testing.T, fn func(t *testing.T, db testdb.DB)) {
	t.Helper()
	if testing.Short() && os.Getenv("OUTBOX_TEST_DATABASES") == "" {
		t.Run("sqlite", func(t *testing.T) {
			t.Parallel()
			fn(t, testdb.SQLite(t))
		})
		return
	}
	testdb.Each(t, fn)
}

func programs(db testdb.DB) uint64 {
	switch {
	case *truthPrograms > 0:
		return *truthPrograms
	case testing.Short() || db.Dialect != core.SQLite:
		return 300
	default:
		return 2000
	}
}

// runPrograms runs the programs of an ORM on a database. Each seed is a program. The first failure
// of each sort is shown with its smallest program; the others are counted.
func runPrograms[H any](t *testing.T, o orm[H], db testdb.DB) {
	t.Helper()
	locksteps := []*lockstep[H]{openLockstep(t, o, db, true)}
	for len(locksteps) < min(2, runtime.GOMAXPROCS(0)) {
		locksteps = append(locksteps, openLockstep(t, o, db.Another(t), true))
	}
	first, count := *truthFirst, programs(db)
	var next atomic.Uint64
	var mu sync.Mutex
	failures, shown := map[string]int{}, map[string]int{}
	wanted := regexp.MustCompile(*truthShow)
	var wait sync.WaitGroup
	for _, l := range locksteps {
		wait.Go(func() {
			for {
				n := next.Add(1) - 1
				if n >= count || t.Context().Err() != nil {
					return
				}
				p := drawProgram(first+n, len(o.kinds), len(o.variants))
				f, at := l.run(p)
				if f == nil {
					continue
				}
				sort := f.class + " at " + at
				mu.Lock()
				failures[sort]++
				if wanted.MatchString(sort) {
					shown[sort]++
				}
				show := shown[sort] == 1 && len(shown) <= 12
				mu.Unlock()
				if show {
					l.show(t, p, *f, at)
				}
			}
		})
	}
	wait.Wait()
	if len(failures) > 0 {
		var lines []string
		total := 0
		for _, sort := range slices.Sorted(maps.Keys(failures)) {
			lines = append(lines, fmt.Sprintf("%5d %s", failures[sort], sort))
			total += failures[sort]
		}
		t.Errorf("%d of %d programs failed on %s:\n%s", total, count, db.Name, strings.Join(lines, "\n"))
	}
	countKinds(t, locksteps, count)
}

// show shrinks a program that failed, and shows it.
func (l *lockstep[H]) show(t *testing.T, p program, f fault, at string) {
	t.Helper()
	p = shrink(p, func(q program) bool {
		g, where := l.run(q)
		if g == nil || g.class != f.class || where != at {
			return false
		}
		f = *g
		return true
	})
	t.Errorf("%s at %s\n%s\n\n%s\nThis is the smallest form of seed %d on %s: go test ./integration/truth -run '^%s$' "+
		"-truth.first=%[5]d -truth.programs=1", f.class, at, f.text, l.text(p), p.seed, l.outbox.db.Name,
		strings.Split(t.Name(), "/")[0])
}

// countKinds says how much was run. A kind of statement that never changed a row tests nothing.
func countKinds[H any](t *testing.T, locksteps []*lockstep[H], count uint64) {
	t.Helper()
	steps, refused := 0, 0
	for _, l := range locksteps {
		steps += l.steps
		refused += l.refused
	}
	t.Logf("count: %d programs against triggers", count)
	t.Logf("count: %d statements against triggers", steps)
	t.Logf("count: %d refused statements", refused)
	if count >= enough && refused > steps/20 {
		t.Errorf("%d of %d statements were refused: they hide what the others would show", refused, steps)
	}
	for _, k := range locksteps[0].outbox.kinds {
		runs, changed := 0, 0
		for _, l := range locksteps {
			runs += l.runs[k.name]
			changed += l.outbox.changed[k.name]
		}
		if testing.Verbose() {
			t.Logf("%6d times, %6d rows: %s", runs, changed, k.name)
		}
		idle := k.idle == "all" || k.idle == locksteps[0].outbox.db.Name
		if count >= enough && runs == 0 || count >= 5*enough && changed == 0 && !idle {
			t.Errorf("%q ran %d times and changed %d rows", k.name, runs, changed)
		}
	}
}
