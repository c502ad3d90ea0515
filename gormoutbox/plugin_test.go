package gormoutbox_test

import (
	"errors"
	"strings"
	"testing"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/utils/tests"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/gormoutbox"
)

// Code that needs a database is tested in the module "integration", on PostgreSQL, MariaDB and
// SQLite.

// named is a dialect without a database.
type named struct {
	tests.DummyDialector
	name string
}

func (d named) Name() string { return d.name }

func open(t *testing.T, dialect string) *gorm.DB {
	t.Helper()
	db, err := gorm.Open(named{name: dialect}, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestUseReportsMistakes(t *testing.T) {
	on := gormoutbox.Plugin(gormoutbox.Config{})
	gormoutbox.On[struct{}](on, nil)
	gormoutbox.On(on, func(core.Op, *string) []core.Event { return nil })
	gormoutbox.On[struct{}](nil, nil)
	for name, tc := range map[string]struct {
		dialect string
		plugin  *gormoutbox.Outbox
		want    []string
	}{
		"dialect": {"sqlserver", gormoutbox.Plugin(gormoutbox.Config{}), []string{`"sqlserver" is not supported`}},
		"no pool": {"sqlite", gormoutbox.Plugin(gormoutbox.Config{}), []string{"no *sql.DB"}},
		"outbox and its settings": {"sqlite", gormoutbox.Plugin(gormoutbox.Config{
			Outbox: new(core.Outbox), Publisher: core.NewRouter(), Prefix: "x_", Schema: "s", AutoCreate: true,
			RejectUntracked: true,
		}), []string{
			"Publisher and Outbox", "Prefix and Outbox", "Schema and Outbox", "AutoCreate and Outbox",
			"RejectUntracked and Outbox",
		}},
		"on": {"sqlite", on, []string{
			"On[struct {}] was given a nil function",
			"On[string]: the type must be the model's struct",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			err := open(t, tc.dialect).Use(tc.plugin)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
			if err := tc.plugin.Run(t.Context()); !errors.Is(err, core.ErrNotInstalled) {
				t.Errorf("Run: %v, want ErrNotInstalled", err)
			}
		})
	}
}

func TestPublishWithoutPlugin(t *testing.T) {
	for name, db := range map[string]*gorm.DB{"zero": {}, "no plugin": open(t, "sqlite")} {
		if err := gormoutbox.Publish(t.Context(), db, core.Event{Type: "x"}); !errors.Is(err, core.ErrNotInstalled) {
			t.Errorf("%s: %v, want ErrNotInstalled", name, err)
		}
		if _, err := gormoutbox.TxOf(t.Context(), db); !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("%s: TxOf: %v, want ErrNoTransaction", name, err)
		}
	}
	if name := gormoutbox.Plugin(gormoutbox.Config{}).Name(); name != "outbox" {
		t.Errorf("name %q", name)
	}
}

// A Transactor that can never begin a transaction is refused by every function that takes a
// Transactor.
func TestTransactorOfNothing(t *testing.T) {
	for want, db := range map[string]*gorm.DB{
		"nil *gorm.DB":                 nil,
		"nil *gorm.DB ":                new(gorm.DB),
		`"sqlserver" is not supported`: open(t, "sqlserver"),
	} {
		r := gormoutbox.Transactor(db)
		for _, err := range []error{core.CheckTransactor(r), r.RunInTx(t.Context(), nil)} {
			if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	if err := core.CheckTransactor(gormoutbox.Transactor(open(t, "sqlite"))); err != nil {
		t.Error(err)
	}
}

// An Outbox that Plugin did not make cannot be used.
func TestUseOfAnOutboxNotInstalled(t *testing.T) {
	for name, ob := range map[string]*gormoutbox.Outbox{"nil": nil, "zero": {}} {
		if err := open(t, "sqlite").Use(ob); !errors.Is(err, core.ErrNotInstalled) {
			t.Errorf("%s: %v, want ErrNotInstalled", name, err)
		}
	}
}
