package cli

import (
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A person limits a destination, sees it everywhere, and ends the limit.
func TestRate(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
		w.require(w.run("rates"), ExitOK, "no destination has a limit")
		why := []string{"--reason", "partner's limit", "--actor", "ann"}
		command := func(args ...string) result { return w.run(append(args, why...)...) }
		w.require(command("rate", "hooks", "--per-second", "2"), ExitRefused, "--yes")
		w.require(w.answer("n\n", append([]string{"rate", "hooks", "--per-second", "2"}, why...)...), ExitRefused,
			"at most 2 events a second")
		w.require(w.run("rate", "hooks", "--per-second", "2", "--yes"), ExitUsage, "--reason is missing")
		w.require(w.run("rate", "hooks", "--per-second", "2", "--dry-run"), ExitOK, "0 events wait",
			`has the topic "hooks": is that its name?`)
		w.require(w.run("rate", "hooks", "--per-second", "2", "--dry-run"), ExitOK,
			"destination hooks would get at most 2 events a second")
		w.require(w.run("rate", "hooks", "--per-second", "-2", "--dry-run"), ExitUsage, "--per-second -2 is not 0")
		w.require(w.run("rate", "hooks", "--off", "--dry-run"), ExitOK,
			"destination hooks has no limit: nothing would be done")
		var would rateChange
		if w.json(&would, "rate", "hooks", "--in-flight", "2", "--dry-run"); !would.DryRun || would.Changed ||
			would.InFlight != 2 {
			w.Errorf("%+v", would)
		}
		w.require(command("rate", "hooks", "--yes"), ExitUsage, "--off")
		w.require(command("rate", "hooks", "--off", "--in-flight", "2", "--yes"), ExitUsage, "--off")
		w.require(command("rate", "--off", "--yes"), ExitUsage)
		w.require(command("rate", "hooks", "--per-second", "-2", "--yes"), ExitUsage,
			"invalid request: --per-second -2 is not 0", "see outbox rate --help")
		w.require(command("rate", "hooks", "--in-flight", "-2", "--yes"), ExitUsage, "--in-flight -2 is not")
		var rows []rateRow
		if w.list(&rows, "rates", "rates"); len(rows) != 0 {
			w.Fatalf("refused commands have set %+v", rows)
		}

		w.require(command("rate", "hooks", "--per-second", "0.5", "--in-flight", "4", "--yes"), ExitOK,
			"destination hooks gets at most 0.5 events a second and 4 in flight")
		w.list(&rows, "rates", "rates")
		if len(rows) != 1 || rows[0].Topic != "hooks" || rows[0].PerSecond != 0.5 || rows[0].InFlight != 4 ||
			rows[0].Actor != "ann" || rows[0].Reason != "partner's limit" || rows[0].Since.IsZero() {
			w.Fatalf("%+v", rows)
		}
		w.require(w.run("rates"), ExitOK, "hooks", "0.5", "partner's limit")
		w.require(w.run("status"), ExitOK, "destination hooks gets at most 0.5 events a second and 4 in flight, "+
			"set by ann at 20")

		id := core.NewEventID()
		w.publish(core.Event{ID: id, Type: "placed", Topic: "hooks"})
		var reasons []ops.Explanation
		if w.list(&reasons, "explanations", "explain", id); len(reasons) != 1 ||
			reasons[0].Reason != ops.ReasonUnrelayed {
			w.Fatalf("without a relay: %+v", reasons)
		}
		w.drain(nil, core.BlockKey)
		w.require(command("rate", "hooks", "--off", "--yes"), ExitOK, "destination hooks gets no limit")
		w.require(command("rate", "hook", "--off", "--yes"), ExitOK, "destination hook had no limit", "`outbox rates`")
		w.require(w.run("rates"), ExitOK, "no destination has a limit")
		w.require(w.run("rates"), ExitOK, "no destination has a limit")
		w.require(w.run("audit", "--actor", "ann", "--topic", "hooks"), ExitOK, "rate", "partner's limit")
		var page ops.Page
		if w.json(&page, "list", "--status", "done"); len(page.Events) != 1 {
			w.Errorf("%+v are done", page.Events)
		}
	})
}
