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
	"github.com/ormoutbox/ormoutbox/core/relay"
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

// Every setting of the outbox is one of Open, and reaches the outbox.
func TestOpenConfigHasEverySetting(t *testing.T) {
	own := reflect.New(reflect.TypeFor[sqloutbox.OpenConfig]()).Elem()
	for _, f := range own.Fields() {
		switch f.Kind() { // another value than the zero value
		case reflect.Bool:
			f.SetBool(true)
		case reflect.String:
			f.SetString("x")
		case reflect.Int, reflect.Int64:
			f.SetInt(1)
		case reflect.Uint8:
			f.SetUint(1)
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		case reflect.Func:
			f.Set(reflect.MakeFunc(f.Type(), nil))
		case reflect.Map:
			f.Set(reflect.MakeMap(f.Type()))
		}
	}
	c := own.Addr().Interface().(*sqloutbox.OpenConfig)
	c.Publisher, c.Codec = core.NewRouter(), core.JSON
	c.Relay.Workers, c.BacklogLimit.Rows, c.Wake.Disable = 1, 1, true
	got := reflect.ValueOf(c.Core(&sqloutbox.Repository{}))
	for field, v := range got.Fields() {
		if v.IsZero() {
			t.Errorf("core.Config.%s is not set from sqloutbox.OpenConfig", field.Name)
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
				Dialect: core.Postgres, Relay: relay.Config{Workers: -1},
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
