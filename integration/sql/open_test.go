package sql_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"

	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// One call takes a driver's name and a DSN and returns an outbox that publishes committed events.
// The driver determines the dialect.
func TestSQLOpen(t *testing.T) {
	t.Parallel()
	type opener func(ctx context.Context, cfg sqloutbox.OpenConfig) (*sql.DB, *core.Outbox, error)
	byName := func(driver string) func(testdb.DB) opener {
		return func(db testdb.DB) opener {
			return func(ctx context.Context, cfg sqloutbox.OpenConfig) (*sql.DB, *core.Outbox, error) {
				return sqloutbox.Open(ctx, driver, db.DSN, cfg)
			}
		}
	}
	for name, way := range map[string]struct {
		database func(*testing.T) testdb.DB
		open     func(testdb.DB) opener
	}{
		"pgx": {testdb.Postgres, byName("pgx")},
		"pgdriver": {testdb.Postgres, func(db testdb.DB) opener {
			return func(ctx context.Context, cfg sqloutbox.OpenConfig) (*sql.DB, *core.Outbox, error) {
				return sqloutbox.OpenConnector(ctx,
					pgdriver.NewConnector(pgdriver.WithDSN(db.DSN), pgdriver.WithInsecure(true)), cfg)
			}
		}},
		"mysql":  {testdb.MariaDB, byName("mysql")},
		"sqlite": {testdb.SQLite, byName("sqlite")},
	} {
		t.Run(name, func(t *testing.T) {
			database := way.database(t)
			published := &outboxtest.Publisher{}
			db, ob, err := way.open(database)(t.Context(), sqloutbox.OpenConfig{Publisher: published, AutoCreate: true})
			fixture.NoError(t, err)
			defer db.Close()
			var want []string
			for n := range 2 {
				e := core.Event{ID: core.NewEventID(), Type: "order.placed", Data: n}
				tx, err := db.BeginTx(t.Context(), nil)
				fixture.NoError(t, err)
				own, err := sqltx.TxOf(t.Context(), tx)
				fixture.Must(t, err == nil && own.Tracked(), "TxOf: tracked %v, %v", own, err)
				if _, err := ob.Publish(t.Context(), own, e); err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					err = tx.Rollback()
				} else {
					want, err = append(want, e.ID), tx.Commit()
				}
				fixture.NoError(t, err)
			}
			fixture.NoError(t, ob.Drain(t.Context()))
			var got []string
			for _, d := range published.Accepted() {
				got = append(got, d.ID)
			}
			fixture.Check(t, slices.Equal(got, want), "published %q, want %q", got, want)
			if again, _, err := way.open(database)(t.Context(), sqloutbox.OpenConfig{AutoCreate: true}); err != nil {
				t.Error(fmt.Errorf("opened again: %w", err))
			} else if err := again.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
