package pgxoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// A claim through database/sql is a transaction with settings of the planner: BEGIN, the settings,
// the claim, COMMIT. So is each other query of the table that needs those settings. With Connector,
// all four are sent together. A mark is one statement. TestRoundTripsOfNativePGX counts the round
// trips of native pgx.
func TestRoundTripsOfClaims(t *testing.T) {
	t.Parallel()
	for _, way := range []struct {
		name        string
		claim, mark int64
		connector   func(cfg pgx.ConnConfig) driver.Connector
	}{
		{"database/sql", 4, 1, func(cfg pgx.ConnConfig) driver.Connector { return stdlib.GetConnector(cfg) }},
		{"sqltx", 4, 1, func(cfg pgx.ConnConfig) driver.Connector {
			return sqltx.Connector(stdlib.GetConnector(cfg), core.Postgres)
		}},
		{"Connector", 1, 1, func(cfg pgx.ConnConfig) driver.Connector {
			return pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg})
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := pgx.ParseConfig(testdb.Postgres(t).DSN)
			fixture.NoError(t, err)
			var n atomic.Int64
			var writing atomic.Bool
			dial := cfg.DialFunc
			cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return trips{conn, &n, &writing}, err
			}
			pool := sql.OpenDB(way.connector(*cfg))
			t.Cleanup(func() { _ = pool.Close() })
			pool.SetMaxOpenConns(1)
			repo := fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: core.Postgres})
			least := map[string]int64{}
			// The test takes the smallest number of several rounds. In the first round statements
			// are prepared, and an idle connection may be pinged in any round.
			for round := range 5 {
				req := core.ClaimRequest{
					Node: "node", ClaimNo: int64(round + 1), Lease: time.Minute, MaxLease: time.Hour,
					Limit: 1, MaxBytes: 1 << 20, Run: 1, Keys: 10,
				}
				for name, do := range map[string]func() error{
					"claim": func() error {
						_, err := repo.ClaimUnordered(t.Context(), req)
						return err
					},
					"claim of heads": func() error {
						_, _, err := repo.ClaimHeads(t.Context(), req, core.KeyID{})
						return err
					},
					"claim of a key": func() error {
						_, err := repo.ClaimKey(t.Context(), req, core.KeyID{1})
						return err
					},
					"next due": func() error {
						_, _, err := repo.NextDue(t.Context(), req)
						return err
					},
					"mark": func() error {
						_, err := repo.MarkDone(t.Context(), []core.Done{{ID: core.RowID{1}}}, false)
						return err
					},
				} {
					before := n.Load()
					fixture.NoError(t, do())
					if took := n.Load() - before; least[name] == 0 || took < least[name] {
						least[name] = took
					}
				}
			}
			for name, n := range least {
				want := way.claim
				if name == "mark" {
					want = way.mark
				}
				fixture.Check(t, n == want, "%s: %d round trips, want %d", name, n, want)
			}
		})
	}
}
