package repository_test

import (
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Migrations 0003 and 0004 are applied while a process runs that does not know their tables and
// columns. That process goes on publishing and relaying, also beside one that knows them. Every
// event arrives once, in the order of its key.
func TestUpgradeUnderARunningProcess(t *testing.T) {
	t.Parallel()
	testdb.Every(t, func(t *testing.T, db testdb.DB) {
		pub := &outboxtest.Publisher{}
		old := fixture.JoinProcess(t, db, pub, core.Config{})
		fixture.NoError(t, old.Repository.Migrate(t.Context()))
		fixture.MigrateDown(t, old.Pool, db.Dialect, 2)
		u := &upgrade{T: t, d: db.Dialect, pool: old.Pool, prefix: sqloutbox.DefaultPrefix, repo: old.Repository}
		before := u.shape()
		if _, err := old.Outbox.Relays(t.Context()); !errors.Is(err, core.ErrNoTables) {
			t.Fatalf("the table of the relays is there before the migration: %v", err)
		}

		var err error
		old.Outbox, err = core.New(core.Config{
			// The version before had no heartbeats, and its Check did not ask for their table.
			Repository: struct{ core.Repository }{old.Repository},
			Publisher:  pub, Logger: slog.New(slog.DiscardHandler),
		})
		fixture.NoError(t, err)
		var want []string
		publish := func(p *fixture.Process) {
			t.Helper()
			for range 5 {
				want = append(want, p.Publish(core.Event{Type: "paid", Topic: "orders", Key: "7"})...)
			}
		}
		old.Run()
		publish(old)
		pub.Wait(t, len(want))

		fixture.NoError(t, old.Repository.Migrate(t.Context()))
		fixture.NoError(t, old.Repository.Check(t.Context()))
		after := u.shape()
		gone, added := missing(before, after), missing(after, before)
		if len(gone) > 0 || !slices.Equal(added, []string{"error_group"}) {
			t.Errorf("the table of events has changed: gone %v; new %v", gone, added)
		}
		publish(old)
		pub.Wait(t, len(want))

		joined := fixture.JoinProcess(t, db, pub, core.Config{})
		joined.Run()
		fixture.Await(t, "the new relay is known", func() bool {
			relays, err := joined.Outbox.Relays(t.Context())
			return err == nil && len(relays) == 1 && relays[0].Node == joined.Outbox.Node()
		})
		publish(joined)
		publish(old)
		var got []string
		for _, d := range pub.Wait(t, len(want)) {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("arrived %v, want %v", got, want)
		}
	})
}
