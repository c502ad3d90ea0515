package suite

import (
	"slices"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func leaseCases() []repositoryCase {
	return []repositoryCase{
		{"a renewed lease goes on", leaseRenewed},
		{"a lease that ran out can be renewed until another has it", leaseRenewedLate},
		{"a released row is free at once", leaseReleased},
		{"only leases that ran out count as lost", leaseLost},
		{"a suspicious row loses claims only while it is published", leaseSuspect},
		{"a death that does not count makes a row wait", leaseUnproven},
		{"a node that lost a claim begins no publish of a suspect", leaseSuspectFenced},
		{"an administrator's hand ends a claim", leaseAdmin},
		{"a claim ends with its row", leaseSecondLife},
		{"each claim has its own answer", leaseEach},
		{"the longest name of a node", leaseLongNode},
		{"nothing", func(f *fixture) {
			f.must(len(f.renew(nodeA, longLease)) == 0 && f.release(nodeA) == 0 && len(f.beginSuspect(nodeA)) == 0,
				"answers for nothing")
		}},
	}
}

// shortClaims leases a row for a short time. The lease of its marker ends later, and so shows that
// the lease of the row has ended.
func (f *fixture) shortClaims(key string) (row core.Claimed, over func()) {
	f.Helper()
	n, marker := newRow("topic", key), newRow("marker", "")
	f.commit(n, marker)
	req := request(nodeA)
	req.Lease = shortLease
	req.Only = []string{"topic"}
	got := f.claimAny(req)
	f.wantIDs(got, n)
	req.Only = []string{"marker"} // claimed later, so its lease ends later
	f.wantIDs(f.claim(req), marker)
	return got[0], func() {
		f.Helper()
		watch := request(nodeB)
		watch.Only = []string{"marker"}
		f.eventually("the lease of the marker ends", func() bool { return len(f.claim(watch)) > 0 })
		f.must(f.done(true, marker.ID) == 1, "marker not removed")
	}
}

func leaseRenewed(f *fixture) {
	for _, key := range []string{"", "k"} {
		c, over := f.shortClaims(key)
		f.must(f.renew(nodeA, longLease, ref(c))[0], "the holder could not renew")
		over()
		f.none("renewed")
		f.must(f.renew(nodeA, 0, ref(c))[0], "the holder could not renew twice")
		again := f.next(nodeB)
		f.must(again.LostClaims == 1, "claimed %+v", again)
		f.must(!f.renew(nodeA, longLease, ref(c))[0], "renewed a claim that another node has")
		f.done(true, c.ID)
	}
}

func leaseRenewedLate(f *fixture) {
	c, over := f.shortClaims("k")
	over()
	f.must(f.renew(nodeA, longLease, ref(c))[0], "nobody else has the claim, but it could not be renewed")
	f.none("renewed")
}

func leaseReleased(f *fixture) {
	for _, key := range []string{"", "k"} {
		rows := newRows(2, "topic", key)
		f.commit(rows...)
		got := f.claimAny(request(nodeA))
		f.must(f.release(nodeB, refsOf(got)...) == 0, "another node released the rows")
		f.none("held by nodeA")
		f.must(f.release(nodeA, refsOf(got)...) == 2, "the holder could not release")
		again := f.claimAny(request(nodeB))
		f.wantSet(again, rows...)
		for _, c := range again {
			f.must(c.LostClaims == 0 && c.Attempts == 0, "claimed %+v", c)
		}
		f.must(f.release(nodeA, refsOf(got)...) == 0, "released a claim that another node has")
		f.done(true, newIDs(rows)...)
	}
}

func leaseLost(f *fixture) {
	f.commit(newRow("topic", ""))
	lost, before, lease := 0, "", ""
	for i, step := range []struct{ node, ending string }{
		{nodeA, "released"},
		{nodeB, "lost"},
		{nodeA, "retried"},
		{nodeB, "lost"},
		{nodeB, "lost"},
		{nodeA, "unavailable"},
		{nodeA, "lost"},
	} {
		node, ending := step.node, step.ending
		if lease == "lost" && before != node { // a node that claims its own row again is alive
			lost++
		}
		before, lease = node, ending
		req := request(node)
		if ending == "lost" {
			req.Lease = 10 * time.Millisecond
		}
		var got []core.Claimed
		f.eventually("the row is free", func() bool {
			got = f.claim(req)
			return len(got) > 0
		})
		c := got[0]
		f.must(c.LostClaims == lost, "claimed %+v, want %d lost claims of %d", c, lost, i)
		switch ending {
		case "released":
			f.release(node, ref(c))
		case "retried":
			f.fail(node, core.Failure{ClaimRef: ref(c), Kind: core.FailRetry, Code: "c"})
		case "unavailable":
			f.fail(node, core.Failure{ClaimRef: ref(c), Kind: core.FailUnavailable, Code: "c"})
		}
	}
	f.kill(nodeB, f.next(nodeB))
	dead := f.dead()
	f.must(len(dead) == 1 && dead[0].LostClaims == 3 && dead[0].Attempts == 2, "listed as %+v", dead)
}

// claimLost claims a row as soon as nobody holds it, under a lease that ends at once.
func (f *fixture) claimLost(node string) core.Claimed {
	f.Helper()
	req := request(node)
	req.Lease, req.Only = 10*time.Millisecond, []string{"topic"}
	var got []core.Claimed
	f.eventually("the lease ends", func() bool {
		got = f.claimAny(req)
		return len(got) > 0
	})
	return got[0]
}

// leaseSuspect checks the count of lost claims. Up to core.Suspicious every lost claim counts.
// Above that, a lost claim counts only if a publish had begun under it.
func leaseSuspect(f *fixture) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		f.commit(row)
		nodes := [2]string{nodeA, nodeB}
		claim := func(n int) core.Claimed { return f.claimLost(nodes[n%2]) }
		n, want := 0, 0
		for ; n <= core.Suspicious+2; n++ {
			c := claim(n)
			f.must(c.LostClaims == min(n, core.Suspicious), "key %q: claimed %+v after %d lost claims", key, c, n)
			want = c.LostClaims
		}
		for _, ending := range []string{"lost", "lost", "released", "lost", "failed", "renewed and lost"} {
			c := claim(n)
			f.must(c.LostClaims == want, "key %q: claimed %+v, want %d lost claims", key, c, want)
			node := nodes[n%2]
			f.must(f.beginSuspect(node, ref(c))[0], "the claim that was just made is not held")
			f.must(f.beginSuspect(node, ref(c))[0], "begun twice")
			want++
			switch ending {
			case "released":
				f.must(f.release(node, ref(c)) == 1, "not released")
				want--
			case "failed":
				f.must(f.fail(node, core.Failure{ClaimRef: ref(c), Kind: core.FailUnavailable, Code: "c"})[0],
					"not failed")
				want--
			case "renewed and lost":
				f.must(f.renew(node, 10*time.Millisecond, ref(c))[0], "not renewed")
			}
			n++
		}
		c := claim(n) // no publish begins under this claim, and it is lost
		f.must(c.LostClaims == want, "key %q: claimed %+v, want %d lost claims", key, c, want)
		c = claim(n + 1)
		f.must(c.LostClaims == want, "key %q: claimed %+v: a claim without a publish was counted, want %d", key, c,
			want)
		f.must(f.beginSuspect(nodes[(n+1)%2], ref(c))[0], "not held")
		f.eventually("it is dead", func() bool {
			return f.fail(nodes[(n+1)%2], core.Failure{ClaimRef: ref(c), Kind: core.FailDead, Code: "lost_claims"})[0]
		})
		dead := f.dead()
		f.must(len(dead) == 1 && dead[0].LostClaims == want, "listed as %+v, want %d lost claims", dead, want)
		f.done(true, row.ID)
	}
}

// leaseUnproven checks that a lost claim does not count if its publish was begun with a wait, and
// that the row is due after the wait and not before. The lease of a marker, which begins before the
// wait and is as long, shows that by the clock of the repository.
func leaseUnproven(f *fixture) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		f.commit(row)
		nodes, lost := [2]string{nodeA, nodeB}, 0
		claim := func(n int) core.Claimed { return f.claimLost(nodes[n%2]) }
		begin := func(n int, wait time.Duration, c core.Claimed) {
			held, err := f.Repository.BeginSuspect(f.Context(), nodes[n%2], wait, []core.ClaimRef{ref(c)})
			f.must(err == nil && len(held) == 1 && held[0], "not held: %v, %v", held, err)
		}
		n := 0
		for ; n <= core.Suspicious; n++ {
			lost = claim(n).LostClaims
		}
		for range 2 {
			c := claim(n)
			f.must(c.LostClaims == lost, "key %q: claimed %+v, want %d lost claims", key, c, lost)
			marker, of := newRow("marker", ""), request(nodeA)
			of.Only, of.Lease = []string{"marker"}, shortLease
			f.commit(marker)
			f.wantIDs(f.claim(of), marker)
			begin(n, shortLease, c)
			n++
			c = claim(n)
			f.must(len(f.claim(of)) == 1, "key %q: due before its wait was over", key)
			f.done(true, marker.ID)
			f.must(c.LostClaims == lost, "key %q: a death was counted: %+v", key, c)
			begin(n, 0, c) // this one counts
			n++
			lost++
		}
		c := claim(n)
		f.must(c.LostClaims == lost, "key %q: claimed %+v, want %d lost claims", key, c, lost)
		begin(n, 0, c)
		begin(n, time.Hour, c)
		f.must(f.fail(nodes[n%2], core.Failure{ClaimRef: ref(c), Kind: core.FailRetry, Code: "c"})[0], "not failed")
		c = claim(n + 1) // the failure has set the due time
		f.must(c.LostClaims == lost, "key %q: claimed %+v, want %d lost claims", key, c, lost)
		f.done(true, row.ID)
	}
}

func leaseSuspectFenced(f *fixture) {
	for _, key := range []string{"", "k"} {
		old, current := f.stale(key)
		f.must(!f.beginSuspect(nodeA, old)[0], "begun under a claim that was taken over")
		f.must(!f.beginSuspect(nodeA, ref(current))[0], "begun under a claim of another node")
		f.must(f.release(nodeB, ref(current)) == 1, "not released")
		f.must(!f.beginSuspect(nodeB, ref(current))[0], "begun under a claim that was given back")
		f.done(true, current.ID)
	}
}

func leaseAdmin(f *fixture) {
	for _, act := range []func(core.RowID){
		func(id core.RowID) {
			req := adminOf(id)
			req.Force = true
			f.must(f.discard(req) == 1, "not discarded")
		},
		func(id core.RowID) {
			f.kill(nodeA, core.Claimed{ID: id, ClaimNo: hotNo})
			f.must(f.redrive(adminOf(id)) == 1, "not redriven")
		},
	} {
		row := newRow("topic", "")
		f.commit(hot(row)...)
		act(row.ID)
		f.changesNothing(nodeA, hotRef(row))
	}
}

// leaseSecondLife publishes an event again after its row was deleted. A claim of the first row
// changes nothing of the second, whether that row is hot, cold or claimed.
func leaseSecondLife(f *fixture) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		f.commit(hot(row)...)
		old := []core.ClaimRef{hotRef(row)}
		for _, second := range []string{"cold", "claimed", "hot"} {
			f.must(f.done(true, row.ID) == 1, "not deleted")
			switch second {
			case "cold":
				f.commit(row)
			case "claimed":
				f.commit(row)
				old = append(old, ref(f.one(nodeA)))
			case "hot":
				_, err := f.tryCommit(core.InsertRequest{
					Node: nodeA, ClaimNo: newClaimNo(), Lease: longLease, Rows: hot(row),
				})
				f.check(err)
			}
			for _, c := range old {
				if second != "claimed" || c != old[len(old)-1] {
					f.changesNothing(nodeA, c)
				}
			}
			f.must(len(f.dead()) == 0, "a guess of the first row ended the second")
		}
		f.must(f.done(true, row.ID) == 1, "not deleted")
	}
}

func leaseEach(f *fixture) {
	rows := newRows(4, "topic", "")
	f.commit(rows...)
	own := f.claim(request(nodeA))[0].ClaimNo
	f.done(false, rows[2].ID)
	refs := []core.ClaimRef{
		{ID: rows[2].ID, ClaimNo: own},
		{ID: rows[0].ID, ClaimNo: own},
		{ID: rows[1].ID, ClaimNo: newClaimNo()},
		{ID: newRow("topic", "").ID, ClaimNo: own},
		{ID: rows[3].ID, ClaimNo: own},
	}
	held := f.renew(nodeA, longLease, refs...)
	f.must(slices.Equal(held, []bool{false, true, false, false, true}), "held %v", held)
	f.must(f.release(nodeA, refs...) == 2, "want two rows released")
	f.wantSet(f.claim(request(nodeB)), rows[0], rows[3])
}

// leaseLongNode uses a name of the length that core makes from Config.Node and the incarnation, and
// a name that differs only at its end.
func leaseLongNode(f *fixture) {
	node := strings.Repeat("n", 124) + "\u00e9'\"-0123abcd"
	other := strings.TrimSuffix(node, "d") + "e"
	row := newRow("topic", "k")
	f.commit(row)
	c := f.one(node)
	f.changesNothing(other, ref(c))
	f.must(f.renew(node, longLease, ref(c))[0], "the holder lost its claim")
	f.must(f.release(node, ref(c)) == 1, "the holder could not release")
}
