package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	coreonce "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

func TestErase(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		event := func(id string) core.Event {
			return core.Event{
				ID: core.NewEventID(), Type: "customer.renamed", Topic: "customers", AggregateType: "customer",
				AggregateID: id, Payload: []byte(`{"name":"Ada ` + id + `"}`),
			}
		}
		first := event("42")
		w.publish(first, event("43"))
		w.drain(nil, core.BlockKey)
		w.publish(event("42"))
		w.drain(core.Permanent(errSchema), core.BlockKey)
		w.publish(event("42"))

		w.require(w.run("erase", "--reason", "x"), ExitUsage, "whose data")
		w.require(w.run("erase", "--aggregate", "42", "--reason", "x"), ExitUsage, "it is TYPE/ID")
		w.require(w.run("erase", "--aggregate", "customer/42"), ExitUsage, "--reason")
		w.require(w.run("erase", "--aggregate", "customer/42", "--reason", "x"), ExitRefused,
			"erase the data of customer/42 in ")
		w.require(w.answer("n\n", "erase", "--aggregate", "customer/42", "--reason", "x"), ExitRefused, "[y/N]")
		w.require(w.run("erase", "--key", "7", "--reason", "x", "--yes"), ExitFailed, "outbox migrate up --tables keys")
		w.golden("erase-dry-run.txt", w.ok("erase", "--aggregate", "customer/42", "--dry-run"))
		left := func() int {
			var n int
			must(w, w.open().QueryRowContext(w.Context(), "SELECT COUNT(*) FROM outbox_event WHERE "+
				w.binary("payload")+" LIKE '%Ada 42%'").Scan(&n))
			return n
		}
		equal(w, left(), 3, "payloads")

		// With effects and keys, of which one has an answer.
		w.ok("migrate", "up", "--tables", "all")
		db := w.open()
		effects, err := sqlcommand.New(db, sqlcommand.Config{Dialect: w.dialect})
		must(w, err)
		must(w, sqltx.NewTransactor(db, w.dialect).RunInTx(w.Context(), func(ctx context.Context, tx core.Tx) error {
			_, _, err := effects.EnqueueTx(ctx, tx, command.Effect{
				ID: core.NewEventID(), Channel: "mail", Key: "k", Payload: []byte("Ada 42"), EventID: first.ID,
			})
			return err
		}))
		keys, err := sqlonce.New(db, sqlonce.Config{Dialect: w.dialect})
		must(w, err)
		key := coreonce.Key{Scope: "s", ID: "7"}
		got, err := keys.Acquire(
			w.Context(),
			coreonce.Request{Key: key, Owner: "o", Lease: time.Minute, TTL: time.Hour},
		)
		must(w, err)
		claim := coreonce.Claim{Key: key, Owner: "o", Fence: got.Fence}
		must(w, keys.Complete(w.Context(), claim, coreonce.Result{Data: []byte("Ada 42")}, time.Hour))

		r := w.answer(
			"y\n",
			"erase",
			"--aggregate",
			"customer/42",
			"--key",
			"7",
			"--reason",
			"request 4711",
			"--actor",
			"ada",
		)
		w.require(r, ExitPartial, "[y/N]", "not reached:", "messages at brokers", "1 event, 1 effect and 0 keys")
		w.golden("erase.txt", r.out)
		equal(w, left(), 1, "payloads after the erasure")
		w.require(
			w.run("audit", "--action", "erase"),
			ExitOK,
			"request 4711 (customer/42, answers of 1 idempotency keys",
		)

		var e erasure
		code := w.json(&e, "erase", "--aggregate", "customer/42", "--open", "--reason", "request 4711", "--yes")
		if code != ExitPartial || e.Erased != 1 || e.Already != 2 || e.OpenEffects != 1 || e.Left != 0 || e.DryRun ||
			len(e.Unreached) < 5 {
			w.Errorf("exit code %d, %+v", code, e)
		}
		equal(w, left(), 0, "payloads after all")
		if out := w.ok("list", "--json") + w.ok("dead", "--json"); strings.Contains(out, "field total") {
			w.Errorf("the error of an erased event is there:\n%s", out)
		}
		w.ok("redrive", "--all", "--reason", "x", "--yes")
		w.drain(nil, core.BlockKey) // erased events go out in their order, without their content
		w.require(w.run("status"), ExitOK, "no event waits, and none is dead")
	})
}

// binary is a column of bytes as a text.
func (w *world) binary(column string) string {
	if w.dialect == core.Postgres {
		return "convert_from(" + column + ", 'UTF8')"
	}
	return "CAST(" + column + " AS CHAR)"
}
