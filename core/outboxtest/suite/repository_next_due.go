package suite

import (
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func nextDueCases() []repositoryCase {
	return []repositoryCase{
		{"of an empty table", func(f *fixture) { f.notDue(request(nodeA)) }},
		{"of a claimable row", func(f *fixture) {
			for _, key := range []string{"", "k"} {
				row := newRow("topic", key)
				f.commit(row)
				f.dueIn(request(nodeA), 0, 0)
				f.done(false, row.ID)
			}
		}},
		{"of a delayed row", func(f *fixture) {
			row := newRow("topic", "")
			row.Event.Delay = time.Hour
			f.commit(row)
			f.dueIn(request(nodeA), 59*time.Minute, time.Hour)
		}},
		{"of a leased row", func(f *fixture) {
			for _, key := range []string{"", "k"} {
				row := hot(newRow("topic", key))[0]
				f.commitLeased(10*time.Minute, row)
				f.dueIn(request(nodeA), 9*time.Minute, 10*time.Minute)
				f.done(false, row.ID)
			}
		}},
		{"of a row that is leased longer than can be", func(f *fixture) {
			f.commitLeased(time.Hour, hot(newRow("topic", ""))...)
			f.dueIn(request(nodeA), 0, 0)
		}},
		{"of ended rows", nextDueEnded},
		{"is the least of all", nextDueLeast},
		{"looks at heads only", nextDueHeads},
		{"looks at topics that are served", nextDueTopics},
		{"comes true", nextDueComesTrue},
	}
}

// dueIn requires that NextDue returns a duration between from and to.
func (f *fixture) dueIn(req core.ClaimRequest, from, to time.Duration) {
	f.Helper()
	d, ok, err := f.Repository.NextDue(f.Context(), req)
	f.check(err)
	f.must(ok && d >= from && d <= to, "NextDue is %s, %t; want %s to %s", d, ok, from, to)
}

func (f *fixture) notDue(req core.ClaimRequest) {
	f.Helper()
	d, ok, err := f.Repository.NextDue(f.Context(), req)
	f.check(err)
	f.must(!ok, "NextDue is %s, want none", d)
}

func nextDueEnded(f *fixture) {
	for _, key := range []string{"", "k"} {
		done, discarded := newRow("topic", key), newRow("topic", key)
		f.commit(done, discarded)
		f.done(false, done.ID)
		f.discard(adminOf(discarded.ID))
		f.addDead(newRow("topic", key))
	}
	f.notDue(request(nodeA))
}

func nextDueLeast(f *fixture) {
	late, early := newRow("topic", ""), newRow("other", "")
	late.Event.Delay, early.Event.Delay = 8*time.Hour, 4*time.Hour
	f.commit(late, early)
	f.commitLeased(10*time.Minute, hot(newRow("topic", "k"))...)
	f.dueIn(request(nodeA), 9*time.Minute, 10*time.Minute)
	f.commit(newRow("topic", "l"))
	f.dueIn(request(nodeA), 0, 0)
}

func nextDueHeads(f *fixture) {
	head, follower := newRow("topic", "k"), newRow("topic", "k")
	f.commit(head, follower)
	got := f.heads(request(nodeA))
	f.fail(nodeA, core.Failure{ClaimRef: ref(got[0]), Kind: core.FailRetry, Delay: time.Hour, Code: "c"})
	f.release(nodeA, ref(got[1]))
	f.dueIn(request(nodeA), 59*time.Minute, time.Hour) // the second row is due and free, but not before its head

	dead, behind := newRow("topic", "d"), newRow("topic", "d")
	f.addDead(dead)
	f.commit(behind)
	f.dueIn(request(nodeA), 59*time.Minute, time.Hour)
	skip := request(nodeA)
	skip.SkipDead = true
	f.dueIn(skip, 0, 0)
	skip.Keys = 0
	f.notDue(skip)
}

func nextDueTopics(f *fixture) {
	delayed := newRow("b", "")
	delayed.Event.Delay = time.Hour
	f.commit(newRow("a", ""), newRow("a", "k"), delayed)
	req := request(nodeA)
	req.Except = []string{"a"}
	f.dueIn(req, 59*time.Minute, time.Hour)
	req.Except = []string{"a", "b"}
	f.notDue(req)
	req.Except, req.Only = nil, []string{"b"}
	f.dueIn(req, 59*time.Minute, time.Hour)
	req.Only = []string{"unknown"}
	f.notDue(req)
}

func nextDueComesTrue(f *fixture) {
	row := newRow("topic", "")
	row.Event.Delay = shortLease
	f.commit(row)
	d, ok, err := f.Repository.NextDue(f.Context(), request(nodeA))
	f.check(err)
	f.must(ok && d <= shortLease, "NextDue is %s, %t", d, ok)
	<-time.After(d)
	// The clocks of the database and of this process may differ a little.
	f.eventually("the row is due", func() bool {
		d, ok, err := f.Repository.NextDue(f.Context(), request(nodeA))
		f.check(err)
		f.must(ok, "nothing is due any more")
		return d == 0
	})
	f.wantIDs(f.claim(request(nodeA)), row)
}
