package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A person pauses a topic and everything, sees it everywhere, and resumes both.
func TestPause(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("pauses"), ExitOK, "nothing is paused")
		id := core.NewEventID()
		w.publish(core.Event{ID: id, Type: "placed", Topic: "orders"})

		why := []string{"--reason", "broker upgrade", "--actor", "ann"}
		command := func(args ...string) result { return w.run(append(args, why...)...) }
		w.require(command("pause", "orders"), ExitRefused, "--yes")
		w.require(w.run("pause", "orders", "--dry-run"), ExitOK, "pause destination orders: 1 event waits",
			"destination orders would be paused until it is resumed")
		w.require(w.run("pause", "a\tb", "--dry-run"), ExitUsage, "Topic")
		w.require(w.answer("n\n", append([]string{"pause", "odrers"}, why...)...), ExitRefused,
			`has the topic "odrers": is that its name?`, "0 events wait",
			"pause destination odrers (0 events wait) in ")
		var would pauseChange
		if w.json(&would, "pause", "--all", "--for", "1h", "--dry-run"); !would.DryRun || !would.All ||
			would.Waiting.N != 1 || would.Until.IsZero() {
			w.Errorf("%+v", would)
		}
		w.require(w.answer("n\n", append([]string{"pause", "orders"}, why...)...), ExitRefused, "nothing was done")
		w.require(w.run("pause", "orders", "--yes"), ExitUsage, "--reason is missing")
		w.require(command("pause", "--yes"), ExitUsage, "--all")
		w.require(command("pause", "orders", "--all", "--yes"), ExitUsage, "--all")
		w.require(command("pause", "a", "b", "--yes"), ExitUsage)
		w.require(command("pause", "orders", "--until", "tomorrow", "--yes"), ExitUsage, "--until")
		w.require(command("pause", "orders", "--until", "2020-01-01T00:00:00Z", "--yes"), ExitUsage, "future")
		w.require(w.run("pause", "orders", "--until", "2020-01-01T00:00:00Z", "--dry-run"), ExitUsage,
			"--until 2020-01-01T00:00:00Z is not in the future")
		w.require(command("pause", "orders", "--for", "-1m", "--yes"), ExitUsage, "--for")
		w.require(command("pause", "orders", "--for", "1m", "--until", "2030-01-01T00:00:00Z", "--yes"), ExitUsage,
			"both")
		var rows []pauseRow
		if w.list(&rows, "pauses", "pauses"); len(rows) != 0 {
			w.Fatalf("refused commands have paused %+v", rows)
		}

		w.ok("pause", "orders", "--reason", "broker upgrade", "--yes") // by the user of the system
		if w.list(&rows, "pauses", "pauses"); len(rows) != 1 || rows[0].Actor == "" {
			w.Fatalf("without an actor: %+v", rows)
		}
		w.ok("resume", "orders", "--reason", "upgraded", "--yes")
		w.require(command("pause", "orders", "--for", "1h", "--yes"), ExitOK, "destination orders is paused until 20")
		w.drain(nil, core.BlockKey)
		w.require(w.answer("y\n", append([]string{"pause", "--all"}, why...)...), ExitOK, "everything is paused")
		w.list(&rows, "pauses", "pauses")
		if len(rows) != 2 || !rows[0].All || !rows[0].Until.IsZero() || rows[1].Topic != "orders" ||
			rows[1].Actor != "ann" || rows[1].Reason != "broker upgrade" || rows[1].Until.IsZero() ||
			time.Until(rows[1].Until) < 50*time.Minute {
			w.Fatalf("%+v", rows)
		}
		w.require(w.run("pauses"), ExitOK, "(all)", "orders", "broker upgrade", "resumed")
		until := moment(rows[1].Until)
		w.require(w.run("status"), ExitOK,
			"everything is paused by ann since "+moment(rows[0].Since)+" until resumed: ",
			"destination orders is paused by ann since "+moment(rows[1].Since)+" until "+until+": broker upgrade")
		w.require(w.run("doctor"), ExitUnhealthy, "pauses: destination orders is paused by ann", " until "+until+": ")
		w.require(w.run("doctor"), ExitUnhealthy, "pauses: destination orders is paused",
			"outbox resume --all --reason")
		var reasons []ops.Explanation
		if w.list(&reasons, "explanations", "explain", id); len(reasons) != 1 || reasons[0].Reason != ops.ReasonPaused {
			w.Fatalf("%+v", reasons)
		}

		tenant := "it's acme"
		waits := core.NewEventID()
		w.publish(core.Event{ID: waits, Type: "placed", Topic: "other", TenantID: tenant})
		w.require(command("pause", "orders", "--tenant", tenant, "--yes"), ExitUsage, "--tenant")
		w.require(command("pause", "--all", "--tenant", tenant, "--yes"), ExitUsage, "--tenant")
		w.require(command("pause", "--tenant", tenant, "--yes"), ExitOK, "tenant it's acme is paused until `outbox "+
			`resume --tenant 'it'\''s acme' --reason WHY`+"`")
		w.list(&rows, "pauses", "pauses")
		if len(rows) != 3 || rows[2].Tenant != tenant || rows[2].Topic != "" || rows[2].All {
			w.Fatalf("%+v", rows)
		}
		w.require(w.run("pauses"), ExitOK, "tenant it's acme")
		w.require(w.run("status"), ExitOK, "tenant it's acme is paused by ann")
		w.require(w.run("doctor"), ExitUnhealthy, `outbox resume --tenant 'it'\''s acme' --reason`)

		var page ops.Page
		if w.json(&page, "list", "--status", "done"); len(page.Events) != 0 {
			w.Errorf("during the pause %+v are done", page.Events)
		}
		dry := w.run("resume", "--all", "--dry-run")
		w.require(dry, ExitOK, "resume everything: 2 events wait", "everything would go on")
		if strings.Contains(dry.out, "not paused") {
			w.Errorf("everything is paused, and the dry run says %s", dry.out)
		}
		var resume resumed
		if w.json(&resume, "resume", "--all", "--dry-run"); !resume.Paused || resume.Resumed || !resume.DryRun {
			w.Errorf("%+v", resume)
		}
		w.require(w.run("resume", "nothing", "--dry-run"), ExitOK,
			"destination nothing is not paused: nothing would be done (`outbox pauses` lists what is)")
		if w.json(&resume, "resume", "--tenant", "nobody", "--dry-run"); resume.Paused || resume.Resumed {
			w.Errorf("%+v", resume)
		}
		w.require(command("resume", "--all", "--yes"), ExitOK, "everything goes on")
		w.require(command("resume", "--all", "--yes"), ExitOK, "was not paused", "`outbox pauses`")
		w.require(command("resume", "orders", "--yes"), ExitOK, "destination orders goes on")
		if w.list(&reasons, "explanations", "explain", waits); len(reasons) != 1 ||
			reasons[0].Reason != ops.ReasonPaused {
			w.Fatalf("%+v", reasons)
		}
		w.require(command("resume", "--tenant", tenant, "--yes"), ExitOK, "tenant it's acme goes on")
		w.require(command("resume", "--tenant", tenant, "--yes"), ExitOK, "was not paused")
		w.require(w.run("audit", "--topic", core.AuditTenant+tenant), ExitOK, "pause", "resume")
		w.require(w.run("pauses"), ExitOK, "nothing is paused")
		w.require(w.run("audit", "--actor", "ann", "--topic", "orders"), ExitOK, "pause", "resume", "broker upgrade")
		w.drain(nil, core.BlockKey)
		if w.json(&page, "list", "--status", "done"); len(page.Events) != 2 {
			w.Errorf("after the pause %+v are done", page.Events)
		}
	})
}

// A person limits a destination, sees it everywhere, and ends the limit.
func TestRate(t *testing.T) {
	migrated(t, func(w *world) {
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
