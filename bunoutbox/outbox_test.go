package bunoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	bundialect "github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/dialect/feature"
	"github.com/uptrace/bun/schema"

	"github.com/ormoutbox/ormoutbox/bunoutbox"
	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// named is a dialect without a database.
type named struct {
	schema.BaseDialect
	name   bundialect.Name
	tables *schema.Tables
}

func newNamed(name bundialect.Name) *named {
	d := &named{name: name}
	d.tables = schema.NewTables(d)
	return d
}

func (*named) Init(*sql.DB)                                                     {}
func (d *named) Name() bundialect.Name                                          { return d.name }
func (*named) Features() feature.Feature                                        { return 0 }
func (d *named) Tables() *schema.Tables                                         { return d.tables }
func (*named) OnTable(*schema.Table)                                            {}
func (*named) IdentQuote() byte                                                 { return '"' }
func (*named) DefaultVarcharLen() int                                           { return 0 }
func (*named) DefaultSchema() string                                            { return "" }
func (*named) AppendSequence(b []byte, _ *schema.Table, _ *schema.Field) []byte { return b }

// nowhere is a server that does not answer.
type nowhere struct{}

var errNowhere = errors.New("nowhere")

func (nowhere) Connect(context.Context) (driver.Conn, error) { return nil, errNowhere }
func (nowhere) Driver() driver.Driver                        { return nil }

func open(t *testing.T, name bundialect.Name) *bun.DB {
	t.Helper()
	db := bun.NewDB(sql.OpenDB(nowhere{}), newNamed(name))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func TestNewReportsMistakes(t *testing.T) {
	for name, tc := range map[string]struct {
		db   *bun.DB
		cfg  bunoutbox.Config
		want []string
	}{
		"nil":     {nil, bunoutbox.Config{}, []string{"*bun.DB is nil"}},
		"dialect": {open(t, bundialect.MSSQL), bunoutbox.Config{}, []string{`"mssql" is not supported`}},
		"outbox and its settings": {open(t, bundialect.PG), bunoutbox.Config{
			Outbox: new(core.Outbox), Publisher: core.NewRouter(), Prefix: "x_", Schema: "s", AutoCreate: true,
			RejectUntracked: true,
		}, []string{
			"Publisher and Outbox", "Prefix and Outbox", "Schema and Outbox", "AutoCreate and Outbox",
			"RejectUntracked and Outbox",
		}},
		"prefix": {open(t, bundialect.PG), bunoutbox.Config{Prefix: "no good"}, []string{"prefix"}},
		"core": {
			open(t, bundialect.SQLite),
			bunoutbox.Config{Relay: relay.Config{Workers: -1}},
			[]string{"Workers"},
		},
		"no database": {open(t, bundialect.MySQL), bunoutbox.Config{AutoCreate: true}, []string{"nowhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bunoutbox.New(tc.db, tc.cfg)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tc.want {
				if !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
					t.Errorf("%q is not in %v", want, err)
				}
			}
		})
	}
}

func newOutbox(t *testing.T, db *bun.DB) *bunoutbox.Outbox {
	t.Helper()
	ob, err := bunoutbox.New(db, bunoutbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return ob
}

// A mistake in an On function is reported by every call that would use it.
func TestOnReportsMistakes(t *testing.T) {
	ob := newOutbox(t, open(t, bundialect.PG))
	bunoutbox.On[struct{}](nil, nil)
	bunoutbox.On[struct{}](ob, nil)
	bunoutbox.On(ob, func(core.Op, *string) []core.Event { return nil })
	for name, err := range map[string]error{
		"Run":     ob.Run(t.Context()),
		"Drain":   ob.Drain(t.Context()),
		"Publish": ob.Publish(t.Context(), nil),
		"RunInTx": ob.RunInTx(t.Context(), func(context.Context, bun.Tx) error { return nil }),
	} {
		for _, want := range []string{
			"On[struct {}] was given a nil function",
			"On[string]: the type must be the model's struct",
		} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q is not in %v", name, want, err)
			}
		}
	}
}

func TestWithoutTransaction(t *testing.T) {
	db := open(t, bundialect.PG)
	ob := newOutbox(t, db)
	for name, err := range map[string]error{
		"Publish": ob.Publish(t.Context(), nil, core.Event{Type: "x"}),
		"pool":    ob.Publish(t.Context(), db, core.Event{Type: "x"}),
	} {
		if !errors.Is(err, core.ErrNoTransaction) {
			t.Errorf("%s: %v, want ErrNoTransaction", name, err)
		}
	}
	if _, err := bunoutbox.FromContext(t.Context()); !errors.Is(err, core.ErrNoTransaction) {
		t.Errorf("FromContext: %v, want ErrNoTransaction", err)
	}
	if err := ob.Run(t.Context()); !errors.Is(err, core.ErrNoPublisher) {
		t.Errorf("Run: %v, want ErrNoPublisher", err)
	}
}

func TestRunInTxReportsMistakes(t *testing.T) {
	db := open(t, bundialect.PG)
	ob := newOutbox(t, db)
	ok := func(context.Context, core.Tx) error { return nil }
	var none *bunoutbox.Outbox
	for name, err := range map[string]error{
		"nil function":               ob.RunInTx(t.Context(), nil),
		"nil outbox":                 none.RunInTx(t.Context(), func(context.Context, bun.Tx) error { return nil }),
		"nil function of Transactor": bunoutbox.Transactor(db).RunInTx(t.Context(), nil),
		"nil database":               bunoutbox.Transactor(nil).RunInTx(t.Context(), ok),
		"unsupported database":       bunoutbox.Transactor(open(t, bundialect.Oracle)).RunInTx(t.Context(), ok),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := bunoutbox.Transactor(db).RunInTx(t.Context(), ok); !errors.Is(err, errNowhere) {
		t.Errorf("no database: %v", err)
	}
}

// Hook always returns the same hook. The hook lets statements pass that have no events.
func TestHook(t *testing.T) {
	db := open(t, bundialect.PG)
	ob := newOutbox(t, db)
	if ob.Hook() != ob.Hook() {
		t.Error("two hooks")
	}
	if ob.Outbox() == nil {
		t.Error("no core.Outbox")
	}
	db = db.WithQueryHook(ob.Hook())
	if _, err := db.NewInsert().Model(&struct{ ID int }{1}).Exec(t.Context()); !errors.Is(err, errNowhere) {
		t.Errorf("a statement of no concern: %v", err)
	}
}

// A Transactor that can never begin a transaction is refused by every function that takes a
// Transactor.
func TestTransactorOfNothing(t *testing.T) {
	r := bunoutbox.Transactor(nil)
	for _, err := range []error{
		core.CheckTransactor(r),
		r.RunInTx(t.Context(), func(context.Context, core.Tx) error { return nil }),
	} {
		if err == nil || !strings.Contains(err.Error(), "nil *bun.DB") {
			t.Errorf("nil: %v", err)
		}
	}
	if err := core.CheckTransactor(bunoutbox.Transactor(open(t, bundialect.Oracle))); err == nil ||
		!strings.Contains(err.Error(), "not supported") {
		t.Errorf("Oracle: %v", err)
	}
	if err := core.CheckTransactor(bunoutbox.Transactor(open(t, bundialect.PG))); err != nil {
		t.Error(err)
	}
}
