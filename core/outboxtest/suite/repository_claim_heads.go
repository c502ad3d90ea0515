package suite

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func claimHeadsCases() []repositoryCase {
	return []repositoryCase{
		{"a head with the run behind it", headsRun},
		{"nothing behind a leased head", headsLeased},
		{"a run stops at a leased row", headsRunStopsAtLeased},
		{"a run stops at a row that is not due", headsRunStopsAtDue},
		{"nothing behind a head that is not due", headsNotDue},
		{"a dead head blocks or is passed over", headsDead},
		{"a dead row in the middle ends a run or is passed over", headsDeadMiddle},
		{"a dead row that was passed over has left its key", headsDeadLeave},
		{"each dead row leaves its key in one sweep", headsDeadInOneSweep},
		{"a finished row does not block", headsDone},
		{"key after key", headsCursor},
		{"up to the limit", headsLimit},
		{"up to the bytes, but at least one", headsBytes},
		{"only certain topics", headsTopics},
		{"many stopped keys", headsStopped},
		{"a lease that ran out", headsExpired},
		{"a lease too long to be one is none", headsMaxLease},
		{"only one key", laneAlone},
		{"a key that is not served", laneNotServed},
	}
}

func headsRun(f *fixture) {
	rows := newRows(5, "topic", "k")
	places := f.commit(rows...)
	req := request(nodeA)
	req.Run = 3
	got := f.heads(req)
	f.wantIDs(got, rows[:3]...)
	for i, c := range got {
		f.must(c.KeySeq == places[i].KeySeq && c.KeyID == rows[i].KeyID, "claimed %+v at %+v", c, places[i])
	}
	f.none("behind a leased run")
	f.done(false, newIDs(rows[:3])...)
	req.Run = 1
	f.wantIDs(f.heads(req), rows[3])
}

func headsLeased(f *fixture) {
	rows := newRows(3, "topic", "k")
	rows[0].Hot = true
	f.commit(rows...)
	f.none("behind a hot row")
	f.must(len(f.lane(request(nodeB), rows[0].KeyID)) == 0, "claimed behind a hot row")
	f.release(nodeA, hotRef(rows[0]))
	f.wantIDs(f.heads(request(nodeB)), rows...)
}

func headsRunStopsAtLeased(f *fixture) {
	rows := newRows(3, "topic", "k")
	rows[1].Hot = true
	f.commit(rows...)
	f.wantIDs(f.heads(request(nodeB)), rows[0])
	f.done(false, rows[0].ID)
	f.none("the head is leased")
}

func headsRunStopsAtDue(f *fixture) {
	rows := newRows(3, "topic", "k")
	f.commit(rows...)
	got := f.heads(request(nodeA))
	f.fail(nodeA, core.Failure{ClaimRef: ref(got[1]), Kind: core.FailRetry, Delay: time.Hour, Code: "c"})
	f.release(nodeA, ref(got[0]), ref(got[2]))
	f.wantIDs(f.heads(request(nodeB)), rows[0])
}

func headsNotDue(f *fixture) {
	rows := newRows(3, "topic", "k")
	f.commit(rows...)
	got := f.heads(request(nodeA))
	f.fail(nodeA, core.Failure{ClaimRef: ref(got[0]), Kind: core.FailUnavailable, Delay: time.Hour, Code: "c"})
	f.release(nodeA, refsOf(got[1:])...)
	f.none("the head is not due")
	f.must(len(f.lane(request(nodeB), rows[0].KeyID)) == 0, "claimed behind a head that is not due")
	skip := request(nodeB)
	skip.SkipDead = true
	f.must(len(f.heads(skip)) == 0, "policy skip passes over dead rows only")
}

func headsDead(f *fixture) {
	rows := newRows(3, "topic", "k")
	f.addDead(rows[0])
	f.commit(rows[1:]...)
	f.none("behind a dead row")
	f.must(len(f.lane(request(nodeB), rows[0].KeyID)) == 0, "claimed behind a dead row")
	skip := request(nodeB)
	skip.SkipDead = true
	got := f.heads(skip)
	f.wantIDs(got, rows[1:]...)
	f.release(nodeB, refsOf(got)...)
	f.wantIDs(f.lane(skip, rows[0].KeyID), rows[1:]...)
}

func headsDeadMiddle(f *fixture) {
	rows := newRows(4, "topic", "k")
	f.commit(rows[0])
	f.addDead(rows[1])
	f.commit(rows[2:]...)
	got := f.heads(request(nodeA))
	f.wantIDs(got, rows[0])
	f.release(nodeA, refsOf(got)...)
	skip := request(nodeA)
	skip.SkipDead = true
	got = f.heads(skip)
	f.must(len(got) > 0 && got[0].ID == rows[0].ID, "claimed %s, want the head first", idsOf(got))
	f.must(!slices.Contains(idsOf(got), rows[1].ID), "claimed a dead row")
	f.done(false, idsOf(got)...)
	for range 2 { // the dead row may end the run, but must not end the key
		got = f.heads(skip)
		f.done(false, idsOf(got)...)
	}
	b, err := f.Repository.Backlog(f.Context(), 100)
	f.check(err)
	f.must(b.Pending == 0 && b.Dead == 1, "backlog %+v", b)
}

// headsDeadLeave passes over dead rows of many keys, page by page. They block no key any more,
// whatever the policy is then, and come back at the end of their keys.
func headsDeadLeave(f *fixture) {
	var dead, open []core.NewRow
	for i := range 7 {
		key := fmt.Sprint("key", i)
		for range 1 + i%3 { // one behind the other
			dead = append(dead, f.addDead(newRow("topic", key)))
		}
		open = append(open, newRow("topic", key))
		f.commit(open[i])
	}
	skip := request(nodeA)
	skip.SkipDead, skip.Keys = true, 3
	var got []core.Claimed
	for range 10 {
		got = append(got, f.heads(skip)...)
	}
	f.wantSet(got, open...)
	f.release(nodeA, refsOf(got)...)
	block := request(nodeB)
	f.wantSet(f.heads(block), open...)
	b := f.backlog(100)
	f.must(b.Pending == 7 && b.Dead == int64(len(dead)) && b.BlockedKeys == 0, "backlog %+v", b)
	f.must(f.redrive(adminOf(dead[1].ID)) == 1, "not redriven")
	f.must(len(f.lane(block, dead[1].KeyID)) == 0, "a redriven row comes before the leased one of its key")
}

// headsDeadInOneSweep sweeps over keys that have nothing but a dead row each.
func headsDeadInOneSweep(f *fixture) {
	const keys = 25
	for i := range keys {
		f.addDead(newRow("topic", fmt.Sprint("key", i)))
	}
	skip := request(nodeA)
	skip.SkipDead, skip.Keys = true, 3
	f.must(len(f.heads(skip)) == 0, "claimed a dead row")
	b := f.backlog(100)
	f.must(b.Dead == keys && b.BlockedKeys == 0, "after a sweep %d of %d dead rows are in their keys, %d keys", b.Dead,
		keys, b.BlockedKeys)
	f.notDue(skip)
}

func headsDone(f *fixture) {
	rows := newRows(4, "topic", "k")
	f.commit(rows...)
	f.done(false, rows[0].ID)
	f.discard(adminOf(rows[1].ID))
	f.done(true, rows[2].ID)
	f.wantIDs(f.heads(request(nodeA)), rows[3])
}

func headsCursor(f *fixture) {
	var rows []core.NewRow
	for i := range 25 {
		rows = append(rows, newRow("topic", fmt.Sprint("key", i)))
	}
	f.commit(rows...)
	for _, lanes := range []int{1, 3, 25, 26, 1000} {
		req := request(nodeA)
		req.Keys = lanes
		got := f.heads(req)
		f.wantSet(got, rows...)
		f.release(nodeA, refsOf(got)...)
	}
	req := request(nodeA)
	req.Keys = 3
	part, next, err := f.Repository.ClaimHeads(f.Context(), req, core.KeyID{})
	f.check(err)
	f.must(len(part) == 3 && !next.IsZero(), "%d rows of 3 keys, next %x", len(part), next)
	for _, c := range part {
		f.must(bytes.Compare(c.KeyID[:], next[:]) <= 0, "claimed key id %x behind the cursor %x", c.KeyID, next)
	}
	var last core.KeyID
	for i := range last {
		last[i] = 0xff
	}
	end, next, err := f.Repository.ClaimHeads(f.Context(), req, last)
	f.check(err)
	f.must(len(end) == 0 && next.IsZero(), "%d rows behind the last key, next %x", len(end), next)
}

func headsLimit(f *fixture) {
	var rows []core.NewRow
	for i := range 7 {
		rows = append(rows, newRows(3, "topic", fmt.Sprint("key", i))...)
	}
	f.commit(rows...)
	req := request(nodeA)
	req.Limit = 4
	order := map[core.KeyID]int64{}
	total := 0
	for round := 0; total < len(rows); round++ {
		f.must(round < 100, "%d of %d rows after %d rounds", total, len(rows), round)
		var after core.KeyID
		for {
			got, next, err := f.Repository.ClaimHeads(f.Context(), req, after)
			f.check(err)
			f.must(len(got) <= req.Limit, "%d rows, more than the limit", len(got))
			for _, c := range got {
				f.must(c.KeySeq > order[c.KeyID], "key id %x: %d after %d", c.KeyID, c.KeySeq, order[c.KeyID])
				order[c.KeyID] = c.KeySeq
			}
			total += f.done(false, idsOf(got)...)
			if after = next; next.IsZero() {
				break
			}
		}
	}
}

func headsBytes(f *fixture) {
	rows := newRows(5, "topic", "k")
	for i := range rows {
		rows[i].Event.Payload = bytes.Repeat([]byte{0xff}, 1000)
	}
	f.commit(rows...)
	req := request(nodeA)
	req.MaxBytes = 2500
	got, _, err := f.Repository.ClaimHeads(f.Context(), req, core.KeyID{})
	f.check(err)
	f.must(len(got) == 1 || len(got) == 2, "%d rows of 1000 bytes for 2500 bytes", len(got))
	f.wantIDs(got, rows[:len(got)]...)
	f.release(nodeA, refsOf(got)...)
	req.MaxBytes = 1
	f.wantIDs(f.lane(req, rows[0].KeyID), rows[0])
}

func headsTopics(f *fixture) {
	var a, b, c []core.NewRow
	for i := range 4 {
		key := fmt.Sprint("key", i)
		a, b, c = append(a, newRow("a", key)), append(b, newRow("b", key)), append(c, newRow("c", key))
	}
	f.commit(slices.Concat(a, b, c)...)
	probe := func(only, except []string, want ...[]core.NewRow) {
		f.Helper()
		req := request(nodeA)
		req.Only, req.Except, req.Keys = only, except, 3
		got := f.heads(req)
		f.wantSet(got, slices.Concat(want...)...)
		f.release(nodeA, refsOf(got)...)
	}
	probe([]string{"b"}, nil, b)
	probe([]string{"c", "unknown", "a"}, nil, a, c)
	probe([]string{"unknown"}, nil)
	probe(nil, []string{"b"}, a, c)
	probe(nil, []string{"a", "b", "c"})
	probe([]string{"a", "b"}, []string{"b", "unknown"}, a)
	probe(nil, nil, a, b, c)
}

func headsStopped(f *fixture) {
	var rows, running []core.NewRow
	var stopped []string
	for i := range 30 {
		topic := fmt.Sprintf("topic-%02d", i)
		for j := range 5 {
			rows = append(rows, newRow(topic, fmt.Sprint("key", j)))
		}
		if i%10 == 5 {
			running = append(running, rows[len(rows)-5:]...)
		} else {
			stopped = append(stopped, topic)
		}
	}
	f.commit(rows...)
	req := request(nodeA)
	req.Except, req.Keys = stopped, 4
	f.wantSet(f.heads(req), running...)
}

func headsExpired(f *fixture) {
	rows := hot(newRows(2, "topic", "k")...)
	f.commitLeased(shortLease, rows...)
	var got []core.Claimed
	f.eventually("the leases end", func() bool {
		got = append(got, f.heads(request(nodeB))...)
		return len(got) > 0
	})
	f.must(got[0].ID == rows[0].ID && got[0].LostClaims == 1, "claimed %+v", got[0])
}

func headsMaxLease(f *fixture) {
	rows := hot(newRows(2, "topic", "k")...)
	f.commitLeased(time.Hour, rows...)
	f.wantIDs(f.heads(request(nodeB)), rows...)
}

func laneAlone(f *fixture) {
	rows, others := newRows(4, "topic", "k"), newRows(2, "topic", "other")
	f.commit(append(rows, others...)...)
	req := request(nodeA)
	req.Run = 2
	f.wantIDs(f.lane(req, rows[0].KeyID), rows[:2]...)
	f.must(len(f.lane(req, rows[0].KeyID)) == 0, "claimed behind a leased run")
	f.must(len(f.lane(req, core.NewKeyID("", "topic", "unknown"))) == 0, "claimed rows of a key that does not exist")
	req.Run, req.Limit = 10, 1
	f.wantIDs(f.lane(req, others[0].KeyID), others[0])
}

func laneNotServed(f *fixture) {
	row := newRow("topic", "k")
	f.commit(row)
	req := request(nodeA)
	req.Except = []string{"topic"}
	f.must(len(f.lane(req, row.KeyID)) == 0, "claimed a key of a stopped topic")
	req.Except, req.Only = nil, []string{"another"}
	f.must(len(f.lane(req, row.KeyID)) == 0, "claimed a key of another topic")
}
