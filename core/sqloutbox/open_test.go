package sqloutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// silentDriver connects to nothing. fail is the error of every statement and transaction.
type silentDriver struct{ fail error }

func (d silentDriver) Open(string) (driver.Conn, error)             { return silentConn(d), nil }
func (d silentDriver) Connect(context.Context) (driver.Conn, error) { return silentConn(d), nil }
func (d silentDriver) Driver() driver.Driver                        { return d }

type silentConn struct{ fail error }

func (c silentConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (c silentConn) Close() error                        { return nil }
func (c silentConn) Begin() (driver.Tx, error)           { return c, c.fail }
func (c silentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return c, c.fail
}
func (c silentConn) Commit() error   { return c.fail }
func (c silentConn) Rollback() error { return nil }

func TestOpen(t *testing.T) {
	db, ob, err := sqloutbox.Open(t.Context(), "example", "",
		sqloutbox.OpenConfig{Dialect: core.Postgres, Prefix: "app_"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if r := ob.Repository().(*sqloutbox.Repository); r.Dialect() != core.Postgres {
		t.Errorf("dialect %q", r.Dialect())
	}
}

func TestOpenConnector(t *testing.T) {
	db, ob, err := sqloutbox.OpenConnector(t.Context(), silentDriver{},
		sqloutbox.OpenConfig{Dialect: core.SQLite, Node: "here"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if !strings.HasPrefix(ob.Node(), "here-") || ob.Repository() == nil {
		t.Errorf("node %q, repository %v", ob.Node(), ob.Repository())
	}
}

// Every setting of the outbox is one of Open.
func TestOpenConfigHasEverySetting(t *testing.T) {
	own := reflect.TypeFor[sqloutbox.OpenConfig]()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[core.Config]()) {
		if f.Name == "Repository" { // Open makes it
			continue
		}
		if found, ok := own.FieldByName(f.Name); !ok || found.Type != f.Type {
			t.Errorf("OpenConfig has no field %s of type %s", f.Name, f.Type)
		}
	}
}

func TestOpenReportsMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		open func() (*sql.DB, *core.Outbox, error)
		want string
	}{
		"unknown driver": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.Open(t.Context(), "no-such-driver", "", sqloutbox.OpenConfig{})
		}, "no-such-driver"},
		"unknown dialect": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), silentDriver{}, sqloutbox.OpenConfig{})
		}, "name it"},
		"nil connector": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), nil, sqloutbox.OpenConfig{})
		}, "nil driver.Connector"},
		"wrong prefix": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), silentDriver{},
				sqloutbox.OpenConfig{Dialect: core.Postgres, Prefix: `a"b`})
		}, "prefix"},
		"wrong configuration": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), silentDriver{}, sqloutbox.OpenConfig{
				Dialect: core.Postgres, Workers: -1,
			})
		}, "Workers"},
		"failed migration": {func() (*sql.DB, *core.Outbox, error) {
			return sqloutbox.OpenConnector(t.Context(), silentDriver{errors.New("no database")},
				sqloutbox.OpenConfig{Dialect: core.Postgres, AutoCreate: true})
		}, "no database"},
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
