package suite

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func editCases() []repositoryCase {
	return []repositoryCase{
		{"an edited event has the place of the dead one, and those behind wait for it", editInPlace},
		{"an edited event without a key", editUnordered},
		{"an edited event is appended where the key went on", editAppends},
		{"an edited replay stays one", editReplay},
		{"an edit keeps what it does not name", editParts},
		{"an edit removes a header that Publish refuses", editForeignHeader},
		{"an edit of what is not dead, or has changed, changes nothing", editRefused},
		{"a new event of the key names the edited row as the one before it", editIsLast},
		{"the acknowledgement of the dead row comes late", editLateAck},
		{"several people edit, redrive and discard the same events, each once", editByMany},
	}
}

// editOf is an edit of a row with a new payload.
func (f *fixture) editOf(id core.RowID) ops.Edit {
	f.Helper()
	e := f.stored(id)
	newID, err := core.FreshRowID(e.EventID)
	f.check(err)
	return ops.Edit{NewID: newID, EditRequest: ops.EditRequest{
		ID: id, Payload: []byte(`{"n":2}`), Seen: e.Sight(), Actor: "ada", Reason: "total was a text",
	}}
}

// edit makes a change that must succeed.
func (f *fixture) edit(c ops.Edit) (keySeq int64) {
	f.Helper()
	keySeq, diff, err := f.Store.EditEvent(f.Context(), c)
	f.check(err)
	f.must(diff != "", "no difference")
	return keySeq
}

// wantEdited checks a row that took the place of a dead one.
func (f *fixture) wantEdited(got core.Claimed, c ops.Edit, of core.Event, headers map[string]string) {
	f.Helper()
	want := of
	want.Payload, want.Headers = c.Payload, map[string]string{core.HeaderEditOf: c.ID.String()}
	maps.Copy(want.Headers, headers)
	f.must(diffEvent(got.Event, want) == "", "edited with %s", diffEvent(got.Event, want))
	f.must(got.ID == c.NewID && got.Attempts == 0 && got.LostClaims == 0, "edited as %+v", got)
}

func editInPlace(f *fixture) {
	before, dead := newRow("topic", "k"), newRow("topic", "k")
	dead.Event.Headers = map[string]string{"h": "v"}
	f.commit(before)
	f.done(false, before.ID)
	f.addDead(dead)
	behind := newRows(2, "topic", "k")
	f.commit(behind...)
	f.none("behind a dead row")
	was := f.stored(dead.ID)
	c := f.editOf(dead.ID)
	f.must(f.edit(c) == was.KeySeq, "the new row has another number")
	f.audited(1)
	audit, err := f.Store.ReadAudit(f.Context(), dead.ID)
	f.check(err)
	f.must(len(audit) == 1 && audit[0].Action == ops.AuditEdit && audit[0].NewID == c.NewID &&
		audit[0].Actor == "ada" &&
		strings.Contains(audit[0].Detail, "-   \"n\": 1\n+   \"n\": 2\n"), "audit %+v", audit)
	old := f.stored(dead.ID)
	f.must(old.Status == ops.StatusDiscarded && len(f.dead()) == 0, "the dead row is %s", old.Status)
	f.must(f.backlog(10).BlockedKeys == 0 && f.backlog(10).Pending == 3, "backlog %+v", f.backlog(10))

	req := request(nodeA)
	req.Run = 1
	got := f.heads(req)
	f.must(
		len(got) == 1 && got[0].KeySeq == was.KeySeq && got[0].KeyID == dead.KeyID,
		"claimed %s, want the edited row",
		idsOf(got),
	)
	f.wantEdited(got[0], c, dead.Event, map[string]string{"h": "v"})
	f.none("behind the edited row, which is held")
	f.done(false, c.NewID)
	f.wantIDs(f.heads(request(nodeB)), behind...)
	f.must(f.redrive(adminOf(dead.ID)) == 0, "the old row was redriven")
}

func editUnordered(f *fixture) {
	dead := f.addDead(newRow("topic", ""))
	c := f.editOf(dead.ID)
	c.SkipDead = true
	f.must(f.edit(c) == 0, "a number without a key")
	got := f.claim(request(nodeA))
	f.must(len(got) == 1, "claimed %s", idsOf(got))
	f.wantEdited(got[0], c, dead.Event, nil)
	f.must(f.done(false, dead.ID) == 0 && f.done(false, c.NewID) == 1, "not the new row is done")
}

// editAppends edits a dead event at its place where dead events are skipped, and a dead event that
// has left its key already.
func editAppends(f *fixture) {
	for _, left := range []bool{false, true} {
		key := strconv.FormatBool(left)
		dead, second := newRow("topic", key), newRow("topic", key)
		if left {
			f.commit(hot(dead)...)
			f.fail(nodeA, core.Failure{ClaimRef: hotRef(dead), Kind: core.FailDead, Code: "c", SkipDead: true})
		} else {
			f.addDead(dead)
		}
		seq := f.stored(dead.ID).KeySeq
		last := f.commit(second)[0]
		c := f.editOf(dead.ID)
		c.SkipDead = !left
		f.must(f.edit(c) == last.KeySeq+1, "not appended")
		claim := request(nodeA)
		claim.SkipDead = true
		got := f.heads(claim)
		f.must(len(got) == 2 && got[0].ID == second.ID && got[1].KeySeq == last.KeySeq+1 && got[1].KeyID == dead.KeyID,
			"claimed %s, want the second event and then the edited one", idsOf(got))
		f.wantEdited(got[1], c, dead.Event, map[string]string{core.HeaderFirstKeySeq: strconv.FormatInt(seq, 10)})
		f.done(false, second.ID, c.NewID)
	}
}

func editReplay(f *fixture) {
	row := newRow("topic", "k")
	f.commit(row)
	f.done(false, row.ID)
	p := f.replay("p", row.ID)
	f.kill(nodeA, f.one(nodeA))
	c := f.editOf(p.ReplayID(row.ID))
	f.edit(c)
	got := f.one(nodeA)
	f.must(got.ID == c.NewID && got.ReplayOf == row.ID && got.KeyID == core.ReplayKeyID(row.KeyID), "claimed %+v", got)
}

func editParts(f *fixture) {
	dead := newRow("topic", "")
	dead.Event.Headers = map[string]string{"stays": "1", "goes": "2", "changes": "3"}
	f.addDead(dead)
	c := f.editOf(dead.ID)
	c.Payload, c.ContentType = nil, "application/vnd.order+json"
	c.Headers, c.WithoutHeaders = map[string]string{"changes": "4", "new": "5"}, []string{"goes", "absent"}
	_, diff, err := f.Store.EditEvent(f.Context(), c)
	f.check(err)
	const want = "- content type: application/json\n+ content type: application/vnd.order+json\n" +
		"- header changes: 3\n+ header changes: 4\n- header goes: 2\n+ header new: 5\n"
	f.must(diff == want, "difference %q, want %q", diff, want)
	got := f.one(nodeA)
	c.Payload = dead.Event.Payload
	dead.Event.ContentType = c.ContentType
	f.wantEdited(got, c, dead.Event, map[string]string{"stays": "1", "changes": "4", "new": "5"})

	// the edited event can be edited again, and be emptied
	f.kill(nodeA, got)
	c = f.editOf(c.NewID)
	c.Payload, c.ContentType = []byte{}, "text/plain"
	f.edit(c)
	dead.Event.ContentType = "text/plain"
	f.wantEdited(f.one(nodeA), c, dead.Event, map[string]string{"stays": "1", "changes": "4", "new": "5"})
}

func editRefused(f *fixture) {
	open, done, discarded, again := newRow("topic", ""), newRow("topic", ""), newRow("topic", ""), newRow("topic", "k")
	f.commit(open, done)
	f.done(false, done.ID)
	f.addDead(discarded)
	f.addDead(again)
	seen := f.editOf(again.ID)
	at := f.event(again.ID).ReadAt
	f.eventually("the clock goes on", func() bool { return f.event(again.ID).ReadAt.After(at) })
	f.discard(adminOf(discarded.ID))
	f.redrive(adminOf(again.ID))
	for _, c := range f.heads(request(nodeA)) {
		f.kill(nodeA, c)
	}
	audits := f.Audits(f)
	refused := func(c ops.Edit, want error) {
		f.Helper()
		_, _, err := f.Store.EditEvent(f.Context(), c)
		f.must(errors.Is(err, want), "%+v: %v, want %v", c, err, want)
		f.audited(audits)
		_, found, err := f.Store.ReadContent(f.Context(), c.NewID)
		f.must(!found && err == nil, "%+v: there is a new row, %v", c, err)
	}
	for _, row := range []core.NewRow{open, done, discarded} {
		refused(f.editOf(row.ID), ops.ErrChanged)
	}
	refused(seen, ops.ErrChanged)
	gone := seen
	gone.ID = newRow("topic", "").ID
	refused(gone, ops.ErrNotFound)
	c := f.editOf(again.ID)
	for name, change := range map[string]func(*ops.Edit){
		"no actor":  func(c *ops.Edit) { c.Actor = "" },
		"no reason": func(c *ops.Edit) { c.Reason = "" },
		"no change": func(c *ops.Edit) { c.Payload = []byte(`{"n":1}`) },
		"no JSON":   func(c *ops.Edit) { c.Payload = []byte(`{"n":`) },
	} {
		bad := c
		change(&bad)
		f.Log(name)
		refused(bad, core.ErrInvalidRequest)
	}
	f.edit(c)
	c.NewID = newRow("topic", "").ID
	audits++
	refused(c, ops.ErrChanged)
}

// editIsLast: a process with an acknowledgement of the dead row must not publish the next event for
// it.
func editIsLast(f *fixture) {
	dead := f.addDead(newRow("topic", "k"))
	c := f.editOf(dead.ID)
	seq := f.edit(c)
	next := newRow("topic", "k")
	f.chain([]core.NewRow{next}, f.commit(next), &core.Inserted{KeySeq: seq}, c.NewID)
	got := f.heads(request(nodeA))
	f.must(len(got) == 2 && got[0].ID == c.NewID && got[1].ID == next.ID, "claimed %s", idsOf(got))
}

func editLateAck(f *fixture) {
	dead, next := newRow("topic", "k"), newRow("topic", "k")
	f.addDead(dead)
	f.commit(next)
	c := f.editOf(dead.ID)
	f.edit(c)
	f.must(f.done(false, dead.ID) == 0, "a late acknowledgement changed a discarded row")
	got := f.heads(request(nodeA))
	f.must(len(got) == 2 && got[0].ID == c.NewID, "claimed %s, want the edited row first", idsOf(got))
}

func editByMany(f *fixture) {
	const many = 60
	ids := f.deadRows(many)
	edits := make([]ops.Edit, many)
	for i, id := range ids {
		edits[i] = f.editOf(id)
	}
	audits := f.Audits(f.T)
	var edited, redriven, discarded atomic.Int64
	f.parallel(6, func(ctx context.Context, worker int) error {
		for i := range ids {
			i = (i + worker*many/6) % many
			var n int
			var err error
			req := adminOf(ids[i])
			req.Seen = map[core.RowID]core.Sight{ids[i]: edits[i].Seen}
			sum := &edited
			switch worker % 3 {
			case 0:
				c := edits[i]
				if c.NewID, err = core.FreshRowID(f.event(ids[i]).EventID); err != nil {
					return err
				}
				if _, _, err = f.Store.EditEvent(ctx, c); err == nil {
					n = 1
				} else if errors.Is(err, ops.ErrChanged) {
					err = nil
				}
			case 1:
				sum = &redriven
				n, err = f.Repository.Redrive(ctx, req)
			default:
				sum = &discarded
				n, err = f.Repository.Discard(ctx, req)
			}
			if err != nil {
				return err
			}
			sum.Add(int64(n))
		}
		return nil
	})
	f.must(
		edited.Load()+redriven.Load()+discarded.Load() == many,
		"%d edited, %d redriven, %d discarded",
		edited.Load(),
		redriven.Load(),
		discarded.Load(),
	)
	f.must(f.Audits(f.T)-audits == many, "%d audit rows", f.Audits(f.T)-audits)
	got := f.claimAny(request(nodeA))
	events := map[string]bool{}
	for _, c := range got {
		events[c.Event.ID] = true
	}
	f.must(len(got) == int(edited.Load()+redriven.Load()) && len(events) == len(got), "%d rows of %d events wait, "+
		"want %d", len(got), len(events), edited.Load()+redriven.Load())
}

func editAt(row int) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error {
		newID, err := core.FreshRowID(m.rows[row].Event.ID)
		if err != nil {
			return err
		}
		_, _, err = m.f.Store.EditEvent(ctx, ops.Edit{NewID: newID, EditRequest: ops.EditRequest{
			ID: m.rows[row].ID, Payload: []byte("2"), Actor: "ada", Reason: "because",
		}})
		if err == nil {
			m.rows[row].ID = newID
		}
		return err
	}
}

// editForeignHeader repairs an event of another producer.
func editForeignHeader(f *fixture) {
	n := newRow("topic", "")
	n.Event.Headers = map[string]string{"not a token": "1", "kept": "2"}
	dead := f.addDead(n)
	req := ops.EditRequest{
		ID:             dead.ID,
		WithoutHeaders: []string{"not a token"},
		Actor:          "ada",
		Reason:         "no broker takes it",
	}
	done, err := f.api().Edit(f.Context(), req)
	f.check(err)
	c, _, err := f.Store.ReadContent(f.Context(), done.NewID)
	_, there := c.Headers["not a token"]
	f.must(err == nil && !there && c.Headers["kept"] == "2", "headers %v, %v", c.Headers, err)
	req.ID, req.WithoutHeaders = f.addDead(newRow("topic", "")).ID, []string{core.HeaderEditOf}
	_, err = f.api().Edit(f.Context(), req)
	f.must(errors.Is(err, core.ErrInvalidRequest), "a header of ours: %v", err)
}
