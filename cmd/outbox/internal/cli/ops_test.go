package cli

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

// A person finds a failure, looks at an event, and learns why another one waits.
func TestListShowExplainGroups(t *testing.T) {
	t.Parallel()
	each(t, func(w *world) {
		w.ok("migrate", "up")
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
		w.require(w.run("list", "--key", "ada"), ExitUsage, "Topic")

		var groups ops.Groups
		if w.json(&groups, "groups"); len(groups.Groups) != 1 || groups.Groups[0].Dead != 3 {
			w.Fatalf("%+v", groups)
		}
		w.require(w.run("groups"), ExitOK, groups.Groups[0].Fingerprint, "permanent")
		if w.json(&page, "list", "--group", groups.Groups[0].Fingerprint); len(page.Events) != 3 {
			w.Errorf("the group has %+v", page)
		}

		w.require(w.run("show", dead), ExitOK, "status    dead", "schema v3: field total")
		if r := w.run("show", mail); r.code != ExitOK || strings.Contains(r.out, "secret") {
			w.Errorf("show prints the payload: %s%s", r.out, r.err)
		}
		w.require(w.run("show", mail, "--payload"), ExitOK, `"secret"`)
		w.require(w.run("show", core.NewEventID()), ExitFailed, "no such event")
		w.require(w.run("show"), ExitUsage)

		w.require(w.run("explain", dead), ExitOK, "fix: ")
		var why []ops.Explanation
		if w.json(&why, "explain", mail); len(why) != 1 || why[0].Reason != ops.ReasonReady {
			w.Errorf("explain: %+v", why)
		}
		w.require(w.run("explain", core.NewEventID()), ExitOK, "No event has the id")
	})
}
