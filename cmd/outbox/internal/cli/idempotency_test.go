package cli

import (
	"context"
	"errors"
	"testing"
	"time"

	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// Idempotency keys are counted by scope and listed, while their work runs, after it failed or its
// process disappeared, and when it is done.
func TestIdempotency(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("idempotency", "--prefix", "p_"), ExitFailed, "there is no table p_idempotency_key",
			"`outbox migrate up --tables keys --prefix p_` creates the tables")
		w.require(w.run("idempotency"), ExitFailed, "there is no table idempotency_key",
			"`outbox migrate up --tables keys` creates the tables")
		w.ok("migrate", "up", "--tables", "keys")
		w.require(w.run("idempotency"), ExitOK, "no key is stored")
		store, err := sqlonce.New(w.open(), sqlonce.Config{Dialect: w.dialect})
		must(w, err)
		runner, err := oncekey.New(oncekey.Config{Store: store, Lease: 30 * time.Minute}) // not extended below
		must(w, err)
		do := func(tenant, id string, work func() error) error {
			_, _, err := runner.Do(w.Context(), oncekey.Key{Scope: "POST /orders", Tenant: tenant, ID: id},
				oncekey.Fingerprint{}, func(context.Context) (oncekey.Result, error) {
					return oncekey.Result{Data: []byte("secret")}, work()
				})
			return err
		}
		failed := errors.New("no stock")
		must(w, do("acme", "1", func() error { return nil }))
		if err := do("", "2", func() error { return failed }); !errors.Is(err, failed) {
			w.Fatal(err)
		}
		want := func(held, abandoned int64) {
			w.Helper()
			var states []scopeState
			w.list(&states, "scopes", "idempotency")
			if len(states) != 1 || states[0] != (scopeState{
				Scope: "POST /orders", Held: held, Abandoned: abandoned, Failed: 1, Done: 1,
			}) {
				w.Errorf("%+v", states)
			}
		}
		err = do("", "3", func() error {
			want(1, 0)
			w.require(w.run("idempotency", "list", "--status", "abandoned"), ExitOK, "no key")
			w.hourBack("idempotency_key", "lease_until")
			want(0, 1)
			w.require(w.run("idempotency", "list", "--status", "held"), ExitOK, "abandoned", "3", "POST /orders")
			var rows []keyRow
			w.list(&rows, "keys", "idempotency", "list", "--status", "abandoned")
			if len(rows) != 1 || rows[0].ID != "3" || rows[0].Status != abandoned {
				w.Errorf("abandoned: %+v", rows)
			}
			return failed
		})
		if !errors.Is(err, failed) {
			w.Fatal(err)
		}
		r := w.run("idempotency", "list", "--scope", "POST /orders", "--id", "1", "--json")
		w.require(r, ExitOK, `"status": "done"`, `"tenant_id": "acme"`, `"expires_at": "20`)
		var rows []keyRow
		if w.list(&rows, "keys", "idempotency", "list", "--tenant", "acme"); len(rows) != 1 || rows[0].ID != "1" ||
			rows[0].DoneAt == nil || rows[0].LeaseUntil != nil || rows[0].Attempts != 1 {
			w.Errorf("%+v", rows)
		}
		if w.list(&rows, "keys", "idempotency", "list", "--status", "failed"); len(rows) != 2 {
			w.Errorf("%+v", rows)
		}
		if w.list(&rows, "keys", "idempotency", "list", "--limit", "1"); len(rows) != 1 {
			w.Errorf("%+v", rows)
		}
		w.require(w.run("idempotency", "list", "--scope", "POST /order"), ExitOK, "no key",
			`has the scope "POST /order": is that its name?`)
		w.require(w.run("idempotency", "list", "--id", "nothing"), ExitFailed, "no key\n",
			"no such key has the id nothing")
		code := w.list(&rows, "keys", "idempotency", "list", "--id", "1", "--status", "failed")
		if code != ExitFailed || len(rows) != 0 {
			w.Errorf("exit code %d, %+v", code, rows)
		}
		w.require(w.run("idempotency", "list", "--status", "free"), ExitUsage, "held, abandoned, failed or done")
		w.require(w.run("idempotency", "list", "--id", ""), ExitUsage, "it is empty")
	})
}
