package sql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// go-sql-driver waits for the answer to ROLLBACK without limit. A database that does not answer holds
// neither the caller nor the pool.
func TestRollbackOfADatabaseThatHangs(t *testing.T) {
	t.Parallel()
	testdb.MariaDBAndMySQL(t, func(t *testing.T, db testdb.DB) {
		fixture.MustExec(t, db.Open(t), "CREATE TABLE written (n INTEGER PRIMARY KEY)"+fixture.Engine(db))
		type tx interface {
			sqltx.Conn
			Commit() error
			Rollback() error
		}
		ofPool := func(ctx context.Context, pool *sql.DB) (tx, error) { return pool.BeginTx(ctx, nil) }
		begin := func(ctx context.Context, pool *sql.DB) (tx, error) { return sqltx.Begin(ctx, pool, nil, core.MySQL) }
		for name, c := range map[string]struct {
			plain   bool // the pool
			begin   func(context.Context, *sql.DB) (tx, error)
			expires bool // the context ends first
		}{
			"connector":           {begin: ofPool},
			"connector and Begin": {begin: begin},
			"Begin":               {begin: begin, plain: true},
			"the context ends":    {begin: ofPool, expires: true},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				away, silent := fixture.Silence(t, db)
				connector := away.Connector(t)
				if !c.plain {
					connector = sqltx.Connector(connector, core.MySQL)
				}
				pool := sql.OpenDB(connector)
				t.Cleanup(func() { _ = pool.Close() })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				x, err := c.begin(ctx, pool)
				fixture.NoError(t, err)
				_, err = x.ExecContext(ctx, "INSERT INTO written (n) VALUES (1)")
				fixture.NoError(t, err)
				silent.Store(true)
				ended := make(chan error, 1)
				go func() {
					if c.expires {
						cancel()
					}
					ended <- x.Rollback()
				}()
				select {
				case err := <-ended:
					fixture.Check(t, err != nil, "it rolled back without an answer")
				case <-time.After(20 * time.Second):
					t.Fatal("the caller still waits")
				}
				fixture.AwaitIn(t, 20*time.Second, "the pool lets the connection go",
					func() bool { return pool.Stats().OpenConnections == 0 })
			})
		}
	})
}
