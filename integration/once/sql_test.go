package once_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest/suite"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

func onceRequest(id string) once.Request {
	return once.Request{Key: once.Key{Scope: "test", ID: id}, Owner: "owner", Lease: time.Minute, TTL: time.Hour}
}

// A duplicate may have waited, or may have an older snapshot. It never takes the key for new:
// MariaDB reads the committed row, and PostgreSQL refuses the statement.
func TestOnceTxAtRepeatableRead(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect == core.SQLite {
			t.Log("one writer: its transactions are serializable")
			return
		}
		pool := db.Open(t)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		begin := func() *sqltx.Tx {
			tx, err := sqltx.Begin(t.Context(), pool, &sql.TxOptions{Isolation: sql.LevelRepeatableRead},
				db.Dialect)
			fixture.NoError(t, err)
			t.Cleanup(func() { _ = tx.Rollback() })
			return tx
		}
		early, first := begin(), begin()
		var n int
		if err := early.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM idempotency_key").Scan(&n); err != nil ||
			n != 0 {
			t.Fatal(n, err) // the snapshot is taken now
		}
		req := onceRequest("k")
		got, err := s.AcquireTx(t.Context(), first, req)
		fixture.Must(t, err == nil && got.State == once.Fresh, "%+v, %v", got, err)
		claim := once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}
		fixture.NoError(t, errors.Join(s.CompleteTx(t.Context(), first, claim, once.Result{Data: []byte("x")}),
			first.Commit()))
		got, err = s.AcquireTx(t.Context(), early, req)
		if db.Dialect == core.MySQL {
			fixture.Check(t, err == nil && got.State == once.Done && string(got.Result.Data) == "x",
				"%+v, %v", got, err)
		} else if !sqltx.Retryable(err) || !errors.Is(err, core.ErrTxAborted) {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// The database has ended the caller's transaction after a deadlock, and the caller ignored that.
// The store must not write a key outside of a transaction then.
func TestOnceTxThatTheDatabaseHasEnded(t *testing.T) {
	t.Parallel()
	event := func(id string) inbox.Event {
		return inbox.Event{Key: inbox.Key{Consumer: "billing", Handler: "h", EventID: id}}
	}
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		in := fixture.NewInboxStore(t, pool, sqlinbox.Config{})
		effects := fixture.NewEffectStore(t, pool, sqlcommand.Config{})
		for name, call := range map[string]func(tx core.Tx) error{
			"key": func(tx core.Tx) error {
				_, err := s.AcquireTx(t.Context(), tx, onceRequest("k"))
				return err
			},
			"event": func(tx core.Tx) error {
				_, _, err := in.Begin(t.Context(), tx, event("e"))
				return err
			},
			"batch of events": func(tx core.Tx) error {
				_, err := in.BeginBatch(t.Context(), tx, []inbox.Event{event("e"), event("f")})
				return err
			},
			"effect": func(tx core.Tx) error {
				_, _, err := effects.EnqueueTx(t.Context(), tx, command.Effect{ID: "1", Channel: "mail", Key: "k"})
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				for _, ended := range []bool{true, false} {
					tx, err := pool.BeginTx(t.Context(), nil)
					fixture.NoError(t, err)
					if ended {
						if _, err := tx.ExecContext(t.Context(), "ROLLBACK"); err != nil {
							t.Fatal(err)
						}
					}
					err = call(sqltx.WrapTx(tx, core.MySQL, nil))
					fixture.Check(t, ended == errors.Is(err, core.ErrTxAborted) && (ended || err == nil),
						"ended: %t: %v", ended, err)
					fixture.NoError(t, tx.Rollback())
					const rows = "SELECT (SELECT COUNT(*) FROM idempotency_key) + (SELECT COUNT(*) FROM " +
						"inbox_seen) + (SELECT COUNT(*) FROM side_effect_command)"
					if n := fixture.Count(t, pool, rows); n != 0 {
						t.Errorf("ended: %t: %d rows were written", ended, n)
					}
				}
			})
		}
	})
}

// With ClientFoundRows the driver counts the found rows instead of the changed rows.
func TestOnceWithClientFoundRows(t *testing.T) {
	t.Parallel()
	db := testdb.MariaDB(t)
	cfg, err := mysql.ParseDSN(db.DSN)
	fixture.NoError(t, err)
	cfg.ClientFoundRows = true
	cfg.InterpolateParams = true // the driver writes the parameters into the text
	db.DSN = cfg.FormatDSN()
	newStore := prefixedOnceStores(t, db)
	suite.TestOnceStore(t, fixture.OnceHarness(sqlOnce(newStore)))
	suite.TestOnceTxStore(t, suite.OnceTxHarness{New: func(t *testing.T) suite.OnceTxBackend {
		s, pool, _ := newStore(t)
		return suite.OnceTxBackend{
			Store: s, TxStore: s,
			Begin: func(ctx context.Context) (suite.Transaction, error) {
				return sqltx.Begin(ctx, pool, nil, db.Dialect)
			},
		}
	}})
}

// One connection is enough for both forms.
func TestOnceWithOneConnection(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		pool.SetMaxOpenConns(1)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		runner, err := once.New(once.Config{Store: s})
		fixture.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		key, done := once.Key{Scope: "test", ID: "tx"}, once.Result{Data: []byte("x")}
		transactor := sqltx.NewTransactor(pool, db.Dialect)
		for i := range 2 {
			_, replayed, err := runner.RunInTx(ctx, transactor, key, once.Fingerprint{},
				func(context.Context, core.Tx) (once.Result, error) { return done, nil })
			fixture.Check(t, err == nil && replayed == (i == 1), "in a transaction: %t, %v", replayed, err)
			_, replayed, err = runner.Do(ctx, once.Key{Scope: "test", ID: "lease"}, once.Fingerprint{},
				func(context.Context) (once.Result, error) { return done, nil })
			fixture.Check(t, err == nil && replayed == (i == 1), "with a lease: %t, %v", replayed, err)
		}
		if _, err := runner.Cleanup(ctx); err != nil {
			t.Error(err)
		}
	})
}

// A lease that a jumping clock has put years ahead does not hold a key for years.
func TestOnceLeaseOfAJumpedClock(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		if _, err := s.Acquire(t.Context(), onceRequest("k")); err != nil {
			t.Fatal(err)
		}
		fixture.MustExec(t, pool, map[core.Dialect]string{
			core.Postgres: "UPDATE idempotency_key SET lease_until = lease_until + interval '1 year'",
			core.MySQL:    "UPDATE idempotency_key SET lease_until = lease_until + INTERVAL 1 YEAR",
			core.SQLite:   "UPDATE idempotency_key SET lease_until = lease_until + 31536000000000",
		}[db.Dialect])
		if got, err := s.Acquire(t.Context(), onceRequest("k")); err != nil || got.State != once.Fresh ||
			!got.TakenOver {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// Another program has written infinite times, which only PostgreSQL has. A key of such a time fails
// no batch of the archive, and is used like a key of a very early or late time.
func TestKeysOfInfiniteTimes(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect != core.Postgres {
			t.Log("no other database has infinite times")
			return
		}
		pool := db.Open(t)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		acquire := func(id string) once.Acquired {
			got, err := s.Acquire(t.Context(), onceRequest(id))
			fixture.NoError(t, err)
			return got
		}
		set := func(id, change string) {
			req := onceRequest(id)
			c := once.Claim{Key: req.Key, Owner: req.Owner, Fence: acquire(id).Fence}
			fixture.NoError(t, s.Complete(t.Context(), c, once.Result{}, time.Hour))
			fixture.MustExec(t, pool, "UPDATE idempotency_key SET "+change+" WHERE id = '"+id+"'")
		}
		set("for ever", "expires_at = 'infinity', created_at = '-infinity', updated_at = 'infinity'")
		set("over", "expires_at = '-infinity'")
		if got := acquire("for ever"); got.State != once.Done {
			t.Errorf("a key that is kept for ever: %+v", got)
		}
		if got := acquire("over"); got.State != once.Fresh || got.Attempt != 1 {
			t.Errorf("a key that is over: %+v", got)
		}
		set("archived", "expires_at = '-infinity', created_at = '-infinity', updated_at = 'infinity', done_at = "+
			"'200000-01-01'")
		n, err := s.Archive(t.Context(), 10, func(_ context.Context, keys []once.ArchivedKey) error {
			_, err := json.Marshal(keys)
			return err
		})
		if n != 1 || err != nil {
			t.Errorf("%d keys archived, %v", n, err)
		}
	})
}

// The rows of programs that are over can not be deleted. That hides no other program.
func TestProgramsThatAreNotForgotten(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		scopes := []string{"a", "b"}
		for _, scope := range scopes {
			for _, program := range []string{"example.com/old", "example.com/other"} {
				_, err := s.Register(t.Context(), scope, program)
				fixture.NoError(t, err)
			}
		}
		year := map[core.Dialect]string{
			core.Postgres: "interval '1 year'", core.MySQL: "INTERVAL 1 YEAR", core.SQLite: "31536000000000",
		}[db.Dialect]
		fixture.MustExec(t, pool, "UPDATE idempotency_program SET seen_at = seen_at - "+year+
			" WHERE program LIKE '%old'")
		const head = "CREATE TRIGGER kept BEFORE DELETE ON idempotency_program FOR EACH ROW "
		switch db.Dialect {
		case core.Postgres:
			fixture.MustExec(t, pool, "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE "+
				"EXCEPTION 'kept'; END $$")
			fixture.MustExec(t, pool, head+"EXECUTE FUNCTION kept()")
		case core.SQLite:
			fixture.MustExec(t, pool, head+"BEGIN SELECT RAISE(ABORT, 'kept'); END")
		default:
			fixture.MustExec(t, pool, head+"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'kept'")
		}
		register := func() {
			others, err := s.Register(t.Context(), "a", "example.com/new")
			if err != nil || !slices.Equal(others, []string{"example.com/other"}) {
				t.Errorf("others are %q, %v", others, err)
			}
		}
		register()
		drop := "DROP TRIGGER kept"
		if db.Dialect == core.Postgres {
			drop += " ON idempotency_program"
		}
		fixture.MustExec(t, pool, drop)
		register()
		var left string
		const old = "SELECT scope FROM idempotency_program WHERE program LIKE '%old'"
		err := pool.QueryRowContext(t.Context(), old).Scan(&left)
		if err != nil || left != "b" { // a start locks no rows of other scopes
			t.Errorf("left is %q, %v", left, err)
		}
	})
}

// 64 callers come at once with one key, and many of their transactions fail first. The effect
// happens once, and no caller gets a deadlock error.
func TestOnceRunInTxIsExactlyOnce(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		s := fixture.NewOnceStore(t, pool, sqlonce.Config{})
		fixture.MustExec(t, pool, "CREATE TABLE effect (n INTEGER NOT NULL)")
		runner, err := once.New(once.Config{Store: s})
		fixture.NoError(t, err)
		transactor := sqltx.NewTransactor(pool, db.Dialect)
		errFirst := errors.New("the first try fails")
		for round := range 5 {
			key := once.Key{Scope: "test", ID: fmt.Sprint(round)}
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					tries := 0
					work := func(ctx context.Context, tx core.Tx) (once.Result, error) {
						_, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO effect (n) VALUES (%d)", round))
						if tries++; err == nil && tries == 1 {
							err = errFirst
						}
						return once.Result{Data: []byte("x")}, err
					}
					res, _, err := runner.RunInTx(t.Context(), transactor, key, once.Fingerprint{}, work)
					if errors.Is(err, errFirst) {
						res, _, err = runner.RunInTx(t.Context(), transactor, key, once.Fingerprint{}, work)
					}
					fixture.Check(t, err == nil && string(res.Data) == "x", "%q, %v", res.Data, err)
				})
			}
			wg.Wait()
		}
		if n := fixture.Count(t, pool, "SELECT COUNT(*) FROM effect"); n != 5 {
			t.Errorf("%d effects, want 5", n)
		}
	})
}
