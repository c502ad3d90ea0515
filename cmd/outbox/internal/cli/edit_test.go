package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

var errSchema = errors.New("schema v3: field total")

func TestEdit(t *testing.T) {
	migrated(t, func(w *world) {
		w.publish(core.Event{
			Type: "order.placed", Topic: "orders", Key: "42", ContentType: "application/json",
			Headers: map[string]string{"region": "eu"}, Payload: []byte(`{"total":"9007199254740993","id":42}`),
		}, core.Event{Type: "order.paid", Topic: "orders", Key: "42", Payload: []byte("{}")})
		w.drain(core.Permanent(errSchema), core.BlockKey)
		var rows []deadRow
		w.list(&rows, "events", "dead")
		if len(rows) != 1 {
			w.Fatalf("%+v", rows)
		}
		id := rows[0].ID
		file := func(name, text string) string {
			path := filepath.Join(w.TempDir(), name)
			must(w, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
		fixed := file("fixed.json", `{"total":9007199254740993,"id":42}`)

		// Nothing happens without a reason, a change, a text that fits and a yes.
		w.require(w.run("edit", id, "--payload", fixed), ExitUsage, "--reason")
		w.require(w.run("edit", "x", "--payload", fixed, "--reason", "x"), ExitUsage, "x: ")
		w.require(w.run("edit", id, "--reason", "x"), ExitUsage, "nothing is to be changed: set --payload")
		w.require(w.run("edit", id, "--header", "a", "--reason", "x"), ExitUsage, "NAME=VALUE")
		w.require(w.run("edit", id, "--header", "event_id=x", "--reason", "x"), ExitUsage, `"event_id" is reserved`)
		w.require(w.run("edit", id, "--payload", "absent.json", "--reason", "x"), ExitUsage, "absent.json")
		w.require(w.run("edit", id, "--payload", "-", "--reason", "x"), ExitUsage, "--yes")
		w.require(w.run("edit", id, "--payload", file("cut.json", `{"total":`), "--reason", "x", "--yes"), ExitUsage,
			"is no JSON")
		w.require(w.run("edit", id, "--payload", file("long.json", strings.Repeat(" ", 2<<20)+"1"), "--reason", "x"),
			ExitUsage, "payload has 2097153 bytes")
		w.require(w.run("edit", id, "--payload", fixed, "--reason", "x"), ExitRefused, "edit and redrive 1 event in ")
		w.require(w.answer("n\n", "edit", id, "--payload", fixed, "--reason", "x"), ExitRefused, "[y/N]")
		w.require(w.run("edit", rows[0].EventID, "--payload", fixed, "--reason", "x", "--yes"), ExitFailed,
			"whose row is "+id)
		w.golden("edit-dry-run.txt", w.ok("edit", id, "--payload", fixed, "--header", "region=us\u202e", "--dry-run"))
		w.require(w.run("status"), ExitOK, "dead 1")

		// Somebody redrives the event while it is looked at.
		w.require(
			w.answerAfter(func() { w.ok("redrive", id, "--reason", "x", "--yes") }, "edit", id, "--payload", fixed,
				"--reason", "x"),
			ExitFailed,
			"the event has changed",
			"retry",
			"outbox explain "+id,
		)
		w.drain(core.Permanent(errSchema), core.BlockKey)

		var e edited
		if code := w.json(
			&e,
			"edit",
			id,
			"--payload",
			fixed,
			"--reason",
			"INC-42",
			"--actor",
			"ada",
			"--yes",
		); code != ExitOK ||
			e.NewID == e.ID || e.NewID.IsZero() || e.KeySeq == 0 || e.Appended ||
			e.DryRun ||
			!strings.Contains(e.Diff, `-   "total": "9007199254740993",`+"\n"+`+   "total": 9007199254740993,`) {
			w.Fatalf("exit code %d, %+v", code, e)
		}
		w.require(w.run("edit", id, "--payload", fixed, "--reason", "x", "--yes"), ExitFailed, "is discarded")
		if out := w.ok("show", id) + w.ok("show", id, "--json"); strings.Contains(out, "9007199254740993") {
			w.Errorf("show without --payload has the difference:\n%s", out)
		}
		w.require(w.run("show", id, "--payload"), ExitOK, "edit by ada: INC-42", `+   "total": 9007199254740993,`)
		w.require(w.run("show", e.NewID.String(), "--payload"), ExitOK, "outbox_edit_of: "+id,
			`{"total":9007199254740993,"id":42}`)
		w.drain(nil, core.BlockKey)
		w.require(w.run("status"), ExitOK, "no event waits, and none is dead")

		// Where dead events are skipped, the event goes to the end of its key.
		w.publish(core.Event{Type: "x", Topic: "mails", Key: "1", Payload: []byte("a")},
			core.Event{Type: "x", Topic: "mails", Key: "1", Payload: []byte("b")})
		w.drain(core.Permanent(errSchema), core.SkipDead)
		w.list(&rows, "events", "dead", "--topic", "mails")
		r := w.execute(false, strings.NewReader("c"), []string{
			"edit", rows[0].ID, "--payload", "-", "--skip-dead", "--reason", "x", "--yes",
		})
		w.require(r, ExitOK, "waits at the end of its key", "- a\n+ c\n")
		var page struct{ Events []ops.Event }
		if w.json(&page, "list", "--topic", "mails", "--status", "new"); len(page.Events) != 1 {
			w.Errorf("%+v", page)
		}
	})
}
