package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	oncekey "github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
)

// Status, doctor and explain say nothing about consumers, effects and keys while none is in trouble,
// or their tables are not there, and name those in trouble.
func TestBeside(t *testing.T) {
	migrated(t, func(w *world) {
		quiet := func() {
			w.Helper()
			out := w.ok("status")
			for _, word := range []string{"inbox", "effect", "idempotency", "consumer"} {
				if strings.Contains(out, word) {
					w.Errorf("nothing is wrong with %s, and status says:\n%s", word, out)
				}
			}
		}
		id := core.NewEventID()
		w.publish(core.Event{ID: id, Type: "paid", Topic: "mails"})
		quiet()
		var s outboxState
		if w.json(&s, "status"); s.Consumers != nil || s.Effects != nil || s.Scopes != nil {
			w.Errorf("tables that are not there: %+v", s.besideState)
		}
		w.ok("migrate", "up", "--tables", "inbox,effects,keys")
		quiet()
		if w.json(&s, "status"); s.Consumers == nil || s.Effects == nil || s.Scopes == nil {
			w.Errorf("tables that are there, without rows: %+v", s.besideState)
		}
		w.requireFinding(levelOK, "consumers", "no message is dead")
		w.requireFinding(levelOK, "keys", "none is abandoned")

		w.failInbox("mailer", id, true)
		w.failInbox("mailer", core.NewEventID(), true)
		w.failInbox("search", id, false)
		w.deadEffect("1")
		keys, err := sqlonce.New(w.open(), sqlonce.Config{Dialect: w.dialect})
		must(w, err)
		_, err = keys.Acquire(w.Context(), oncekey.Request{
			Key: oncekey.Key{Scope: "POST /orders", ID: "1"}, Owner: "a", Lease: time.Hour, TTL: 2 * time.Hour,
		})
		must(w, err)
		w.hourBack("idempotency_key", "lease_until")
		w.hourBack("idempotency_key", "lease_until")

		w.require(w.run("status", "--max-dead", "0"), ExitOK,
			"messages of handler send of consumer mailer: 2 dead, the oldest for ",
			"`outbox inbox list --consumer mailer`", "messages of handler send of consumer search: 1 failing",
			"effects of mail: 1 dead: `outbox effects list --channel mail`",
			"idempotency keys of POST /orders: 1 abandoned: `outbox idempotency list --status abandoned`")
		w.requireFinding(levelWarning, "consumers", "dead messages: 2 of handler send of consumer mailer; the oldest "+
			"was received ")
		w.requireFinding(levelWarning, "consumers", " ago: permanent, schema v3: field total")
		w.requireFinding(levelWarning, "keys", "abandoned keys: 1 of POST /orders; the lease of the oldest ended ")

		// The handlers are not listed, because no consumer has begun.
		w.exec("INSERT INTO inbox_handler (handler_id, consumer, handler) VALUES (1, 'mailer', 'send')")
		w.require(w.run("explain", id), ExitOK, "Handler send of consumer mailer gave it up after 1 attempt, at ",
			": permanent, schema v3: field total.", "fix: Remove the cause, then `outbox inbox redrive "+id+
				" --consumer mailer --reason WHY`")
		w.require(w.run("explain", id, "--json"), ExitOK, `"consumers": [`, `"status": "dead"`)
	})
}
