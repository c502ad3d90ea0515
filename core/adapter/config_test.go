package adapter_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/adapter"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// Every setting of the outbox is one of an adapter, and reaches the outbox.
func TestConfigHasEverySetting(t *testing.T) {
	own := reflect.New(reflect.TypeFor[adapter.Config]()).Elem()
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
	c := own.Addr().Interface().(*adapter.Config)
	c.Publisher, c.Codec = core.NewRouter(), core.JSON
	c.Relay.Workers, c.BacklogLimit.Rows, c.Wake.Disable = 1, 1, true
	got := reflect.ValueOf(c.Core(outboxtest.NewRepository()))
	for field, v := range got.Fields() {
		if v.IsZero() {
			t.Errorf("core.Config.%s is not set from adapter.Config", field.Name)
		}
	}
}

// nowhere is a server that does not answer.
type nowhere struct{}

var errNowhere = errors.New("nowhere")

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errNowhere }
func (nowhere) Driver() driver.Driver                        { return nil }

func pool() (*sql.DB, error) { return sql.OpenDB(nowhere{}), nil }

func TestSettingsArrive(t *testing.T) {
	t.Parallel()
	ob := adapter.New(
		adapter.Config{Node: "here", Relay: relay.Config{Workers: -1, Retention: relay.Retention{Keep: -1}}},
		"open it",
	)
	err := ob.Open(t.Context(), core.SQLite, pool)
	for _, want := range []string{"Workers is negative", "Retention.Keep is negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	ob = adapter.New(adapter.Config{Node: "here"}, "open it")
	if err := ob.Open(t.Context(), core.SQLite, pool); err != nil {
		t.Fatal(err)
	}
	if node := ob.Operations().Outbox().Node(); !strings.HasPrefix(node, "here-") {
		t.Errorf("node %q", node)
	}
}

func TestOpenReportsMistakes(t *testing.T) {
	t.Parallel()
	shared := adapter.New(adapter.Config{}, "open it")
	if err := shared.Open(t.Context(), core.Postgres, pool); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cfg  adapter.Config
		want []string
	}{
		"prefix": {adapter.Config{Prefix: "a b"}, []string{"Prefix"}},
		"an outbox and its settings": {
			adapter.Config{
				Outbox: shared.Operations().Outbox(), Publisher: core.NewRouter(), Relay: relay.Config{Workers: 3},
				AutoCreate: true,
			},
			[]string{"Publisher and Outbox", "Relay and Outbox", "AutoCreate and Outbox"},
		},
		"an outbox elsewhere": {
			adapter.Config{Outbox: shared.Operations().Outbox()}, []string{"postgres database", "mysql"},
		},
		"no database": {adapter.Config{AutoCreate: true}, []string{errNowhere.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ob := adapter.New(tc.cfg, "open it")
			err := ob.Open(t.Context(), core.MySQL, pool)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q in it", err, want)
				}
			}
			if ob.Opened() || ob.Operations().Outbox() != nil {
				t.Error("it has an outbox all the same")
			}
		})
	}
	if err := adapter.New(adapter.Config{}, "open it").Open(t.Context(), core.MySQL,
		func() (*sql.DB, error) { return nil, errNowhere }); !errors.Is(err, errNowhere) {
		t.Errorf("Open without a pool: %v", err)
	}
	elsewhere := adapter.New(adapter.Config{Outbox: shared.Operations().Outbox()}, "open it")
	if err := elsewhere.Open(t.Context(), core.SQLite, pool); !errors.Is(err, core.ErrOtherDatabase) {
		t.Errorf("Open with an outbox elsewhere: %v, want ErrOtherDatabase", err)
	}
}
