package sqloutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
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
	old := &dsnDriver{fake: newFake()}
	sql.Register("outbox-old", old)
	current := contextDriver{&dsnDriver{fake: newFake()}}
	sql.Register("outbox-current", current)
	for name, d := range map[string]*dsnDriver{"outbox-old": old, "outbox-current": current.dsnDriver} {
		db, ob, err := sqloutbox.Open(t.Context(), name, "the dsn", sqloutbox.OpenConfig{Dialect: core.Postgres, Prefix: "app_"})
		must(t, err)
		if len(d.fake.statements()) != 0 {
			t.Errorf("%s: Open ran %q", name, d.fake.statements())
		}
		if r := ob.Repository().(*sqloutbox.Repository); r.Dialect() != core.Postgres {
			t.Errorf("%s: dialect %q", name, r.Dialect())
		}
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		own, err := sqloutbox.TxOf(t.Context(), tx)
		must(t, err)
		if !own.Tracked() || d.dsn != "the dsn" {
			t.Errorf("%s: tracked %t, dsn %q", name, own.Tracked(), d.dsn)
		}
		must(t, tx.Commit())
		must(t, db.Close())
	}
}

func TestOpenConnector(t *testing.T) {
	var got core.Config
	db, ob, err := sqloutbox.OpenConnector(t.Context(), newFake(), sqloutbox.OpenConfig{
		Dialect: core.SQLite, Routes: map[string][]string{"a": {"b"}}, Configure: func(c *core.Config) { c.Workers, got = 3, *c },
	})
	must(t, err)
	defer db.Close()
	if ob == nil || got.Repository == nil || len(got.Routes) != 1 {
		t.Errorf("Configure was given %+v", got)
	}
}

func TestOpenReportsMistakes(t *testing.T) {
	failing := newFake()
	failing.plain = true
	for name, tc := range map[string]struct {
		open func() (*sql.DB, *core.Outbox, error)
		want string
	}{
		"unknown driver": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.Open(t.Context(), "no-such-driver", "", sqloutbox.OpenConfig{})
		}, "no-such-driver"},
		"wrong dsn": {func() (*sql.DB, *core.Outbox, error) {
			sql.Register("outbox-wrong", contextDriver{&dsnDriver{fake: newFake()}})
			return sqloutbox.Open(t.Context(), "outbox-wrong", "wrong", sqloutbox.OpenConfig{})
		}, "no such dsn"},
		"unknown dialect": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), newFake(), sqloutbox.OpenConfig{})
		}, "name it"},
		"nil connector": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), nil, sqloutbox.OpenConfig{})
		}, "nil driver.Connector"},
		"wrong prefix": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), newFake(), sqloutbox.OpenConfig{Dialect: core.Postgres, Prefix: `a"b`})
		}, "prefix"},
		"wrong configuration": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), newFake(), sqloutbox.OpenConfig{
				Dialect: core.Postgres, Configure: func(c *core.Config) { c.Workers = -1 },
			})
		}, "Workers"},
		"failed migration": {func() (*sql.DB, *core.Outbox, error) {
			for _, q := range []string{"BEGIN"} {
				failing.fail[q] = errors.New("no database")
			}
			return sqloutbox.OpenConnector(t.Context(), failing, sqloutbox.OpenConfig{Dialect: core.Postgres, AutoCreate: true})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			db, ob, err := tc.open()
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(tc.want)) {
				t.Errorf("error %v, want one that contains %q", err, tc.want)
			}
			if db != nil || ob != nil {
				t.Error("something was returned beside the error")
			}
		})
	}
}
