package sqltx_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// dsnDriver is a driver of the oldest kind: it has no connectors.
type dsnDriver struct {
	fake *fakeDriver
	dsn  string
}

func (d *dsnDriver) Open(dsn string) (driver.Conn, error) {
	d.dsn = dsn
	return d.fake.Connect(context.Background())
}

// contextDriver has connectors.
type contextDriver struct{ *dsnDriver }

func (d contextDriver) OpenConnector(dsn string) (driver.Connector, error) {
	if dsn == "wrong" {
		return nil, errors.New("no such dsn")
	}
	d.dsn = dsn
	return d.fake, nil
}

func TestOpen(t *testing.T) {
	old, current := &dsnDriver{fake: newFake()}, contextDriver{&dsnDriver{fake: newFake()}}
	run := core.NewEventID() // a name is registered once, and the test may run again
	sql.Register("outbox-old"+run, old)
	sql.Register("outbox-current"+run, current)
	for name, d := range map[string]*dsnDriver{"outbox-old" + run: old, "outbox-current" + run: current.dsnDriver} {
		db, err := sqltx.Open(name, "the dsn", core.Postgres)
		must(t, err)
		equal(t, len(d.fake.statements()), 0, "%s: Open ran %q", name, d.fake.statements())
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		own, err := sqltx.TxOf(t.Context(), tx)
		must(t, err)
		if !own.Tracked() || own.Dialect() != core.Postgres || d.dsn != "the dsn" {
			t.Errorf("%s: tracked %t, dialect %q, dsn %q", name, own.Tracked(), own.Dialect(), d.dsn)
		}
		must(t, tx.Commit())
		must(t, db.Close())
	}
}

func TestOpenReportsMistakes(t *testing.T) {
	wrong := "outbox-wrong" + core.NewEventID()
	sql.Register(wrong, contextDriver{&dsnDriver{fake: newFake()}})
	for name, tc := range map[string]struct {
		open func() (*sql.DB, error)
		want string
	}{
		"unknown driver": {
			func() (*sql.DB, error) { return sqltx.Open("no-such-driver", "", core.Postgres) },
			"no-such-driver",
		},
		"wrong dsn": {
			func() (*sql.DB, error) { return sqltx.Open(wrong, "wrong", core.Postgres) },
			"no such dsn",
		},
		"unknown dialect": {func() (*sql.DB, error) { return sqltx.OpenDB(newFake(), "") }, "name it"},
		"wrong dialect": {
			func() (*sql.DB, error) { return sqltx.OpenDB(newFake(), "oracle") },
			`"oracle" is not supported`,
		},
		"nil connector": {func() (*sql.DB, error) { return sqltx.OpenDB(nil, core.Postgres) }, "nil driver.Connector"},
		"typed nil": {
			func() (*sql.DB, error) { return sqltx.OpenDB((*fakeDriver)(nil), "") },
			"nil driver.Connector",
		},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := tc.open()
			if err == nil || !strings.HasPrefix(err.Error(), "sqltx: ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one of sqltx that contains %q", err, tc.want)
			}
			if db != nil {
				t.Error("something was returned beside the error")
			}
		})
	}
}

func TestDialectOf(t *testing.T) {
	if d, err := sqltx.DialectOf(nil); err == nil {
		t.Errorf("a nil pool has dialect %q", d)
	}
	pool := sql.OpenDB(newFake())
	defer pool.Close()
	if d, err := sqltx.DialectOf(pool); err == nil || d != "" {
		t.Errorf("an unknown driver has dialect %q, error %v", d, err)
	}
}
