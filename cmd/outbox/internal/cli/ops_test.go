package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A person finds a failure, looks at an event, and learns why another one waits.
func TestListShowExplainGroups(t *testing.T) {
	migrated(t, func(w *world) {
		w.require(w.run("list"), ExitOK, "no event")
		w.require(w.run("groups"), ExitOK, "no event has failed")
		w.poison("orders", 3)
		w.publish(core.Event{Type: "mail", Topic: "mails", Key: "ada", Payload: []byte(`"secret"`)})

		var page ops.Page
		if w.json(&page, "list", "--status", "dead"); len(page.Events) != 3 || page.Events[0].Topic != "orders" {
			w.Fatalf("%+v", page)
		}
		dead := page.Events[0].ID.String()
		if w.json(&page, "list", "--status", "new,retry", "--topic", "mails", "--key", "ada"); len(page.Events) != 1 {
			w.Fatalf("%+v", page)
		}
		mail := page.Events[0].ID.String()
		w.require(w.run("list", "--limit", "1"), ExitOK, "there may be more: --after")
		w.require(w.run("list", "--status", "lost"), ExitUsage, "lost")
		w.require(w.run("list", "--key", "ada"), ExitUsage, "outbox: invalid request: a filter with a key")
		w.require(w.run("list", "--limit", "0"), ExitUsage, "it is 1 to 1000")
		w.require(w.run("list", "--limit", "1001"), ExitUsage, "it is 1 to 1000")
		w.require(w.run("list", "--since", "1h", "--until", "2h"), ExitUsage, "ends before it begins")
		w.require(w.run("list", "--since", "yesterday"), ExitUsage, "how long ago, such as 2h")
		w.require(w.run("list", "--until", "-2h"), ExitUsage, "is negative")
		w.require(w.run("list", "--until", "1h"), ExitOK, "no event\n")
		w.require(w.run("list", "--since", "1h", "--until", "2100-01-01T00:00:00Z"), ExitOK, "mails")

		var groups ops.Groups
		if w.json(&groups, "groups"); len(groups.Groups) != 1 || groups.Groups[0].Dead != 3 {
			w.Fatalf("%+v", groups)
		}
		w.require(w.run("groups"), ExitOK, groups.Groups[0].Fingerprint, "permanent")
		if w.json(&page, "list", "--group", groups.Groups[0].Fingerprint); len(page.Events) != 3 {
			w.Errorf("the group has %+v", page)
		}

		w.require(w.run("show", dead), ExitOK, "status    dead", "schema v3: field total")
		w.require(w.run("show", dead), ExitOK, "1, by the poller, ", ": permanent: schema v3: field total")
		var shown []ops.Details
		if w.list(&shown, "events", "show", dead); len(shown) != 1 || len(shown[0].Failures) != 1 ||
			shown[0].Failures[0].Code != "permanent" || shown[0].Failures[0].Attempt != 1 {
			w.Errorf("the failed attempts are %+v", shown)
		}
		if r := w.run("show", mail); r.code != ExitOK || strings.Contains(r.out, "secret") {
			w.Errorf("show prints the payload: %s%s", r.out, r.err)
		}
		w.require(w.run("show", mail, "--payload"), ExitOK, `"secret"`)
		w.require(w.run("show", core.NewEventID()), ExitFailed, "no such event")
		w.require(w.run("show"), ExitUsage)

		w.require(w.run("explain", dead), ExitOK, "fix: ")
		var why []ops.Explanation
		if w.list(&why, "explanations", "explain", mail); len(why) != 1 || why[0].Reason != ops.ReasonUnrelayed {
			w.Errorf("explain: %+v", why)
		}
		w.require(w.run("explain", core.NewEventID()), ExitFailed, "No event has the id")
	})
}

// A person walks from an event to what caused it and what it caused, and sends outputs again that a
// broker lost.
func TestCause(t *testing.T) {
	migrated(t, func(w *world) {
		first, second, elsewhere := core.NewEventID(), core.NewEventID(), core.NewEventID()
		by := func(id string) map[string]string { return map[string]string{core.HeaderCausationID: id} }
		w.publish(core.Event{ID: first, Type: "placed", Topic: "orders"},
			core.Event{ID: second, Type: "billed", Topic: "bills", Headers: by(first)},
			core.Event{Type: "mailed", Topic: "mails", Headers: by(second)},
			core.Event{Type: "lost", Topic: "orders", Headers: by(elsewhere)})
		w.drain(nil, core.BlockKey)

		w.require(w.run("list", "--cause", first), ExitOK, "bills", "The chain begins with event "+first, "caused")
		w.require(w.run("list", "--cause", elsewhere), ExitOK, "lost", "ends at "+elsewhere+", of which it has no row")
		w.require(w.run("list", "--cause", ""), ExitUsage, "it is empty")
		var page eventPage
		w.json(&page, "list", "--cause", first)
		if len(page.Events) != 1 || page.Chain == nil || len(page.Chain.Caused) != 2 ||
			page.Events[0].CausationID != first {
			w.Errorf("caused by %s: %+v", first, page)
		}
		w.require(w.run("explain", second), ExitOK, "caused by  "+first, "caused     ", "mailed")
		w.require(w.run("show", second), ExitOK, "cause     "+first)

		const window = "--dedup-window=1h"
		w.require(w.run("replay", "plan", "--cause", second, window, "--dry-run"), ExitOK, "1 done event", "mails")
		w.require(w.run("replay", "plan", "--cause", core.NewEventID(), window, "--dry-run"), ExitOK, "0 done events")
	})
}

// Every command that explain names can be run as it is printed.
func TestCommandsOfExplain(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile("`outbox ([^`]+)`")
	each(t, func(w *world) {
		w.ok("migrate", "up")
		first, second, later := core.NewEventID(), core.NewEventID(), core.NewEventID()
		w.publish(core.Event{ID: first, Type: "placed", Topic: "orders", Key: "7"})
		w.drain(core.Permanent(errNoTotal), core.BlockKey)
		w.publish(core.Event{ID: second, Type: "paid", Topic: "orders", Key: "7"})
		w.publish(core.Event{ID: later, Type: "mail", Topic: "mails"}, core.Event{Type: "sms", Topic: "sms", Key: "1"})
		w.drain(core.Transient(errNoTotal), core.BlockKey)
		behind := core.NewEventID()
		w.publish(core.Event{ID: behind, Type: "mail", Topic: "sms", Key: "1"})
		due := core.NewEventID()
		w.publish(core.Event{ID: due, Type: "mail", Topic: "faxes"})

		runs := map[string]int{}
		explain := func(id string, reason ops.Reason, commands int) {
			w.Helper()
			var why []ops.Explanation
			w.list(&why, "explanations", "explain", id)
			if len(why) != 1 || why[0].Reason != reason {
				w.Fatalf("%+v, want %s", why, reason)
			}
			found := command.FindAllStringSubmatch(why[0].Fix, -1)
			if len(found) != commands {
				w.Errorf("the fix of %s names %d commands, want %d: %s", reason, len(found), commands, why[0].Fix)
			}
			for _, c := range found {
				args := strings.Fields(c[1])
				switch args[0] {
				case "redrive", "discard":
					args = append(args, "--yes")
					w.drain(core.Permanent(errNoTotal), core.BlockKey) // it is dead again
				case "resume", "rate":
					args = append(args, "--yes")
				}
				for i, arg := range args {
					if arg == "--reason" {
						args[i+1] = "because"
					}
				}
				r := w.run(args...)
				if r.code != ExitOK && (args[0] != "doctor" || r.code != ExitUnhealthy) || r.out == "" {
					w.Errorf("outbox %s: exit code %d\n%s%s", c[1], r.code, r.out, r.err)
				}
				runs[args[0]]++
			}
		}
		explain(due, ops.ReasonUnrelayed, 1)
		explain(later, ops.ReasonNotDue, 1)
		explain(behind, ops.ReasonBehind, 1)
		explain(core.NewEventID(), ops.ReasonUnknown, 1)
		explain(second, ops.ReasonBlocked, 2)
		explain(first, ops.ReasonDiscarded, 0)
		down := core.NewEventID()
		w.publish(core.Event{ID: down, Type: "mail", Topic: "down"})
		w.drain(core.Unavailable(errNoTotal), core.BlockKey)
		later2099 := "'2099-01-01 00:00:00'"
		if w.dialect == core.SQLite {
			later2099 = "4070908800000000"
		}
		w.exec("UPDATE outbox_event SET available_at = " + later2099 + " WHERE topic = 'down'")
		explain(down, ops.ReasonNotDue, 1) // no relay says that the destination is stopped
		explain(later, ops.ReasonDiscarded, 0)
		if runs["redrive"] != 1 || runs["discard"] != 3 {
			w.Errorf("commands %v", runs)
		}

		held := core.NewEventID()
		w.publish(core.Event{ID: held, Type: "mail", Topic: "held"})
		w.ok("pause", "held", "--reason", "INC-42", "--yes")
		explain(held, ops.ReasonPaused, 1)
		w.relays("held") // and again each time: one that says nothing for 25 s is gone
		explain(held, ops.ReasonReady, 1)
		w.ok("rate", "held", "--per-second", "0.5", "--reason", "INC-42", "--yes")
		w.relays("held")
		explain(held, ops.ReasonLimited, 1)
		w.relays("held")
		explain(held, ops.ReasonReady, 1)
		w.drain(core.Permanent(errNoTotal), core.BlockKey)
		explain(held, ops.ReasonDead, 2)
		explain(held, ops.ReasonDiscarded, 0)
		if runs["resume"] != 1 || runs["rate"] != 1 || runs["redrive"] != 2 || runs["discard"] != 4 {
			w.Errorf("commands %v", runs)
		}
	})
}
