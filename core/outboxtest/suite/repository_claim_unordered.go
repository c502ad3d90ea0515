package suite

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func claimUnorderedCases() []repositoryCase {
	return []repositoryCase{
		{"each row once", claimOnce},
		{"no rows of keys", claimNoLanes},
		{"up to the limit", claimLimit},
		{"up to the bytes, but at least one", claimBytes},
		{"only certain topics", claimTopics},
		{"topics that a process serves are for those who name them", claimServed},
		{"a topic is a value, whatever it contains", claimHostileTopics},
		{"many topics, most of them stopped", claimManyTopics},
		{"what small topics leave goes to the others", claimUnequalTopics},
		{"oldest due first", claimOldestFirst},
		{"one claim is in the order in which its rows are due", claimInOrder},
		{"a lease too long to be one is none", claimMaxLease},
		{"earlier claims of a node change nothing", claimNumbers},
	}
}

func claimOnce(f *fixture) {
	rows := newRows(20, "topic", "")
	f.commit(rows...)
	f.wantSet(f.claim(request(nodeA)), rows...)
	f.none("all are leased")
}

func claimNoLanes(f *fixture) {
	plain, ordered := newRow("topic", ""), newRow("topic", "k")
	f.commit(plain, ordered)
	f.wantIDs(f.claim(request(nodeA)), plain)
	f.wantIDs(f.heads(request(nodeA)), ordered)
}

func claimLimit(f *fixture) {
	rows := append(newRows(4, "a", ""), newRows(4, "b", "")...)
	f.commit(rows...)
	req := request(nodeA)
	req.Limit = 3
	var all []core.Claimed
	for range 3 {
		got := f.claim(req)
		f.must(len(got) <= 3, "%d rows, more than the limit", len(got))
		all = append(all, got...)
	}
	f.wantSet(all, rows...)
}

func claimBytes(f *fixture) {
	rows := newRows(6, "topic", "")
	for i := range rows {
		rows[i].Event.Payload = bytes.Repeat([]byte{0x00, 0xff}, 500)
	}
	f.commit(rows...)
	req := request(nodeA)
	req.MaxBytes = 2500
	got := f.claim(req)
	f.must(len(got) == 1 || len(got) == 2, "%d rows of 1000 bytes for 2500 bytes", len(got))
	req.MaxBytes = 1
	f.must(len(f.claim(req)) == 1, "want one row however large")
	req.MaxBytes = 1 << 20
	f.must(len(f.claim(req)) == 5-len(got), "want the others")
}

func claimTopics(f *fixture) {
	a, b, c := newRow("a", ""), newRow("b", ""), newRow("c", "")
	f.commit(a, b, c)
	probe := func(only, except []string, want ...core.NewRow) {
		f.Helper()
		req := request(nodeA)
		req.Only, req.Except = only, except
		got := f.claim(req)
		f.wantSet(got, want...)
		f.must(f.release(nodeA, refsOf(got)...) == len(got), "not released")
	}
	probe([]string{"b"}, nil, b)
	probe([]string{"b", "c", "unknown"}, nil, b, c)
	probe([]string{"unknown"}, nil)
	probe(nil, []string{"b"}, a, c)
	probe(nil, []string{"a", "b", "c"})
	probe(nil, []string{"unknown"}, a, b, c)
	probe([]string{"a", "b"}, []string{"b"}, a)
	probe(nil, nil, a, b, c)
}

func claimHostileTopics(f *fixture) {
	topics := []string{"'", `"`, "`", `\`, "%", "_", "?", "$1", ":x", "@x", "--", "a,b", "{a}", "[a]", "NULL", "世界"}
	var rows []core.NewRow
	for _, t := range topics {
		rows = append(rows, newRow(t, ""), newRow(t, "k"))
	}
	f.commit(rows...)
	for i := range topics {
		req := request(nodeA)
		req.Except = append(append([]string{}, topics[:i]...), topics[i+1:]...)
		f.wantSet(f.claimAny(req), rows[2*i], rows[2*i+1])
	}
}

func claimManyTopics(f *fixture) {
	var rows []core.NewRow
	req := request(nodeA)
	for i := range 150 {
		topic := fmt.Sprintf("topic-%03d", i)
		rows = append(rows, newRow(topic, ""))
		if i%50 != 25 {
			req.Except = append(req.Except, topic)
		}
	}
	f.commit(rows...)
	f.wantSet(f.claim(req), rows[25], rows[75], rows[125])
}

// A relay without a list of topics claims all topics. It must not get topics that another process
// serves.
func claimServed(f *fixture) {
	mail, hook := core.ServedTopicPrefix+"mail", core.ServedTopicPrefix+"webhook"
	plain, ordered := newRow("orders", ""), newRow("orders", "k")
	near := newRow("effect", "") // without the prefix of the served topics
	m, h, lane := newRow(mail, ""), newRow(hook, ""), newRow(mail, "k")
	f.commit(plain, ordered, near, m, h, lane)
	probe := func(only, except, served []string, want ...core.NewRow) {
		f.Helper()
		req := request(nodeA)
		req.Only, req.Except, req.Served = only, except, served
		got := f.claimAny(req)
		f.wantSet(got, want...)
		f.must(f.release(nodeA, refsOf(got)...) == len(got), "not released")
	}
	probe(nil, nil, nil, plain, ordered, near)
	probe(nil, []string{"orders"}, nil, near)
	probe(nil, nil, []string{mail}, plain, ordered, near, m, lane)
	probe(nil, []string{mail}, []string{mail, hook}, plain, ordered, near, h)
	probe([]string{mail}, nil, nil, m, lane)
	probe([]string{hook, "orders"}, []string{"orders"}, nil, h)
	req := request(nodeA)
	f.must(len(f.lane(req, lane.KeyID)) == 0, "claimed a key of a topic that was not named")
	req.Served = []string{mail}
	f.wantIDs(f.lane(req, lane.KeyID), lane)
	f.done(false, plain.ID, ordered.ID, near.ID, lane.ID)
	_, due, err := f.Repository.NextDue(f.Context(), request(nodeA))
	f.check(err)
	f.must(!due, "a row of a topic that was not named is said to be due")
}

func claimOldestFirst(f *fixture) {
	rows, marker := newRows(3, "topic", ""), newRow("marker", "")
	f.commitDelayed(append(slices.Clone(rows), marker), []int{2, 1, 0, 3})
	req := request(nodeA)
	req.Only = []string{"marker"}
	f.eventually("the marker is due", func() bool { return len(f.claim(req)) > 0 })
	req.Only, req.Limit = nil, 1
	for i := range rows { // the last row is due first
		f.wantIDs(f.claim(req), rows[len(rows)-1-i])
	}
}

// A relay publishes in the order in which a claim returns rows. A row that was put off must not
// come before rows that wait longer, whatever its id.
func claimInOrder(f *fixture) {
	a, b, marker := newRows(9, "a", ""), newRows(4, "b", ""), newRow("marker", "")
	turns := []int{0, 4, 8, 3, 7, 2, 6, 1, 5, 3, 2, 1, 0, 9}
	f.commitDelayed(append(slices.Concat(a, b), marker), turns)
	req := request(nodeA)
	req.Only = []string{"marker"}
	f.eventually("the marker is due", func() bool { return len(f.claim(req)) > 0 })
	req.Only = nil
	got := map[string][]core.RowID{}
	for _, c := range f.claim(req) {
		got[c.Event.Topic] = append(got[c.Event.Topic], c.ID)
	}
	want := map[string][]core.RowID{"a": make([]core.RowID, len(a)), "b": make([]core.RowID, len(b))}
	for i, row := range slices.Concat(a, b) {
		want[row.Event.Topic][turns[i]] = row.ID
	}
	for topic, want := range want {
		f.must(slices.Equal(got[topic], want), "topic %s: claimed %s, want %s", topic, got[topic], want)
	}
}

func claimMaxLease(f *fixture) {
	row := hot(newRow("topic", ""))[0]
	f.commitLeased(time.Hour, row)
	req := request(nodeB)
	req.MaxLease = 2 * time.Hour
	f.must(len(f.claim(req)) == 0, "claimed a leased row")
	req.MaxLease = 15 * time.Minute
	got := f.claim(req)
	f.wantIDs(got, row)
	f.must(!f.renew(nodeA, longLease, hotRef(row))[0], "the earlier claim still holds")
}

func claimNumbers(f *fixture) {
	f.commit(newRow("topic", ""))
	var before []core.ClaimRef
	for range 5 {
		c := f.one(nodeA)
		for _, old := range before {
			f.changesNothing(nodeA, old)
		}
		f.must(f.release(nodeA, ref(c)) == 1, "not released")
		before = append(before, ref(c))
	}
}

func claimUnequalTopics(f *fixture) {
	var rows []core.NewRow
	for topic, n := range map[string]int{"few": 2, "fewer": 1, "many": 40} {
		for range n {
			rows = append(rows, newRow(topic, ""))
		}
	}
	f.commit(rows...)
	req := request(nodeA)
	req.Limit = 30
	got := f.claim(req)
	f.must(len(got) == 30, "claimed %d of 43 rows, want as many as the limit allows", len(got))
}
