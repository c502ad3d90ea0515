package cli

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// Consumers declare their windows, and every replay, doctor and explain follow them.
func TestWindow(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("window", "list"), ExitOK, "no consumer has declared a window")
		w.requireFinding(levelOK, "retention", "no consumer has declared")
		why := []string{"--reason", "its inbox", "--actor", "ann"}
		command := func(args ...string) result { return w.run(append(args, why...)...) }
		w.require(command("window", "declare", "orders", "search", "--keep", "168h"), ExitRefused, "--yes")
		w.require(command("window", "declare", "orders", "search", "--yes"), ExitUsage, "--keep is missing")
		w.require(command("window", "declare", "orders", "search", "--yes", "--keep", "-1h"), ExitUsage, "-1h")
		w.require(command("window", "declare", "orders", "--yes", "--keep", "1h"), ExitUsage)
		w.require(command("window", "declare", "orders", "search", "--yes", "--keep", "7d"), ExitUsage, "such as 168h")
		w.require(w.run("window", "declare", "orders", "search", "--yes", "--keep", "1h"), ExitUsage, "--reason")
		w.require(w.run("window", "declare", "orders", "search", "--keep", "1h", "--dry-run"), ExitOK,
			"consumer search of orders: nothing is declared", "would be stored: consumer search remembers")
		w.require(w.run("window", "declare", strings.Repeat("x", 250), "search", "--keep", "1h", "--dry-run"),
			ExitUsage, "Topic has 250 bytes")
		w.require(w.run("window", "withdraw", "orders", "search", "--dry-run"), ExitFailed, "has declared no window")
		w.require(w.run("window", "list"), ExitOK, "no consumer has declared a window")
		w.require(command("window", "declare", "orders", "mails", "--yes", "--keep", "forever"), ExitOK,
			"consumer mails remembers events of orders: forever")
		w.requireFinding(levelOK, "retention", "for ever")
		w.require(command("window", "declare", "orders", "search", "--yes", "--keep", "168h"), ExitOK, "168h0m0s")
		var rows []windowRow
		w.list(&rows, "windows", "window", "list")
		if len(rows) != 2 || rows[0].Consumer != "mails" || rows[0].Keep != "forever" ||
			rows[1].Keep != "168h0m0s" || rows[1].Actor != "ann" || rows[1].Since.IsZero() {
			w.Fatalf("%+v", rows)
		}
		w.require(w.run("window", "list"), ExitOK, "search", "168h0m0s", "its inbox")

		id := core.NewEventID()
		w.publish(core.Event{ID: id, Type: "placed", Topic: "orders"})
		w.drain(nil, core.BlockKey)
		w.requireFinding(levelOK, "retention", "consumer search")
		w.require(w.run("explain", id), ExitOK, "It can be replayed until", "consumer search forgets it")
		w.require(w.run("replay", "plan", "--reason", "INC-7"), ExitOK, "1 done event", "it can be applied until")
		w.require(w.run("replay", "plan", "--reason", "INC-7", "--beyond-windows"), ExitUsage, "needs --dedup-window")

		w.require(command("window", "declare", "orders", "search", "--yes", "--keep", "1us"), ExitOK)
		w.requireFinding(levelWarning, "retention", "consumer search")
		w.require(w.run("explain", id), ExitOK, "It can be replayed no more", "consumer search has forgotten it")
		w.require(w.run("replay", "plan", "--reason", "INC-7", "--dedup-window", "1h"), ExitFailed, "forgotten",
			"consumer search remembers events of orders for 1µs", "--since", "--beyond-windows")
		var p ops.StoredPlan
		w.json(&p, "replay", "plan", "--reason", "INC-7", "--dedup-window", "1h", "--beyond-windows")
		if p.Events != 1 || p.Beyond != "consumer search remembers events of orders for 1µs" {
			w.Fatalf("%+v", p)
		}
		w.require(w.run("audit", "--json"), ExitOK, "beyond: consumer search remembers events of orders for 1µs")

		w.require(command("window", "withdraw", "orders", "other", "--yes"), ExitFailed, "has declared no window")
		w.require(command("window", "withdraw", "orders", "search"), ExitRefused, "--yes")
		var would windowChange
		if w.json(&would, "window", "withdraw", "orders", "search", "--dry-run"); !would.DryRun ||
			would.Before == nil || would.Before.Keep != "1µs" || would.Before.Actor != "ann" {
			w.Errorf("%+v", would)
		}
		w.require(w.run("window", "withdraw", "orders", "search", "--dry-run"), ExitOK, "1µs is declared since 20",
			"would be withdrawn")
		if w.list(&rows, "windows", "window", "list"); len(rows) != 2 {
			w.Errorf("after dry runs %+v are left", rows)
		}
		w.require(command("window", "withdraw", "orders", "search", "--yes"), ExitOK, "is withdrawn")
		w.require(w.run("audit", "--actor", "ann", "--topic", "orders"), ExitOK, "declare-window", "withdraw-window",
			"its inbox (consumer search")
		if w.list(&rows, "windows", "window", "list"); len(rows) != 1 {
			w.Errorf("%+v are left", rows)
		}
	})
}
