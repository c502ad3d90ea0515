package cli

import (
	"strings"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
)

// A person writes a note on a group of failures, mutes it and shows it again.
func TestGroupNotes(t *testing.T) {
	migrated(t, func(w *world) {
		w.publish(
			core.Event{Type: "paid", Topic: "orders"}, core.Event{Type: "paid", Topic: "orders"},
			core.Event{Type: "sent", Topic: "mails"},
		)
		w.drain(core.Permanent(errNoTotal), core.BlockKey)
		listed := func(args ...string) (list groupList) {
			w.Helper()
			w.json(&list, append([]string{"groups"}, args...)...)
			return list
		}
		list := listed()
		if len(list.Groups) != 2 || list.Groups[0].Topic != "orders" {
			w.Fatalf("%+v", list)
		}
		group := list.Groups[0].Fingerprint
		by := func(args ...string) result { return w.run(append(args, "--actor", "ann")...) }

		w.require(by("groups", "note", group), ExitUsage)
		w.require(by("groups", "note", "0123456789abcdef", "x"), ExitUsage, "no such group", "outbox groups")
		w.require(by("groups", "mute", group, "--for", "1h"), ExitUsage, "--reason is missing")
		w.require(by("groups", "mute", group, "--reason", "known"), ExitUsage, "--for or --until")
		w.require(by("groups", "mute", group, "--reason", "known", "--for", "1h", "--until", "2030-01-01T00:00:00Z"),
			ExitUsage, "both")
		w.require(by("groups", "mute", group, "--reason", "known", "--until", "2020-01-01T00:00:00Z"), ExitUsage,
			"future")
		w.require(w.run("groups", "note", group, "x", "--dry-run"), ExitOK, "would be stored: it has 2 events")
		w.require(w.run("groups", "mute", group, "--for", "1h", "--dry-run"), ExitOK, "would be muted until 20")
		w.require(w.run("groups", "unmute", group, "--dry-run"), ExitOK, "would be shown again")
		w.require(w.run("groups", "mute", group, "--until", "2020-01-01T00:00:00Z", "--dry-run"), ExitUsage, "future")
		w.require(w.run("groups", "note", "0123456789abcdef", "x", "--dry-run"), ExitUsage, "no such group")
		var would groupChanged
		if w.json(&would, "groups", "unmute", group, "--dry-run"); !would.DryRun || would.Events != 2 {
			w.Errorf("%+v", would)
		}
		if list = listed(); list.Muted != 0 || list.Groups[0].Stored.Actor != "" {
			w.Fatalf("refused commands or dry runs have changed %+v", list)
		}

		w.require(by("groups", "note", group, "billing drops v1"), ExitOK, "the note on group "+group+" is stored")
		w.require(w.run("groups"), ExitOK, "billing drops v1 (ann)")
		w.require(by("groups", "mute", group, "--reason", "release 7", "--for", "48h"), ExitOK,
			"group "+group+" is muted until 20")
		w.require(w.run("groups"), ExitOK, "mails", "1 muted (--muted shows them)")
		if out := w.ok("groups"); strings.Contains(out, group) {
			w.Errorf("the muted group is listed: %s", out)
		}
		if list = listed(); list.Muted != 1 || len(list.Groups) != 1 {
			w.Errorf("%+v", list)
		}
		w.require(w.run("groups", "--muted"), ExitOK, "billing drops v1, muted until 20", group)
		if list = listed("--muted"); list.Muted != 0 || len(list.Groups) != 2 ||
			!list.Groups[0].Muted || list.Groups[0].Stored.Note != "billing drops v1" {
			w.Errorf("%+v", list)
		}
		w.require(w.run("status"), ExitOK, "dead 3") // muted events are counted
		w.require(by("groups", "unmute", group, "--reason", "back again"), ExitOK, "is shown again")
		w.require(w.run("groups"), ExitOK, group, "billing drops v1 (ann)")
		w.require(by("groups", "note", group, ""), ExitOK)
		if list = listed(); list.Groups[0].Stored.Actor != "" {
			w.Errorf("nothing is left to remember, but there is %+v", list)
		}
		w.require(w.run("audit", "--actor", "ann", "--topic", "orders"), ExitOK, "note-group", "mute-group",
			"unmute-group", "release 7 (group "+group)
	})
}
