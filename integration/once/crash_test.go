package once_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

const (
	onceChildVariable = "OUTBOX_TEST_ONCE_CHILD"
	onceChildKeys     = 80
	onceChildAgain    = "again" // a child prints it when it does a key again
	onceStoreTimeout  = 3 * time.Second
)

// onceChildSpec tells a child of TestOnceSurvivesKill what to do.
type onceChildSpec struct {
	Dialect core.Dialect
	DSN     string
	Tx      bool // the transaction form, not the lease form
}

// init does the work of all keys and exits, if the process was started as a child.
func init() {
	text := os.Getenv(onceChildVariable)
	if text == "" {
		return
	}
	var spec onceChildSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (s onceChildSpec) run(ctx context.Context) error {
	pool, err := sql.Open(map[core.Dialect]string{
		core.Postgres: "pgx", core.MySQL: "mysql",
		core.SQLite: "sqlite",
	}[s.Dialect], s.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	store, err := sqlonce.New(pool, sqlonce.Config{Dialect: s.Dialect})
	if err != nil {
		return err
	}
	runner, err := once.New(once.Config{
		Store: store, Lease: 4 * time.Second, StoreTimeout: onceStoreTimeout,
		Wait: time.Minute,
	})
	if err != nil {
		return err
	}
	transactor := sqltx.NewTransactor(pool, s.Dialect)
	// Every child does the keys in the same order, so that duplicates come at the same time.
	for i := range onceChildKeys {
		key := once.Key{Scope: "crash", ID: fmt.Sprint(i)}
		do := func() (replayed bool, err error) {
			if s.Tx {
				_, replayed, err = runner.RunInTx(ctx, transactor, key, once.Fingerprint{},
					func(ctx context.Context, tx core.Tx) (once.Result, error) {
						_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO effect (n, fence) VALUES (%d, 0)", i))
						pause()
						return once.Result{Data: []byte("x")}, err
					})
				return replayed, err
			}
			_, replayed, err = runner.Do(ctx, key, once.Fingerprint{}, func(ctx context.Context) (once.Result, error) {
				c, _ := once.ClaimOf(ctx)
				_, err := pool.ExecContext(ctx, fmt.Sprintf("INSERT INTO effect (n, fence) VALUES (%d, %d)", i,
					c.Fence))
				pause()
				return once.Result{Data: []byte("x")}, err
			})
			return replayed, err
		}
		replayed := false
		for again := true; again; {
			begin := time.Now()
			replayed, err = do()
			// If the process was stalled, its lease or the time for its statement may be over.
			over := errors.Is(err, once.ErrLeaseLost) || errors.Is(err, context.DeadlineExceeded)
			if again = over && time.Since(begin) >= onceStoreTimeout; again {
				fmt.Println(onceChildAgain)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if !replayed {
			fmt.Println(i)
		}
	}
	return nil
}

func pause() { time.Sleep(rand.N(4 * time.Millisecond)) }

// Three processes do the same work and are killed in the middle of it, nine times. In the
// transaction form each effect happens exactly once. In the lease form each effect happens at least
// once, each time under another fence, and each kill causes at most one repetition. So does each
// stall in which a process loses its lease.
func TestOnceSurvivesKill(t *testing.T) {
	t.Parallel()
	for form, tx := range map[string]bool{"transaction": true, "lease": false} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db testdb.DB) {
				pool := db.Open(t)
				fixture.NewOnceStore(t, pool, sqlonce.Config{Dialect: db.Dialect})
				// The table has no unique key, so that a repeated effect is visible, except under
				// the same fence.
				fixture.MustExec(t, pool, "CREATE TABLE effect (n INTEGER NOT NULL, fence INTEGER NOT NULL)")
				spec := onceChildSpec{Dialect: db.Dialect, DSN: db.DSN, Tx: tx}
				var wg sync.WaitGroup
				var stalls atomic.Int64
				const slots, kills = 3, 3
				for range slots {
					wg.Go(func() {
						for n := range kills + 1 {
							keys := 0
							if n < kills {
								keys = 1 + rand.N(5)
							}
							again, err := runOnceChild(t.Context(), spec, keys)
							if err != nil {
								t.Error(err)
							}
							stalls.Add(again)
						}
					})
				}
				wg.Wait()
				if n := fixture.Count(t, pool, "SELECT COUNT(DISTINCT n) FROM effect"); n != onceChildKeys {
					t.Errorf("%d of %d keys have an effect", n, onceChildKeys)
				}
				if n := fixture.Count(t, pool,
					"SELECT COUNT(*) FROM idempotency_key WHERE status = 2"); n != onceChildKeys {
					t.Errorf("%d of %d keys are done", n, onceChildKeys)
				}
				extra := fixture.Count(t, pool, "SELECT COUNT(*) FROM effect") - onceChildKeys
				most := slots*kills + stalls.Load()
				if tx {
					most = 0
				}
				fixture.Check(t, extra <= most, "%d effects were repeated, want at most %d", extra, most)
				if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM (SELECT n FROM effect GROUP BY n, fence HAVING "+
					"COUNT(*) > 1) twice"); n != 0 {
					t.Errorf("%d effects happened twice under one fence", n)
				}
				t.Logf("%d effects were repeated, %d stalls", extra, stalls.Load())
			})
		})
	}
}

// runOnceChild runs a child and kills it when it has done that many keys. 0 lets it end by itself.
// again is how often the child did a key again because it was stalled.
func runOnceChild(ctx context.Context, spec onceChildSpec, keys int) (again int64, err error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), onceChildVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	killed := false
	lines := bufio.NewScanner(out)
	for done := 0; lines.Scan(); {
		if lines.Text() == onceChildAgain {
			again++
			continue
		}
		if done++; done == keys {
			pause()
			_ = cmd.Process.Kill() // fails if the process has just ended
			killed = true
		}
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); killed && (!ok || exit.ExitCode() == -1) {
		return again, nil
	}
	return again, err // it ended by itself
}
