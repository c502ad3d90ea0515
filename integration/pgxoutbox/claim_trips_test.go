package pgxoutbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// openers opens a pool of one connection in each way, and returns the repository on it. A claim
// through database/sql is a transaction with settings of the planner: BEGIN, the settings, the
// claim, COMMIT. So is each other query of the table that needs those settings. On the pools of
// module pgxoutbox, all four are sent together.
var openers = []struct {
	name  string
	claim int64 // round trips
	open  func(t *testing.T, cfg *pgx.ConnConfig) *sqloutbox.Repository
}{
	{"database/sql", 4, onSQL(func(cfg pgx.ConnConfig) driver.Connector { return stdlib.GetConnector(cfg) })},
	{"sqltx", 4, onSQL(func(cfg pgx.ConnConfig) driver.Connector {
		return sqltx.Connector(stdlib.GetConnector(cfg), core.Postgres)
	})},
	{"Connector", 1, onSQL(func(cfg pgx.ConnConfig) driver.Connector {
		return pgxoutbox.Connector(pgxoutbox.Config{Conn: cfg})
	})},
	{"NewRepository", 1, func(t *testing.T, cfg *pgx.ConnConfig) *sqloutbox.Repository {
		own, err := pgxpool.ParseConfig(cfg.ConnString())
		fixture.NoError(t, err)
		own.ConnConfig.DialFunc, own.MaxConns = cfg.DialFunc, 1
		pool, err := pgxpool.NewWithConfig(t.Context(), own)
		fixture.NoError(t, err)
		t.Cleanup(pool.Close)
		repo, err := pgxoutbox.NewRepository(pool, sqloutbox.Config{})
		fixture.NoError(t, err)
		return repo
	}},
}

func onSQL(connector func(cfg pgx.ConnConfig) driver.Connector,
) func(*testing.T, *pgx.ConnConfig) *sqloutbox.Repository {
	return func(t *testing.T, cfg *pgx.ConnConfig) *sqloutbox.Repository {
		pool := sql.OpenDB(connector(*cfg))
		t.Cleanup(func() { _ = pool.Close() })
		pool.SetMaxOpenConns(1)
		repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: core.Postgres})
		fixture.NoError(t, err)
		return repo
	}
}

// The test takes the smallest number of several rounds. In the first rounds statements are
// prepared, and an idle connection may be pinged in any round.
const tripRounds = 5

// A mark is one statement in every way.
func TestRoundTripsOfClaims(t *testing.T) {
	t.Parallel()
	for _, way := range openers {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			db := testdb.Postgres(t)
			var n atomic.Int64
			repo := way.open(t, countTrips(t, db, &n, new(atomic.Bool)))
			fixture.NoError(t, repo.Migrate(t.Context()))
			least := map[string]int64{}
			for round := range tripRounds {
				req := core.ClaimRequest{
					Node: "node", ClaimNo: int64(round + 1), Lease: time.Minute, MaxLease: time.Hour,
					Limit: 1, MaxBytes: 1 << 20, Run: 1, Keys: 10,
				}
				ref := []core.ClaimRef{{ID: core.RowID{1}, ClaimNo: 1}}
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
					"mark done": func() error {
						_, err := repo.MarkDone(t.Context(), []core.Done{{ID: core.RowID{1}}}, false)
						return err
					},
					"mark failed": func() error {
						failed := []core.Failure{{ClaimRef: ref[0], Kind: core.FailRetry}}
						_, err := repo.MarkFailed(t.Context(), "node", failed)
						return err
					},
					"renew": func() error {
						_, err := repo.Renew(t.Context(), "node", time.Minute, ref)
						return err
					},
					"heartbeat": func() error { return repo.Beat(t.Context(), core.Heartbeat{Node: "node"}) },
					"settings": func() error {
						_, err := repo.Settings(t.Context())
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
				want := int64(1)
				if strings.HasPrefix(name, "claim") || name == "next due" {
					want = way.claim
				}
				fixture.Check(t, n == want, "%s: %d round trips, want %d", name, n, want)
			}
		})
	}
}

// countTrips returns the configuration of a connection whose round trips are counted.
func countTrips(t *testing.T, db testdb.DB, n *atomic.Int64, writing *atomic.Bool) *pgx.ConnConfig {
	t.Helper()
	cfg, err := pgx.ParseConfig(db.DSN)
	fixture.NoError(t, err)
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return trips{conn, n, writing}, err
	}
	return cfg
}

// A relay that hears of an event publishes it after one claim, and nothing else.
func TestRoundTripsOfAWakeUp(t *testing.T) {
	t.Parallel()
	for _, way := range openers {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			f := newFlights(t, sqlModes[0]) // another process
			var n atomic.Int64
			var writing atomic.Bool
			repo := way.open(t, countTrips(t, f.db, &n, &writing))
			ears := make(chan func(), 1)
			publish := make(chan int64, 1) // round trips by then
			ob, err := core.New(core.Config{
				Repository: repo,
				Relay:      relay.Config{PollInterval: time.Hour, DisableJanitor: true},
				Wake: core.WakePolicy{Listen: func(ctx context.Context, wake func()) error {
					wake()
					ears <- wake
					<-ctx.Done()
					return ctx.Err()
				}},
				Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
					publish <- n.Load()
					return nil
				}),
			})
			fixture.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- ob.Run(ctx) }()
			defer func() {
				stop()
				fixture.NoError(t, <-ended)
			}()
			wake := <-ears
			var least int64
			for range tripRounds {
				var last, same int64
				fixture.Await(t, "the relay rests", func() bool {
					now := n.Load()
					if same++; now != last || writing.Load() {
						same = 0
					}
					last = now
					return same == 20
				})
				f.add()
				wake()
				if took := <-publish - last; least == 0 || took < least {
					least = took
				}
			}
			fixture.Check(t, least == way.claim, "%d round trips, want %d", least, way.claim)
		})
	}
}
