package pgxoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// claims makes claims over a pool of one connection.
type claims struct {
	*flights
	repo *sqloutbox.Repository
	last int64
}

func (f *flights) claims(pool *sql.DB) *claims {
	f.Helper()
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.Postgres})
	fixture.NoError(f.T, err)
	return &claims{flights: f, repo: repo}
}

// next makes the next claim, of at most one row without a key.
func (c *claims) next(ctx context.Context) ([]core.Claimed, error) {
	c.last++
	return c.repo.ClaimUnordered(ctx, core.ClaimRequest{
		Node: "node", ClaimNo: c.last, Lease: time.Hour, MaxLease: 2 * time.Hour, Limit: 1, MaxBytes: 1 << 20,
	})
}

// add adds an event without a key.
func (f *flights) add() {
	f.Helper()
	pool := f.db.Open(f.T)
	defer pool.Close()
	_, _, err := f.commit(f.Context(), pool, "", false, func() {})
	fixture.NoError(f.T, err)
}

// holders returns how many rows the last claim holds.
func (c *claims) holders() int64 {
	c.Helper()
	return fixture.Count(c.T, c.direct, fmt.Sprintf(
		"SELECT COUNT(*) FROM outbox_event WHERE claimed_by = 'node' AND claim_no = %d", c.last))
}

// planner reads the settings of a session that a claim changes for its own transaction.
const planner = "SELECT current_setting('enable_seqscan') || ' ' || current_setting('plan_cache_mode') || ' ' || " +
	"current_setting('transaction_isolation')"

func (f *flights) planner(q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (settings string) {
	f.Helper()
	fixture.NoError(f.T, q.QueryRowContext(f.Context(), planner).Scan(&settings))
	return settings
}

// alone runs a query that returns a text, in the way of a claim, on the connection behind conn.
func alone(ctx context.Context, conn *sql.Conn, settings map[string]string, query string) (text string, err error) {
	err = conn.Raw(func(dc any) error {
		for {
			own, ok := dc.(interface {
				With(settings map[string]string) sqloutbox.Querier
			})
			if !ok {
				dc = dc.(interface{ Raw() driver.Conn }).Raw()
				continue
			}
			rows, err := own.With(settings).Query(ctx, query)
			if err != nil {
				return err
			}
			for rows.Next() {
				err = errors.Join(err, rows.Scan(&text))
			}
			return errors.Join(err, rows.Err(), rows.Close())
		}
	})
	return text, err
}

// The settings of a claim hold for its transaction alone. That transaction is READ COMMITTED,
// whatever the connection's default is. The settings are gone after a claim that succeeds, and
// after one that fails. The connection is used again.
func TestPgxClaimSettings(t *testing.T) {
	t.Parallel()
	try := func(t *testing.T, f *flights, pool *sql.DB, after string) {
		pool.SetMaxOpenConns(1)
		conn, err := pool.Conn(t.Context())
		fixture.NoError(t, err)
		defer conn.Close()
		settings := map[string]string{"enable_seqscan": "off", "plan_cache_mode": "force_generic_plan"}
		for range 3 {
			got, err := alone(t.Context(), conn, settings, planner)
			fixture.Check(t, err == nil && got == "off force_generic_plan read committed",
				"the settings of a claim: %q, %v", got, err)
			if got := f.planner(conn); got != after {
				t.Errorf("the settings after a claim: %q, want %q", got, after)
			}
			if _, err = alone(t.Context(), conn, settings, "SELECT 'a' || (1/0)::text"); !isCode(err, "22012") {
				t.Errorf("a statement that the server refuses: %v", err)
			}
			if got := f.planner(conn); got != after {
				t.Errorf("the settings after a claim that failed: %q, want %q", got, after)
			}
		}
	}
	for _, m := range sqlModes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			db := f.db
			db.Connect = func(cfg pgx.ConnConfig) driver.Connector {
				cfg.DefaultQueryExecMode = m.mode
				cfg.RuntimeParams["default_transaction_isolation"] = "serializable"
				return pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg})
			}
			pool := db.Open(t)
			pid := f.pid(pool)
			try(t, f, pool, "on auto serializable")
			fixture.Check(t, f.pid(pool) == pid, "the connection was closed")
		})
	}
	for _, p := range poolerModes {
		if p.native {
			continue
		}
		t.Run("PgBouncer, "+p.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlightsOn(t, testdb.PgBouncer(t), p)
			pool, _ := f.open(pgxoutbox.Config{})
			defer pool.Close()
			try(t, f, pool, "on auto read committed")
		})
	}
}

// The connection is cut at many places of a claim and of its answer. Each run of the test cuts at
// other places. Rows that are returned are claimed.
func TestPgxClaimIsCut(t *testing.T) {
	t.Parallel()
	for _, m := range sqlModes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			f.warm = rand.IntN(3) // the claim is prepared with its second execution, or sent by its name
			t.Logf("after %d claims", f.warm)
			one := func(write, read int) (wrote, got int) {
				fixture.MustExec(t, f.direct, "DELETE FROM outbox_event")
				f.add()
				pool, last := f.open(pgxoutbox.Config{})
				defer pool.Close()
				c := f.claims(pool)
				f.pid(pool) // connects
				for range f.warm {
					_, err := c.next(t.Context())
					fixture.NoError(t, err)
					fixture.MustExec(t, f.direct, "UPDATE outbox_event SET claimed_by = NULL, lease_until = NULL")
				}
				w := last()
				w.arm(write, read)
				rows, err := c.next(t.Context())
				wrote, got = w.lengths()
				what := fmt.Sprintf("write %d, read %d: %d rows, %v", write, read, len(rows), err)
				switch cut := write >= 0 || read >= 0; {
				case (err == nil) != (len(rows) == 1):
					t.Error(what)
				case err == nil && c.holders() != 1:
					t.Errorf("the row is not claimed: %s", what)
				case err == nil && write >= 0 && !w.cutProbe(), err != nil && !cut:
					t.Error(what)
				}
				return wrote, got
			}
			wrote, got := one(-1, -1)
			fixture.Must(t, wrote != 0 && got != 0, "the claim has %d bytes, and its answer %d", wrote, got)
			places := 60 // the claims of some modes have a text of several kilobytes
			if testing.Short() {
				places = 6
			}
			for n, step := rand.IntN(wrote/places), wrote/places; n < wrote; n += step {
				one(n, -1)
			}
			for n, step := rand.IntN(got/places), got/places; n < got; n += step {
				one(-1, n)
			}
		})
	}
}

// nativeClaims makes claims over a pool of pgx of one connection.
func (f *flights) nativeClaims(change func(*pgxpool.Config)) (*claims, *pgxoutbox.Pool) {
	f.Helper()
	pool := adapters.OpenPGX(f.T, f.db, func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode, c.MaxConns = f.mode, 1
		if change != nil {
			change(c)
		}
	})
	repo, err := pgxoutbox.NewRepository(pool.Pool, sqloutbox.Config{})
	fixture.NoError(f.T, err)
	return &claims{flights: f, repo: repo}, pool
}

// A claim on a pool of pgx is READ COMMITTED too, whatever the connection's default is.
func TestNativeClaimIsolation(t *testing.T) {
	t.Parallel()
	for _, m := range sqlModes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			f.add()
			fixture.MustExec(t, f.direct, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN RAISE '%', current_setting('transaction_isolation'); END $$`)
			fixture.MustExec(t, f.direct, `CREATE TRIGGER refuse BEFORE UPDATE ON outbox_event FOR EACH ROW
				WHEN (current_setting('transaction_isolation') <> 'read committed') EXECUTE FUNCTION refuse()`)
			c, _ := f.nativeClaims(func(c *pgxpool.Config) {
				c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			})
			if rows, err := c.next(t.Context()); err != nil || len(rows) != 1 {
				t.Errorf("%d rows, %v", len(rows), err)
			}
		})
	}
}

// The context ends while a claim waits for a lock. Nothing is claimed, then or later. The pool goes
// on with another connection, which a late cancel request cannot hit.
func TestPgxClaimIsCancelled(t *testing.T) {
	t.Parallel()
	for _, m := range sqlModes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			pool, _ := f.open(pgxoutbox.Config{CancelGrace: time.Minute})
			defer pool.Close()
			f.claims(pool).cancelled(func() int { return f.pid(pool) })
		})
		t.Run("native, "+m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			c, pool := f.nativeClaims(nil)
			c.cancelled(func() (pid int) {
				fixture.NoError(t, pool.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
				return pid
			})
		})
	}
}

// cancelled cancels a claim. pid returns the process of the pool's connection.
func (c *claims) cancelled(pid func() int) {
	c.Helper()
	c.add()
	was := pid()
	tx, err := c.direct.BeginTx(c.Context(), nil)
	fixture.NoError(c.T, err)
	_, err = tx.ExecContext(c.Context(), "LOCK TABLE outbox_event")
	fixture.NoError(c.T, err)
	ctx, cancel := context.WithCancelCause(c.Context())
	defer cancel(nil)
	cause := errors.New("the reason")
	go func() {
		c.awaitLock()
		cancel(cause)
	}()
	rows, err := c.next(ctx)
	pgErr, known := errors.AsType[*pgconn.PgError](err)
	fixture.Check(c, len(rows) <= 0 && errors.Is(err, cause) && known && pgErr.Code == "57014",
		"%d rows, %v, want the reason and the answer of the server", len(rows), err)
	fixture.NoError(c.T, tx.Rollback())
	fixture.Await(c, "nothing runs any more", func() bool {
		return fixture.Count(c.T, c.direct, "SELECT COUNT(*) FROM pg_stat_activity WHERE state <> 'idle' AND "+
			"datname = current_database() AND pid <> pg_backend_pid()") == 0
	})
	if n := c.holders(); n != 0 {
		c.Errorf("%d rows are claimed although the claim failed", n)
	}
	fixture.Check(c, pid() != was, "the connection is used again after a cancel request")
	if rows, err := c.next(c.Context()); err != nil || len(rows) != 1 {
		c.Errorf("the next claim: %d rows, %v", len(rows), err)
	}
}

// A context that has ended sends nothing.
func TestPgxClaimWithoutTime(t *testing.T) {
	t.Parallel()
	f := newFlights(t, sqlModes[0])
	pool, last := f.open(pgxoutbox.Config{})
	defer pool.Close()
	conn, err := pool.Conn(t.Context())
	fixture.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	last().arm(-1, -1)
	if _, err := alone(ctx, conn, nil, planner); !errors.Is(err, context.Canceled) {
		t.Errorf("a statement without time: %v", err)
	}
	if wrote, _ := last().lengths(); wrote != 0 {
		t.Errorf("%d bytes were sent", wrote)
	}
}

// If COMMIT is refused, the claim fails, although its rows were read.
func TestPgxClaimIsRefusedByCommit(t *testing.T) {
	t.Parallel()
	for _, m := range sqlModes {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, m)
			f.add()
			fixture.MustExec(t, f.direct, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
				$$ BEGIN RAISE 'not now'; END $$`)
			fixture.MustExec(t, f.direct, `CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON outbox_event
				DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
			pool, _ := f.open(pgxoutbox.Config{})
			defer pool.Close()
			c := f.claims(pool)
			pid := f.pid(pool)
			if rows, err := c.next(t.Context()); len(rows) > 0 || !isCode(err, "P0001") {
				t.Errorf("%d rows, %v, want the error of COMMIT", len(rows), err)
			}
			fixture.MustExec(t, f.direct, "DROP TRIGGER refuse ON outbox_event")
			if rows, err := c.next(t.Context()); err != nil || len(rows) != 1 || f.pid(pool) != pid {
				t.Errorf("the next claim: %d rows, %v, on the same connection: %t", len(rows), err, f.pid(pool) == pid)
			}
		})
	}
}

// If an idle connection has died, the claim takes another one. The same holds if BEGIN is sent at
// once.
func TestPgxClaimAfterTheConnectionDied(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, sqlModes[0])
			f.add()
			db := f.db
			db.Connect = func(cfg pgx.ConnConfig) driver.Connector {
				own := way.cfg
				own.Conn = cfg
				own.Options = []stdlib.OptionOpenDB{
					// A ping before the use of an idle connection would notice that it has died.
					stdlib.OptionShouldPing(func(context.Context, stdlib.ShouldPingParams) bool { return false }),
				}
				return pgxoutbox.Connector(own)
			}
			pool := db.Open(t)
			c := f.claims(pool)
			var idle []*sql.Conn
			var pids []string
			for range 3 {
				conn, err := pool.Conn(t.Context())
				fixture.NoError(t, err)
				var pid string
				fixture.NoError(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
				idle, pids = append(idle, conn), append(pids, pid)
			}
			pool.SetMaxIdleConns(len(idle))
			for _, conn := range idle {
				fixture.NoError(t, conn.Close())
			}
			list := strings.Join(pids, ", ")
			fixture.MustExec(t, f.direct, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
				"WHERE pid IN ("+list+")")
			fixture.Await(t, "the connections have ended", func() bool {
				return fixture.Count(t, f.direct, "SELECT COUNT(*) FROM pg_stat_activity WHERE pid IN ("+list+")") == 0
			})
			if rows, err := c.next(t.Context()); err != nil || len(rows) != 1 {
				t.Errorf("%d rows, %v", len(rows), err)
			}
		})
	}
}
