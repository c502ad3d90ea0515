package entoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/entoutbox"
)

// Code that needs a database or a generated client is tested in the module "integration", on
// PostgreSQL, MariaDB and SQLite.

// fakeDriver has only what Ent requires, and no pool.
type fakeDriver struct{ dialect.Driver }

func (*fakeDriver) Dialect() string { return dialect.Postgres }

var errDown = errors.New("the database is down")

// down is a database that cannot be reached.
type down struct{ err error }

func (d down) Connect(context.Context) (driver.Conn, error) { return nil, d.err }
func (d down) Driver() driver.Driver                        { return nil }

func downDriver(name string) dialect.Driver {
	return entsql.OpenDB(name, sql.OpenDB(down{errDown}))
}

func TestNewReportsMistakes(t *testing.T) {
	shared := func(d core.Dialect) *core.Outbox {
		repo, err := sqloutbox.New(sql.OpenDB(down{errDown}), sqloutbox.Config{Dialect: d})
		if err != nil {
			t.Fatal(err)
		}
		ob, err := core.New(core.Config{Repository: repo})
		if err != nil {
			t.Fatal(err)
		}
		return ob
	}
	for name, tc := range map[string]struct {
		drv  dialect.Driver
		cfg  entoutbox.Config
		want []string
	}{
		"nil driver": {nil, entoutbox.Config{}, []string{"nil driver"}},
		"dialect":    {downDriver(dialect.Gremlin), entoutbox.Config{}, []string{`"gremlin" is not supported`}},
		"no pool":    {&fakeDriver{}, entoutbox.Config{}, []string{"has no *sql.DB", "set Config.Outbox"}},
		"no *sql.DB": {
			entsql.NewDriver(dialect.Postgres, entsql.Conn{}),
			entoutbox.Config{},
			[]string{"has no *sql.DB"},
		},
		"no database": {downDriver(dialect.Postgres), entoutbox.Config{AutoCreate: true}, []string{errDown.Error()}},
		"prefix":      {downDriver(dialect.SQLite), entoutbox.Config{Prefix: "a b"}, []string{"Prefix"}},
		"core.Config": {
			downDriver(dialect.MySQL),
			entoutbox.Config{Relay: relay.Config{Workers: -1}},
			[]string{"Workers"},
		},
		"other tables": {
			downDriver(dialect.MySQL),
			entoutbox.Config{Outbox: shared(core.Postgres)},
			[]string{"postgres database", "mysql"},
		},
		"outbox and its settings": {downDriver(dialect.MySQL), entoutbox.Config{
			Outbox: shared(core.MySQL), Publisher: core.NewRouter(), Prefix: "x_", Schema: "s", AutoCreate: true,
		}, []string{"Publisher and Outbox", "Prefix and Outbox", "Schema and Outbox", "AutoCreate and Outbox"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := entoutbox.New(tc.drv, tc.cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
		})
	}
}

func TestNewFindsThePool(t *testing.T) {
	base := downDriver(dialect.Postgres)
	first, err := entoutbox.New(base, entoutbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, drv := range map[string]dialect.Driver{
		"debug": dialect.Debug(base), "debug of debug": dialect.Debug(dialect.Debug(base)), "ours": first.Driver(),
		"debug of ours": dialect.Debug(first.Driver()),
	} {
		if _, err := entoutbox.New(drv, entoutbox.Config{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := first.Driver().Tx(t.Context()); !errors.Is(err, errDown) {
		t.Errorf("Tx: %v, want the error of the database", err)
	}
}

func TestWithoutTransaction(t *testing.T) {
	ob, err := entoutbox.New(downDriver(dialect.Postgres), entoutbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var none *Tx
	for name, err := range map[string]error{
		"Publish of nil":        ob.Publish(t.Context(), nil, core.Event{Type: "x"}),
		"Publish of the driver": ob.Publish(t.Context(), ob.Driver().(entoutbox.Conn), core.Event{Type: "x"}),
		"TxOf a nil pointer":    second(entoutbox.TxOf(t.Context(), none)),
		"FromContext":           second(entoutbox.FromContext[*sql.Tx](t.Context())),
	} {
		if !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("%s: %v, want ErrNoTransaction", name, err)
		}
	}
	// A connection that executes the probe instead of answering it is not tracked.
	if _, err := entoutbox.TxOf(t.Context(), sql.OpenDB(down{errDown})); !errors.Is(err, core.ErrNotInstalled) ||
		!errors.Is(err, errDown) {
		t.Errorf("TxOf: %v, want ErrNotInstalled and the reason", err)
	}
	if err := ob.Run(t.Context()); !errors.Is(err, core.ErrNoPublisher) {
		t.Errorf("Run: %v, want ErrNoPublisher", err)
	}
}

func second[T any](_ T, err error) error { return err }

type entTx struct{}

func (entTx) Commit() error   { return nil }
func (entTx) Rollback() error { return nil }

// A Transactor that can never begin a transaction is refused by every function that takes a
// Transactor.
func TestTransactorOfNothing(t *testing.T) {
	r := entoutbox.Transactor[entTx](nil)
	for _, err := range []error{
		core.CheckTransactor(r),
		r.RunInTx(t.Context(), func(context.Context, core.Tx) error { return nil }),
	} {
		if err == nil || !strings.Contains(err.Error(), "give it client.Tx") {
			t.Errorf("nil: %v", err)
		}
	}
	if err := core.CheckTransactor(entoutbox.Transactor(func(context.Context) (entTx, error) {
		return entTx{}, nil
	})); err != nil {
		t.Error(err)
	}
}
