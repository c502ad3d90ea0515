package sqloutbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

var errAway = errors.New("the server is away")

// away is a pool without a server. It is comparable by its name.
type away struct {
	name     string
	settings *map[string]string // settings that With was called with
}

func (a away) Exec(context.Context, string, ...any) (int64, error)         { return 0, errAway }
func (a away) Query(context.Context, string, ...any) (core.Rows, error)    { return nil, errAway }
func (a away) InTx(context.Context, func(q sqloutbox.Querier) error) error { return errAway }

func (a away) With(settings map[string]string) sqloutbox.Querier {
	if a.settings != nil {
		*a.settings = settings
	}
	return a
}

// awayTx is a transaction that was begun on a pool.
type awayTx struct {
	core.Tx
	pool sqloutbox.Pool
}

func (awayTx) Dialect() core.Dialect { return core.Postgres }

func (t awayTx) Pool() sqloutbox.Pool { return t.pool }

func (awayTx) Query(context.Context, string, ...any) (core.Rows, error) { return nil, errAway }

func TestNewWithPool(t *testing.T) {
	var settings map[string]string
	repo, err := sqloutbox.NewWithPool(away{"a", &settings}, sqloutbox.Config{})
	if err != nil || repo.Dialect() != core.Postgres {
		t.Fatalf("%v, %v", repo, err)
	}
	if len(settings) == 0 {
		t.Error("With was not called")
	}
	for name, value := range settings {
		want := fmt.Sprintf("set_config('%s', '%s', true)", name, value)
		if !strings.Contains(sqloutbox.Planner, want) {
			t.Errorf("%s is not in %s", want, sqloutbox.Planner)
		}
	}
	if n := strings.Count(sqloutbox.Planner, "set_config"); n != len(settings) {
		t.Errorf("With was called with %d settings %v, want %d", len(settings), maps.Clone(settings), n)
	}
	for name, call := range map[string]func() error{
		"Migrate": func() error { return repo.Migrate(t.Context()) },
		"Check":   func() error { return repo.Check(t.Context()) },
		"ClaimUnordered": func() error {
			_, err := repo.ClaimUnordered(t.Context(), core.ClaimRequest{
				Node: "n", ClaimNo: 1, Lease: 1, MaxLease: 1,
				Limit: 1,
			})
			return err
		},
		"MarkDone": func() error {
			_, err := repo.MarkDone(t.Context(), []core.Done{{}}, false)
			return err
		},
		"CollectKeys": func() error {
			_, _, err := repo.CollectKeys(t.Context(), 1, core.KeyID{}, 1)
			return err
		},
	} {
		if err := call(); !errors.Is(err, errAway) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewWithPoolReportsMistakes(t *testing.T) {
	for want, c := range map[string]struct {
		pool sqloutbox.Pool
		cfg  sqloutbox.OpenConfig
	}{
		"pool is nil":              {nil, sqloutbox.OpenConfig{}},
		"a Pool is for PostgreSQL": {away{}, sqloutbox.OpenConfig{Dialect: core.SQLite}},
		"Workers is negative":      {away{}, sqloutbox.OpenConfig{Relay: relay.Config{Workers: -1}}},
		"the server is away":       {away{}, sqloutbox.OpenConfig{AutoCreate: true}},
		"Schema":                   {away{}, sqloutbox.OpenConfig{Schema: "a b"}},
	} {
		_, err := sqloutbox.OpenWithPool(t.Context(), c.pool, c.cfg)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// A transaction of the same pool is accepted without a query. A transaction of another pool is
// asked in which database it is.
func TestCheckTxOfPools(t *testing.T) {
	repo, err := sqloutbox.NewWithPool(away{name: "a"}, sqloutbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		tx   core.Tx
		want error
	}{
		"the same pool":   {awayTx{pool: away{name: "a"}}, nil},
		"another pool":    {awayTx{pool: away{name: "b"}}, errAway},
		"an unknown pool": {awayTx{}, nil},
	} {
		if err := repo.CheckTx(t.Context(), c.tx); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// An adapter of a driver without database/sql makes outboxes with its Pool. A mistake is reported
// at once.
func ExampleOpenWithPool() {
	var pool sqloutbox.Pool
	_, err := sqloutbox.OpenWithPool(context.Background(), pool, sqloutbox.OpenConfig{})
	fmt.Println(err)
	// Output: sqloutbox: pool is nil
}

// NewWithPool takes a Pool where New takes a *sql.DB.
func ExampleNewWithPool() {
	var pool sqloutbox.Pool = away{} // that of an adapter
	repo, err := sqloutbox.NewWithPool(pool, sqloutbox.Config{Schema: "app"})
	if err != nil {
		panic(err)
	}
	fmt.Println(repo.Dialect())
	// Output: postgres
}
