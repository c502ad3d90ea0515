package suite

import (
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func groupCases() []repositoryCase {
	return []repositoryCase{
		{"the group of a failure is stored with it", groupStored},
		{"a group that is hard to store stops nothing", groupOdd},
		{"a note is read as it was written", groupNoted},
		{"a note and a mute leave each other alone", groupMuted},
		{"changes of groups are audited", groupAudited},
	}
}

// event reads a row as people see it.
func (f *fixture) event(id core.RowID) ops.Event {
	f.Helper()
	s, err := f.Store.ScanEvents(f.Context(), ops.Scan{ID: id, Limit: 1, Look: 1})
	f.check(err)
	f.must(len(s.Events) == 1, "there is no row %s", id)
	return s.Events[0]
}

// ofGroup counts the rows that a fingerprint selects.
func (f *fixture) ofGroup(fingerprint string) int {
	f.Helper()
	s, err := f.Store.ScanEvents(f.Context(),
		ops.Scan{Filter: ops.Filter{Fingerprint: fingerprint}, Limit: 100, Look: 100})
	f.check(err)
	return len(s.Events)
}

func groupStored(f *fixture) {
	row, other := newRow("topic", ""), newRow("other", "")
	f.commit(row)
	for i, kind := range []core.FailureKind{core.FailRetry, core.FailUnavailable, core.FailRetry, core.FailDead} {
		group := strings.Repeat(string(rune('a'+i)), 16)
		if i == 2 {
			group = "" // nothing stays of the failure before
		}
		f.must(f.fail(nodeA, core.Failure{
			ClaimRef: ref(f.one(nodeA)), Kind: kind, Code: "c", Message: "m", Group: group,
		})[0], "not changed")
		e := f.event(row.ID)
		f.must(e.ErrorGroup == group && e.ErrorCode == "c" && e.Error == "m", "failure %d is read as %+v", i, e)
		f.must(e.Fingerprint() == group, "fingerprint %q", e.Fingerprint())
	}
	f.commit(other)
	f.must(f.fail(nodeA, core.Failure{
		ClaimRef: ref(f.one(nodeA)), Kind: core.FailDead, Code: "c", Group: "another",
	})[0], "not changed")
	f.must(f.ofGroup(strings.Repeat("d", 16)) == 1 && f.ofGroup("another") == 1 && f.ofGroup("none") == 0,
		"a fingerprint selects other rows")
	f.must(f.done(false, row.ID) == 1, "not done")
	e := f.event(row.ID)
	f.must(e.Fingerprint() == "" && f.ofGroup(strings.Repeat("d", 16)) == 0,
		"a row that is done has a fingerprint: %+v", e)
}

func groupOdd(f *fixture) {
	for _, group := range []string{strings.Repeat("x", 5000), "a\x00\xff\u00e9", "\U0001F600"} {
		row := newRow("topic", "")
		f.commit(row)
		f.must(f.fail(nodeA, core.Failure{
			ClaimRef: ref(f.one(nodeA)), Kind: core.FailDead, Code: "c", Group: group,
		})[0], "not changed")
		f.must(len(f.event(row.ID).ErrorGroup) <= 16, "stored %q", f.event(row.ID).ErrorGroup)
	}
}

// changeGroup makes a change, and returns all notes by their fingerprints.
func (f *fixture) changeGroup(c ops.GroupChange) map[string]ops.GroupNote {
	f.Helper()
	if c.Actor == "" {
		c.Actor, c.Reason = "ann", "known"
	}
	store := f.Store
	f.check(store.ChangeGroup(f.Context(), c))
	all, err := store.ReadGroupNotes(f.Context())
	f.check(err)
	notes := map[string]ops.GroupNote{}
	for _, n := range all {
		notes[n.Fingerprint] = n
	}
	f.must(len(notes) == len(all), "a group has two notes: %+v", all)
	return notes
}

func groupNoted(f *fixture) {
	store := f.Store
	all, err := store.ReadGroupNotes(f.Context())
	f.must(err == nil && len(all) == 0, "notes of nobody: %+v, %v", all, err)
	one := ops.GroupRequest{Fingerprint: "0123456789abcdef", Actor: "ann \u00e9", Reason: "r"}
	two := ops.GroupRequest{Fingerprint: "fedcba9876543210", Actor: "bob", Reason: "r"}
	text := "INC-42: 'it' \"is\" gr\u00f6\u00dfer; \U0001F600 " + strings.Repeat("x", 1900)
	f.changeGroup(ops.GroupChange{Action: ops.AuditNoteGroup, Note: text, GroupRequest: one})
	notes := f.changeGroup(ops.GroupChange{Action: ops.AuditNoteGroup, Note: "other", GroupRequest: two})
	n := notes[one.Fingerprint]
	f.must(len(notes) == 2 && n.Note == text && n.Actor == one.Actor && n.MutedUntil.IsZero(), "read %+v", n)
	age := time.Since(n.UpdatedAt)
	f.must(age > -time.Minute && age < time.Hour, "updated at %s", n.UpdatedAt)
	one.Actor = "cem"
	notes = f.changeGroup(ops.GroupChange{Action: ops.AuditNoteGroup, Note: "shorter", GroupRequest: one})
	n = notes[one.Fingerprint]
	f.must(n.Note == "shorter" && n.Actor == "cem" && notes[two.Fingerprint].Note == "other", "read %+v", notes)
	notes = f.changeGroup(ops.GroupChange{Action: ops.AuditNoteGroup, GroupRequest: one})
	f.must(len(notes) == 1, "a group without a note is remembered: %+v", notes)
	for _, c := range []ops.GroupChange{
		{Action: ops.AuditNoteGroup, Note: "x", GroupRequest: ops.GroupRequest{Fingerprint: "f", Actor: "a"}},
		{Action: "other", Note: "x", GroupRequest: one},
	} {
		f.must(store.ChangeGroup(f.Context(), c) != nil, "accepted %+v", c)
	}
}

func groupMuted(f *fixture) {
	group := ops.GroupRequest{Fingerprint: "0123456789abcdef"}
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	n := f.changeGroup(ops.GroupChange{
		Action: ops.AuditMuteGroup, MutedUntil: until, GroupRequest: group,
	})[group.Fingerprint]
	f.must(n.MutedUntil.Equal(until) && n.Note == "" && n.Actor == "ann", "muted %+v", n)
	n = f.changeGroup(ops.GroupChange{Action: ops.AuditNoteGroup, Note: "note", GroupRequest: group})[group.Fingerprint]
	f.must(n.MutedUntil.Equal(until) && n.Note == "note", "noted %+v", n)
	later := until.Add(time.Hour)
	n = f.changeGroup(ops.GroupChange{
		Action: ops.AuditMuteGroup, MutedUntil: later, GroupRequest: group,
	})[group.Fingerprint]
	f.must(n.MutedUntil.Equal(later) && n.Note == "note", "muted %+v", n)
	n = f.changeGroup(ops.GroupChange{Action: ops.AuditUnmuteGroup, GroupRequest: group})[group.Fingerprint]
	f.must(n.MutedUntil.IsZero() && n.Note == "note", "unmuted %+v", n)
}

func groupAudited(f *fixture) {
	group := ops.GroupRequest{Fingerprint: "0123456789abcdef", Actor: "ann", Reason: "known"}
	for _, action := range []string{ops.AuditNoteGroup, ops.AuditMuteGroup, ops.AuditUnmuteGroup} {
		f.changeGroup(ops.GroupChange{
			Action: action, Note: "note", MutedUntil: time.Now().Add(time.Hour), Topic: "topic", GroupRequest: group,
		})
		records, err := f.Repository.ListAudit(f.Context(), core.AuditQuery{Limit: 1})
		f.check(err)
		f.must(len(records) == 1 && records[0].Action == action && records[0].Actor == "ann" &&
			records[0].Topic == "topic" && strings.HasPrefix(records[0].Reason, "known (group 0123456789abcdef"),
			"audited as %+v", records)
	}
}
