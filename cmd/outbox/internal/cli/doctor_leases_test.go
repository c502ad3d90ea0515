package cli

import (
	"context"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
)

// hourBack moves the times of a column an hour back.
func (w *world) hourBack(table, column string) {
	w.Helper()
	w.exec("UPDATE " + table + " SET " + column + " = " + column + map[core.Dialect]string{
		core.Postgres: " - interval '1 hour'", core.MySQL: " - INTERVAL 1 HOUR", core.SQLite: " - 3600000000",
	}[w.dialect] + " WHERE " + column + " IS NOT NULL")
}

// Doctor finds events and effects that were taken over after their lease had ended.
func TestDoctorLeases(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.ok("migrate", "up", "--tables", "effects")
		w.requireFinding(levelOK, "leases", "none of the newest rows")
		db := w.open()
		w.publish(core.Event{Type: "order.placed", Topic: "orders"}, core.Event{Type: "order.placed", Topic: "orders"})
		repo, err := sqloutbox.New(db, sqloutbox.Config{Dialect: w.dialect})
		must(w, err)
		for i, node := range []string{"first", "second"} {
			got, err := repo.ClaimUnordered(w.Context(), core.ClaimRequest{
				Node: node, ClaimNo: int64(i + 1), Limit: 1, Lease: time.Minute, MaxLease: time.Hour, MaxBytes: 1 << 20,
			})
			if err != nil || len(got) != 1 {
				w.Fatalf("%d rows, %v", len(got), err)
			}
			w.hourBack("outbox_event", "lease_until")
		}
		w.requireFinding(levelWarning, "leases", "relays lost the lease of 1 of the newest 2 events")
		w.exec("DELETE FROM outbox_event")

		w.deadEffect("0")
		id := w.deadEffect("1")
		w.ok("effects", "redrive", id, "--reason", "x", "--yes")
		store, err := sqlcommand.New(db, sqlcommand.Config{Dialect: w.dialect})
		must(w, err)
		for _, owner := range []string{"first", "second"} {
			if got, err := store.Claim(w.Context(), id, owner, time.Minute); err != nil || !got.Fresh {
				w.Fatalf("%+v, %v", got, err)
			}
			w.hourBack("side_effect_command", "lease_until")
		}
		w.requireFinding(levelWarning, "leases", "workers lost the lease of 1 of the newest 2 effects")
	})
}

// Doctor finds work that takes longer than its lease.
func TestDoctorKeyLeases(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.ok("migrate", "up", "--tables", "keys")
		w.requireFinding(levelOK, "leases", "none of the newest rows")
		store, err := sqlonce.New(w.open(), sqlonce.Config{Dialect: w.dialect})
		must(w, err)
		runner, err := oncekey.New(oncekey.Config{Store: store})
		must(w, err)
		do := func(id string, work func()) {
			w.Helper()
			_, _, err := runner.Do(w.Context(), oncekey.Key{Scope: "charge", ID: id}, oncekey.Fingerprint{},
				func(context.Context) (oncekey.Result, error) {
					work()
					return oncekey.Result{}, nil
				})
			noError(w, err)
		}
		do("1", func() {})
		w.requireFinding(levelOK, "leases", "none of the newest rows", "--lease", "30s")
		w.hourBack("idempotency_key", "created_at")
		w.requireFinding(levelOK, "leases", "none of the newest rows")
		w.requireFinding(levelWarning, "leases", "work of charge takes 1h0m (p99 of 1), and its lease is 45s",
			"--lease", "45s")
		do("2", func() {
			w.requireFinding(levelWarning, "leases", "its lease is 30s")
			w.requireFinding(levelOK, "leases", "none of the newest rows", "--lease", "2h")
		})
	})
}
