package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	entsql "entgo.io/ent/dialect/sql"
	"github.com/uptrace/bun"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/entoutbox"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/entplain"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/adapters"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// transactors returns a Transactor of each ORM on the pool, by the name that errors give it.
func transactors(t *testing.T, db testdb.DB, pool *sql.DB) map[string]core.Transactor {
	t.Helper()
	gdb, err := gorm.Open(adapters.GORMDialector(db, pool), &gorm.Config{Logger: logger.Discard})
	fixture.NoError(t, err)
	own, err := core.New(core.Config{Repository: outboxtest.NewRepository(outboxtest.WithDialect(db.Dialect))})
	fixture.NoError(t, err)
	ent, err := entoutbox.New(entsql.OpenDB(adapters.EntDialect(db), pool), entoutbox.Config{Outbox: own})
	fixture.NoError(t, err)
	return map[string]core.Transactor{
		"sqltx":      sqltx.NewTransactor(pool, ""),
		"gormoutbox": gormoutbox.Transactor(gdb),
		"bunoutbox":  bunoutbox.Transactor(bun.NewDB(pool, adapters.BunDialect(db))),
		"entoutbox":  entoutbox.Transactor(entplain.NewClient(entplain.Driver(ent.Driver())).Tx),
	}
}

func write(ctx context.Context, tx core.Tx) error {
	_, err := tx.Exec(ctx, "INSERT INTO written (n) VALUES (1)")
	return err
}

func written(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()
	fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM written").Scan(&n))
	return n
}

var errUndo = errors.New("undo")

// The pool has one connection: a second transaction would wait for ever.
func TestTransactorsOfOnePool(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		for _, connector := range []bool{false, true} {
			pool := db.Open(t)
			if connector {
				pool = fixture.TrackedPool(t, db)
			} else {
				fixture.MustExec(t, pool, "CREATE TABLE written (n INTEGER)"+fixture.Engine(db))
			}
			pool.SetMaxOpenConns(1)
			first, second := transactors(t, db, pool), transactors(t, db, pool)
			second["entoutbox"] = first["entoutbox"] // two clients share the driver of the outbox
			for outer := range first {
				for inner := range second {
					err := first[outer].RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
						fixture.NoError(t, write(ctx, tx))
						ran := false
						err := second[inner].RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
							ran = true
							return write(ctx, tx)
						})
						if outer == inner {
							fixture.NoError(t, err)
							return errUndo
						}
						fixture.WantError(t, err, core.ErrOtherTransactor)
						for _, name := range []string{outer, inner} {
							fixture.Check(t, strings.Contains(err.Error(), name), "%q does not name %s", err, name)
						}
						fixture.Check(t, !ran, "the function of %s ran in a transaction of %s", inner, outer)
						return errUndo
					})
					fixture.WantError(t, err, errUndo)
					if n := written(t, pool); n != 0 {
						t.Fatalf("%s in %s: %d rows after the rollback", inner, outer, n)
					}
				}
			}
		}
	})
}

// A transaction of another pool is independent, and so is one that the context no longer carries.
func TestTransactorsApart(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	pool, other := db.Open(t), db.Open(t)
	fixture.MustExec(t, pool, "CREATE TABLE written (n INTEGER)")
	want := 0
	for name, outer := range transactors(t, db, pool) {
		for _, inner := range transactors(t, db, other) {
			err := outer.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
				fixture.NoError(t, inner.RunInTx(ctx, write))
				return errUndo
			})
			fixture.WantError(t, err, errUndo)
			want++
		}
		for within, inner := range transactors(t, db, pool) {
			err := outer.RunInTx(t.Context(), func(ctx context.Context, _ core.Tx) error {
				fixture.NoError(t, inner.RunInTx(core.ContextWithTx(ctx, nil), write))
				return errUndo
			})
			fixture.WantError(t, err, errUndo)
			want++
			if n := written(t, pool); n != want {
				t.Fatalf("%s in %s: %d rows, want %d", within, name, n, want)
			}
		}
	}
}

// The program puts a transaction into the context that it began by itself. A Transactor joins a
// transaction of sqltx.Begin, and refuses any other.
func TestTransactorsInATransactionOfTheProgram(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool := fixture.TrackedPool(t, db)
		pool.SetMaxOpenConns(1)
		fixture.MustExec(t, pool, "CREATE TABLE written (n INTEGER)"+fixture.Engine(db))
		all := transactors(t, db, pool)

		begun, err := sqltx.Begin(t.Context(), pool, nil, "")
		fixture.NoError(t, err)
		fixture.NoError(t, all["sqltx"].RunInTx(core.ContextWithTx(t.Context(), begun), write))
		fixture.NoError(t, begun.Rollback())

		plain, err := pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		tx, err := sqltx.TxOf(t.Context(), plain)
		fixture.NoError(t, err)
		for _, transactor := range all {
			err := transactor.RunInTx(core.ContextWithTx(t.Context(), tx), write)
			fixture.WantError(t, err, core.ErrOtherTransactor)
		}
		fixture.NoError(t, plain.Rollback())
		if n := written(t, pool); n != 0 {
			t.Errorf("%d rows after the rollbacks", n)
		}
		// A transaction that has ended does not matter.
		fixture.NoError(t, all["sqltx"].RunInTx(core.ContextWithTx(t.Context(), tx), write))
		if n := written(t, pool); n != 1 {
			t.Errorf("%d rows after a commit", n)
		}
	})
}
