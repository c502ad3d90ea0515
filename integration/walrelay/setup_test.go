package walrelay_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// wantEnd requires that Run ends with an error of a kind, which says what to do.
func (w *world) wantEnd(cfg walrelay.Config, kind error, says string) {
	w.Helper()
	err := w.relay(cfg).Run(w.Context())
	fixture.Check(w, err != nil && (kind == nil || errors.Is(err, kind)) && strings.Contains(err.Error(), says),
		"Run returns %v, want %v that says %q", err, kind, says)
}

// Run ends with an error for a mistake that a person has to repair, and the error says how.
func TestWrongServer(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		plain := w.config()
		plain.Create = false
		w.wantEnd(plain, walrelay.ErrNotSetUp, "call Setup")

		role := "walrelay_" + w.slot
		fixture.MustExec(t, w.service.Pool, "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
		t.Cleanup(func() { _, _ = w.service.Pool.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role) })
		weak := w.config()
		weak.Replication = w.as(role)
		w.wantEnd(weak, nil, "the role has no right to read the log: ALTER ROLE ... REPLICATION")

		fixture.MustExec(t, w.service.Pool, "SELECT pg_create_logical_replication_slot('"+w.slot+"', 'test_decoding')")
		w.wantEnd(w.config(), walrelay.ErrSlotTaken, "test_decoding")
		w.dropSlot()
		fixture.MustExec(t, w.service.Pool, "SELECT pg_create_physical_replication_slot('"+w.slot+"')")
		w.wantEnd(w.config(), walrelay.ErrSlotTaken, "physical")
		w.dropSlot()
		other := newWorld(t, db.Another(t))
		other.slot = w.slot
		other.setUp()
		w.wantEnd(w.config(), walrelay.ErrSlotTaken, "of database")
		w.dropSlot()

		fixture.MustExec(t, w.service.Pool, "DROP PUBLICATION "+w.slot)
		fixture.MustExec(t, w.service.Pool, "CREATE PUBLICATION "+w.slot+" FOR TABLE accounts")
		w.wantEnd(w.config(), walrelay.ErrSlotTaken, "does not have the inserts")
		fixture.MustExec(t, w.service.Pool, "DROP PUBLICATION "+w.slot)
		fixture.MustExec(t, w.service.Pool, "CREATE PUBLICATION "+w.slot+" FOR TABLE outbox_event WHERE (topic = 'x')")
		w.wantEnd(w.config(), walrelay.ErrSlotTaken, "topic")

		missing := w.config()
		missing.Tables.Prefix = "no_"
		w.wantEnd(missing, core.ErrNoTables, "no_event")
	})
}

// as returns the settings of a connection for another role.
func (w *world) as(role string) *pgx.ConnConfig {
	w.Helper()
	at, err := url.Parse(w.db.DSN)
	fixture.NoError(w.T, err)
	at.User = url.UserPassword(role, "x")
	cfg, err := pgx.ParseConfig(at.String())
	fixture.NoError(w.T, err)
	return cfg
}

// The log cannot be read through a pooler, and the error says so.
func TestPooler(t *testing.T) {
	t.Parallel()
	db := testdb.PgBouncer(t)
	w := newWorld(t, db)
	w.wantEnd(w.config(), nil, "pooler")
}

// The tables may have another schema, other names and partitions. The role that reads the log needs
// no other right than that.
func TestNamesAndRights(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		tables := sqloutbox.Config{Schema: "own", Prefix: "out_", PartitionEvery: 24 * 3600e9}
		fixture.MustExec(t, w.service.Pool, "CREATE SCHEMA own")
		repo := fixture.NewRepository(t, w.service.Pool, tables)
		service, err := core.New(core.Config{Repository: repo, RelayedByLog: true})
		fixture.NoError(t, err)
		w.service.Outbox = service

		role := "walrelay_" + w.slot
		fixture.MustExec(t, w.service.Pool, "CREATE ROLE "+role+" LOGIN REPLICATION PASSWORD 'x'")
		t.Cleanup(func() { _, _ = w.service.Pool.Exec("DROP ROLE " + role) })
		cfg := w.config()
		cfg.Tables, cfg.Publication, cfg.Replication = tables, `odd "name"`, w.as(role)
		fixture.NoError(t, w.relay(cfg).Setup(t.Context()))
		fixture.NoError(t, w.relay(cfg).Setup(t.Context()))
		// Neither role owns the tables.
		writer := role + "_w"
		fixture.MustExec(t, w.service.Pool, "CREATE ROLE "+writer+" LOGIN PASSWORD 'x'")
		t.Cleanup(func() { _, _ = w.service.Pool.Exec("DROP OWNED BY " + writer + "; DROP ROLE " + writer) })
		fixture.MustExec(t, w.service.Pool, "GRANT USAGE ON SCHEMA own TO "+writer)
		fixture.MustExec(t, w.service.Pool, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA own TO "+
			writer)
		cfg.Create, cfg.Pool = false, w.poolOf(writer)
		stop := w.run(cfg)
		w.publish("a", 1, 10)
		w.await(10)
		stop()
		w.wantRepeats("a", 10)
		w.dropSlot()
		w.publish("a", 11, 20)
		w.run(cfg)
		w.awaitLast("a", 20) // a repair needs no other rights
		w.wantRepeats("a", 20)
	})
}

// poolOf opens a pool for another role.
func (w *world) poolOf(role string) *pgxpool.Pool {
	w.Helper()
	cfg, err := pgxpool.ParseConfig(w.as(role).ConnString())
	fixture.NoError(w.T, err)
	pool, err := pgxpool.NewWithConfig(w.Context(), cfg)
	fixture.NoError(w.T, err)
	w.Cleanup(pool.Close)
	return pool
}

// The statements of Setup make the same as Setup.
func TestStatements(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		cfg := w.config()
		cfg.Create = false
		relay := w.relay(cfg)
		for _, text := range relay.Statements() {
			fixture.MustExec(t, w.service.Pool, text)
		}
		fixture.RunRelay(w, relay)
		w.publish("a", 1, 3)
		w.await(3)
	})
}

// New reports every problem of a configuration at once.
func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := walrelay.New(walrelay.Config{
		Slot: "No", Window: -1, Outbox: core.Config{RelayedByLog: true, Wake: core.WakePolicy{Disable: true}},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, name := range []string{
		"wrong configuration", "Pool", "Slot", "Window", "RelayedByLog", "Publisher", "Wake",
	} {
		fixture.Check(t, strings.Contains(err.Error(), name), "the error does not name %s: %v", name, err)
	}
}
