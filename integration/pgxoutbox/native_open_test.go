package pgxoutbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
)

// One call takes a DSN and returns a pool with an outbox that publishes committed events.
func TestOpenNativePGX(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(
		dsn string, cfg pgxoutbox.OpenConfig,
	) (*pgxoutbox.Pool, *core.Outbox, error){
		"Open": func(dsn string, cfg pgxoutbox.OpenConfig) (*pgxoutbox.Pool, *core.Outbox, error) {
			return pgxoutbox.Open(t.Context(), dsn, cfg)
		},
		"OpenPool": func(dsn string, cfg pgxoutbox.OpenConfig) (*pgxoutbox.Pool, *core.Outbox, error) {
			config, err := pgxpool.ParseConfig(dsn)
			fixture.NoError(t, err)
			return pgxoutbox.OpenPool(t.Context(), config, cfg)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			published := &outboxtest.Publisher{}
			pool, ob, err := open(testdb.Postgres(t).DSN, pgxoutbox.OpenConfig{
				Publisher: published, AutoCreate: true, Schema: "own", Prefix: "out_",
			})
			fixture.NoError(t, err)
			t.Cleanup(pool.Close)

			fixture.RunRelay(t, ob)
			var ids []string
			err = pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.Serializable}, func(tx pgx.Tx) error {
				ids, err = pgxoutbox.Publish(t.Context(), ob, tx,
					core.Event{Type: "noted", Data: 1}, core.Event{Type: "noted", Key: "k", Data: 2})
				return err
			})
			fixture.NoError(t, err)
			fixture.Await(t, "both events are published", func() bool { return len(published.Accepted()) == len(ids) })
		})
	}
}

// A mistake is reported before anything is opened, and leaves nothing open.
func TestOpenNativePGXReportsMistakes(t *testing.T) {
	t.Parallel()
	dsn := testdb.Postgres(t).DSN
	for want, open := range map[string]func() error{
		"cannot parse": func() error {
			_, _, err := pgxoutbox.Open(t.Context(), "postgres://%", pgxoutbox.OpenConfig{})
			return err
		},
		"Workers is negative": func() error {
			_, _, err := pgxoutbox.Open(t.Context(), dsn, pgxoutbox.OpenConfig{Relay: relay.Config{Workers: -1}})
			return err
		},
		`Config.Dialect is "sqlite"`: func() error {
			_, _, err := pgxoutbox.Open(t.Context(), dsn, pgxoutbox.OpenConfig{Dialect: core.SQLite})
			return err
		},
		"nil *pgxpool.Config": func() error {
			_, _, err := pgxoutbox.OpenPool(t.Context(), nil, pgxoutbox.OpenConfig{})
			return err
		},
		"*pgxpool.Pool is nil": func() error {
			_, err := pgxoutbox.New(pgxoutbox.NewPool(nil), pgxoutbox.OpenConfig{})
			return err
		},
		"pgxoutbox: the *pgxpool.Pool": func() error {
			return core.CheckTransactor(pgxoutbox.Transactor(nil))
		},
		"read-only transaction": func() error {
			_, _, err := pgxoutbox.Open(t.Context(), dsn+"&default_transaction_read_only=on",
				pgxoutbox.OpenConfig{AutoCreate: true})
			return err
		},
	} {
		if err := open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

// A relay that polls once an hour hears at once of what another process has committed.
func TestNativePGXListens(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	service, inserts, err := pgxoutbox.Open(t.Context(), db.DSN, pgxoutbox.OpenConfig{AutoCreate: true})
	fixture.NoError(t, err)
	t.Cleanup(service.Close)
	published := &outboxtest.Publisher{}
	pool, relay, err := pgxoutbox.Open(t.Context(), db.DSN, pgxoutbox.OpenConfig{
		Publisher: published, Relay: relay.Config{PollInterval: time.Hour, MaxPollInterval: time.Hour},
	})
	fixture.NoError(t, err)
	t.Cleanup(pool.Close)
	fixture.RunRelay(t, relay)
	for n := 1; n <= 3; n++ {
		fixture.NoError(t, pgx.BeginFunc(t.Context(), service, func(tx pgx.Tx) error {
			_, err := pgxoutbox.Publish(t.Context(), inserts, tx, core.Event{Type: "noted", Data: n})
			return err
		}))
		fixture.Await(t, "the event is published", func() bool { return len(published.Accepted()) == n })
	}
}
