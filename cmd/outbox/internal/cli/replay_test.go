package cli

import (
	"sync/atomic"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func TestReplay(t *testing.T) {
	migrated(t, func(w *world) {
		for range 3 {
			w.publish(core.Event{Type: "order.placed", Topic: "orders", Key: "7", Payload: []byte("{}")})
		}
		w.drain(nil, core.BlockKey)
		const window = "--dedup-window=168h"
		w.require(w.run("replay"), ExitOK, "replay plan")
		w.require(w.run("replay", "plan", window), ExitUsage, "--reason is missing")
		w.require(w.run("replay", "plan", "--reason", "INC-7"), ExitUsage, "--dedup-window is missing")
		w.require(w.run("replay", "plan", "x", window, "--reason", "INC-7"), ExitUsage, "row id")
		w.require(w.run("replay", "plan", "--dedup-window=1us", "--reason", "INC-7"), ExitFailed, "forgotten")
		w.require(w.run("replay", "plan", window, "--limit=2", "--reason", "INC-7"), ExitUsage, "more than 2 events")
		w.require(w.run("replay", "plan", window, "--dry-run"), ExitOK, "3 done events of 1 key")
		var would map[string]any
		w.json(&would, "replay", "plan", window, "--dry-run")
		if would["dry_run"] != true || would["events"] != 3.0 || would["id"] != nil || would["created_at"] != nil {
			w.Errorf("a dry run prints %v", would)
		}
		w.require(w.run("plans", "list"), ExitOK, "no plan is stored")
		var p ops.StoredPlan
		w.json(&p, "replay", "plan", "--topic=orders", "--since=1h", window, "--reason", "INC-7")
		if p.ID == "" || p.Events != 3 || p.Action != ops.ActionReplay {
			t.Fatalf("%+v", p)
		}
		w.require(w.run("redrive", "apply", p.ID, "--yes"), ExitUsage, "outbox replay apply "+p.ID)
		w.require(w.run("replay", "apply", p.ID), ExitRefused, "--yes")
		var broken atomic.Bool
		var published atomic.Int64
		w.relaying(&broken, &published)
		w.require(w.run("replay", "apply", p.ID, "--yes"), ExitOK, "is done", "3 worked off, 3 changed",
			"3 published, 0 failed")
		equal(t, published.Load(), 3, "events were published")
		w.require(w.run("replay", "apply", p.ID, "--yes"), ExitFailed, "the plan has ended")
		w.require(w.run("audit"), ExitOK, "replay", "INC-7")
	})
}

// If a reader of the log has published events, a replay leaves them to that reader, and its output
// says so. The plan is done before anybody has read the log.
func TestReplayForAReaderOfTheLog(t *testing.T) {
	migrated(t, func(w *world) {
		w.publish(core.Event{Type: "order.placed", Topic: "orders"})
		w.exec("UPDATE outbox_event SET status = 1, done_at = created_at, claimed_by = 'log'")
		const who = "a program that reads the log, walrelay or Debezium, publishes 1 event of the plan"
		w.require(w.run("replay", "plan", "--dedup-window=1h", "--dry-run"), ExitOK, who)
		var p ops.StoredPlan
		w.json(&p, "replay", "plan", "--dedup-window=1h", "--reason", "INC-7")
		if p.ByLog != 1 || p.Events != 1 {
			w.Errorf("plan %+v", p)
		}
		w.require(w.run("replay", "apply", p.ID, "--yes"), ExitOK, "is done", who,
			"1 published or left to the reader of the log, 0 failed")
	})
}
