package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// restarted is a database whose connections have died once it was restarted.
type restarted struct {
	*fakeDriver
	life int   // grows with each restart
	says error // error of BEGIN on a connection of an earlier life
}

func (r *restarted) Connect(context.Context) (driver.Conn, error) {
	return &mortalConn{fakeFullConn: &fakeFullConn{&fakeConn{r.fakeDriver}}, r: r, life: r.life}, nil
}

// mortalConn reports to its pool that it is dead only after a BEGIN has failed, as pgdriver does.
type mortalConn struct {
	*fakeFullConn
	r    *restarted
	life int
	dead bool
}

func (c *mortalConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.life != c.r.life {
		c.dead = true
		return nil, c.r.says
	}
	return c.fakeFullConn.BeginTx(ctx, opts)
}
func (c *mortalConn) IsValid() bool { return !c.dead }

// A pool full of connections that died while nobody used them costs no transaction, whatever the
// driver says of them.
func TestConnectionsThatDiedUnused(t *testing.T) {
	const size = 5
	admin := errors.New("FATAL: terminating connection due to administrator command")
	for what, says := range map[string]error{"ErrBadConn": driver.ErrBadConn, "an error of its own": admin} {
		for name, open := range map[string]func(*restarted) *sql.DB{
			"plain":     func(r *restarted) *sql.DB { return sql.OpenDB(r) },
			"connector": func(r *restarted) *sql.DB { return sql.OpenDB(sqltx.Connector(r, core.Postgres)) },
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				r := &restarted{fakeDriver: newFake(), says: says}
				db := open(r)
				defer db.Close()
				db.SetMaxIdleConns(size)
				begins := map[string]func() (interface{ Rollback() error }, error){
					"Begin": func() (interface{ Rollback() error }, error) {
						return sqltx.Begin(t.Context(), db, nil, core.Postgres)
					},
				}
				if name == "connector" {
					begins["BeginTx"] = func() (interface{ Rollback() error }, error) {
						return db.BeginTx(t.Context(), nil)
					}
				}
				for how, begin := range begins {
					var idle []*sql.Conn
					for range size {
						conn, err := db.Conn(t.Context())
						must(t, err)
						idle = append(idle, conn)
					}
					for _, conn := range idle {
						must(t, conn.Close())
					}
					r.life++
					for n := range 2 * size {
						tx, err := begin()
						if err != nil {
							t.Fatalf("%s, transaction %d after the restart: %v", how, n+1, err)
						}
						must(t, tx.Rollback())
					}
				}
			})
		}
	}
}
