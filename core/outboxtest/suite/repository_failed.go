package suite

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
)

func markFailedCases() []repositoryCase {
	return []repositoryCase{
		{"a retry waits and costs an attempt", func(f *fixture) { f.failedAgain(core.FailRetry, 1) }},
		{"an outage waits and costs none", func(f *fixture) { f.failedAgain(core.FailUnavailable, 0) }},
		{"an outage keeps earlier attempts", failedMixedKinds},
		{"a dead row is listed and not claimed", failedDead},
		{"a row that dies under SkipDead leaves its key", failedLeavesKey},
		{"a claim that was taken over changes nothing", failedStale},
		{"a claim that never was changes nothing", failedForeign},
		{"a claim that was marked or given back changes nothing", failedAfterEnd},
		{"each failure has its own result", failedEach},
		{"many failures", failedMany},
		{"texts that are hard to store stop nothing", failedTexts},
		{"the last ten refusals that count are kept", failedKept},
		{"a row that is done keeps its refusals, and its copy has them", failedKeptLater},
		{"no failures", func(f *fixture) { f.must(len(f.fail(nodeA)) == 0, "results for nothing") }},
	}
}

// next waits for a row to become claimable and claims it.
func (f *fixture) next(node string) core.Claimed {
	f.Helper()
	var got []core.Claimed
	f.eventually("a row becomes claimable", func() bool {
		got = f.claimAny(request(node))
		return len(got) > 0
	})
	return got[0]
}

// failedAgain fails a row several times in the same way. It requires that the row waits each time,
// and that it has spent that many attempts.
func (f *fixture) failedAgain(kind core.FailureKind, attempts int) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		f.commit(row)
		c := f.one(nodeA)
		for n := 1; n <= 3; n++ {
			start := time.Now()
			f.must(f.fail(nodeA, core.Failure{ClaimRef: ref(c), Kind: kind, Delay: shortLease, Code: "refused"})[0],
				"not changed")
			c = f.next(nodeA)
			f.after(start, shortLease, "due")
			f.must(c.ID == row.ID && c.Attempts == n*attempts && c.LostClaims == 0,
				"claimed %+v after %d failures", c, n)
		}
		f.must(f.done(false, row.ID) == 1, "not done")
	}
}

func failedMixedKinds(f *fixture) {
	f.commit(newRow("topic", ""))
	for i, kind := range []core.FailureKind{
		core.FailRetry, core.FailUnavailable, core.FailRetry,
		core.FailUnavailable,
	} {
		c := f.one(nodeA)
		f.must(c.Attempts == (i+1)/2, "%d attempts before failure %d", c.Attempts, i)
		// Without a delay the row is due at once.
		f.must(f.fail(nodeA, core.Failure{ClaimRef: ref(c), Kind: kind, Code: "c"})[0], "not changed")
	}
}

func failedDead(f *fixture) {
	for _, key := range []string{"", "k"} {
		row := newRow("topic", key)
		place := f.commit(row)[0]
		c := f.one(nodeA)
		f.must(f.fail(nodeA, core.Failure{ClaimRef: ref(c), Kind: core.FailRetry, Code: "first"})[0], "not changed")
		message := strings.Repeat("größe ", 250)
		f.must(f.fail(nodeA, core.Failure{
			ClaimRef: ref(f.one(nodeA)), Kind: core.FailDead, Code: "too_large",
			Message: message,
		})[0], "not changed")
		f.none("dead")
		dead := f.dead()
		f.must(len(dead) == 1, "%d dead rows, want 1", len(dead))
		d := dead[0]
		f.must(d.ID == row.ID && d.KeySeq == place.KeySeq && d.Attempts == 2 && d.LostClaims == 0 &&
			d.ErrorCode == "too_large" && d.Error == message,
			"listed as %+v", d)
		age := time.Since(d.CreatedAt)
		f.must(age > -time.Minute && age < time.Hour, "created at %s", d.CreatedAt)
		f.must(diffEvent(d.Event, row.Event) == "", "listed with %s", diffEvent(d.Event, row.Event))
		f.must(f.done(true, row.ID) == 1, "not done")
	}
}

// failedLeavesKey makes rows dead under SkipDead. The key goes on at once, for relays of either
// policy, and a redrive appends the rows at its end, under either policy.
func failedLeavesKey(f *fixture) {
	for _, skip := range []bool{false, true} {
		rows := newRows(4, "topic", "k")
		places := f.commit(rows...)
		plain := newRow("topic", "")
		f.commit(plain)
		req := request(nodeA)
		req.Run = 2
		dying := append(f.heads(req), f.claim(req)...)
		f.wantIDs(dying, rows[0], rows[1], plain)
		var failures []core.Failure
		for _, c := range dying {
			failures = append(failures, core.Failure{
				ClaimRef: ref(c), Kind: core.FailDead, SkipDead: true, Code: "boom",
			})
		}
		f.must(!slices.Contains(f.fail(nodeA, failures...), false), "not dead")
		b := f.backlog(10)
		f.must(b.Pending == 2 && b.Dead == 3 && b.BlockedKeys == 0, "backlog %+v", b)
		for _, e := range f.dead() {
			i := slices.IndexFunc(rows, func(n core.NewRow) bool { return n.ID == e.ID })
			if i < 0 {
				f.must(e.ID == plain.ID && e.KeySeq == 0, "listed as %+v", e)
				continue
			}
			f.must(e.KeySeq == places[i].KeySeq && diffEvent(e.Event, rows[i].Event) == "" && !e.Event.Unordered,
				"listed as %+v", e)
		}
		next := request(nodeB)
		next.SkipDead = skip
		f.wantIDs(f.heads(next), rows[2:]...)
		f.must(f.done(false, rows[2].ID) == 1, "not done")

		// The second one was accepted after all. The first one comes back behind all others.
		f.must(f.done(false, rows[1].ID) == 1, "a late acknowledgement of a dead row was not recorded")
		last := f.commit(newRow("topic", "k"))[0]
		again := adminOf(rows[0].ID, rows[1].ID, plain.ID)
		again.SkipDead = skip
		f.must(f.redrive(again) == 2 && f.redrive(again) == 0, "want two rows redriven, once")
		f.wantIDs(f.claim(next), plain)
		f.must(f.done(false, rows[3].ID) == 1, "not done")
		got := f.heads(next)
		f.must(len(got) == 2 && got[0].KeySeq == last.KeySeq && got[1].KeySeq == last.KeySeq+1 &&
			got[1].KeyID == rows[0].KeyID && got[1].Event.ID == rows[0].Event.ID, "claimed %+v", got)
		f.must(f.done(true, append(idsOf(got), plain.ID)...) == 3, "not done")
	}
}

// stale returns a claim of nodeA whose lease ended, and the claim of nodeB that took the row over.
func (f *fixture) stale(key string) (old core.ClaimRef, current core.Claimed) {
	f.Helper()
	row := newRow("topic", key)
	f.commitLeased(shortLease, hot(row)...)
	return hotRef(row), f.next(nodeB)
}

// changesNothing requires that no failure and no release under this claim changes anything.
func (f *fixture) changesNothing(node string, c core.ClaimRef) {
	f.Helper()
	for _, kind := range []core.FailureKind{core.FailRetry, core.FailDead, core.FailUnavailable} {
		f.must(!f.fail(node, core.Failure{ClaimRef: c, Kind: kind, Delay: time.Hour, Code: "c"})[0],
			"%s: failure of kind %d under claim %d", node, kind, c.ClaimNo)
	}
	f.must(!f.renew(node, time.Hour, c)[0], "%s: renewed under claim %d", node, c.ClaimNo)
	f.must(f.release(node, c) == 0, "%s: released under claim %d", node, c.ClaimNo)
}

func failedStale(f *fixture) {
	for _, key := range []string{"", "k"} {
		old, current := f.stale(key)
		f.changesNothing(nodeA, old)
		f.must(len(f.dead()) == 0, "a stale guess made the row dead")
		f.none("nodeB holds the row")
		f.must(f.renew(nodeB, longLease, ref(current))[0], "the holder lost its claim")
		f.must(f.fail(nodeB, core.Failure{ClaimRef: ref(current), Kind: core.FailRetry, Code: "c"})[0],
			"the holder could not report")
		c := f.one(nodeA)
		f.must(c.Attempts == 1 && c.LostClaims == 1, "claimed %+v", c)
		f.must(f.done(false, old.ID) == 1, "an acknowledgement counts whoever brings it")
	}
}

func failedForeign(f *fixture) {
	for _, key := range []string{"", "k"} {
		f.commit(newRow("topic", key))
		c := f.one(nodeA)
		f.changesNothing(nodeB, ref(c))
		f.changesNothing("NODE-A/1", ref(c))
		f.changesNothing("", ref(c))
		for _, n := range []int64{-1, 0, hotNo, c.ClaimNo - 1, c.ClaimNo + 1} {
			f.changesNothing(nodeA, core.ClaimRef{ID: c.ID, ClaimNo: n})
		}
		f.changesNothing(nodeA, core.ClaimRef{ID: newRow("topic", "").ID, ClaimNo: c.ClaimNo})
		f.must(f.renew(nodeA, longLease, ref(c))[0], "the holder lost its claim")
		f.done(false, c.ID)
	}
}

// failedAfterEnd repeats failures and releases, as a relay does after a lost answer.
func failedAfterEnd(f *fixture) {
	ends := []func(core.ClaimRef){
		func(c core.ClaimRef) { f.must(f.release(nodeA, c) == 1, "not released") },
	}
	for _, kind := range []core.FailureKind{core.FailRetry, core.FailUnavailable} {
		ends = append(ends, func(c core.ClaimRef) {
			f.must(f.fail(nodeA, core.Failure{ClaimRef: c, Kind: kind, Code: "c"})[0], "not changed")
		})
	}
	for i, end := range ends {
		f.commit(newRow("topic", ""))
		c := f.one(nodeA)
		end(ref(c))
		f.changesNothing(nodeA, ref(c))
		again := f.one(nodeB) // at once, because the row has no lease and no delay
		f.must(again.ID == c.ID && again.Attempts == min(1, i%2) && again.LostClaims == 0, "claimed %+v", again)
		f.done(false, c.ID)
	}
}

func failedEach(f *fixture) {
	rows := newRows(6, "topic", "")
	f.commit(rows...)
	own := f.claim(request(nodeA))[0].ClaimNo
	of := func(i int, kind core.FailureKind, no int64, delay time.Duration) core.Failure {
		return core.Failure{ClaimRef: core.ClaimRef{ID: rows[i].ID, ClaimNo: no}, Kind: kind, Delay: delay, Code: "c"}
	}
	f.done(false, rows[5].ID)
	changed := f.fail(nodeA,
		of(5, core.FailRetry, own, 0), of(0, core.FailRetry, own, 0), of(1, core.FailRetry, own+1, 0),
		of(2, core.FailDead, own, 0), core.Failure{
			ClaimRef: core.ClaimRef{ID: newRow("topic", "").ID, ClaimNo: own},
			Kind:     core.FailDead, Code: "c",
		},
		of(3, core.FailUnavailable, own, time.Hour), of(4, core.FailUnavailable, own, 0))
	f.must(slices.Equal(changed, []bool{false, true, false, true, false, true, true}), "changed %v", changed)
	f.wantSet(f.claim(request(nodeB)), rows[0], rows[4])
	f.must(len(f.dead()) == 1, "want one dead row")
	f.must(f.renew(nodeA, longLease, core.ClaimRef{ID: rows[1].ID, ClaimNo: own})[0],
		"the row with the wrong number was touched")
}

func failedMany(f *fixture) {
	rows := newRows(400, "topic", "")
	f.commit(rows...)
	var failures []core.Failure
	for i, c := range f.claim(request(nodeA)) {
		kind := core.FailRetry
		if i%2 == 0 {
			kind = core.FailUnavailable
		}
		failures = append(failures, core.Failure{
			ClaimRef: ref(c), Kind: kind, Code: "c",
			Message: "it's \"broken\" \\",
		})
	}
	f.must(!slices.Contains(f.fail(nodeA, failures...), false), "the holder could not report")
	refusals := 0
	for _, c := range f.claim(request(nodeA)) {
		refusals += c.Attempts
	}
	f.must(refusals == len(rows)/2, "%d refusals, want %d", refusals, len(rows)/2)
}

// attempts reads the failed attempts of a row.
func (f *fixture) attempts(id core.RowID) []ops.Attempt {
	f.Helper()
	all, err := f.Store.ReadFailures(f.Context(), id)
	f.check(err)
	return all
}

// failedKept fails a row more often than is kept. An outage meanwhile pushes nothing out.
func failedKept(f *fixture) {
	row, other := newRow("topic", ""), newRow("topic", "")
	f.commit(hot(row)...)
	f.must(len(f.attempts(row.ID)) == 0, "a new row has attempts")
	code := strings.Repeat("c", 64)
	fail := func(c core.ClaimRef, kind core.FailureKind, path core.Path, message string) {
		f.Helper()
		f.must(f.fail(nodeA, core.Failure{
			ClaimRef: c, Kind: kind, Code: code, Message: message, Path: path,
		})[0], "not changed")
	}
	start := time.Now()
	fail(hotRef(row), core.FailRetry, core.PathHot, "refused 1\tby\nthe broker")
	got := f.attempts(row.ID)
	f.must(len(got) == 1, "%d attempts after one", len(got))
	first := got[0]
	f.must(first.Attempt == 1 && first.Path == core.PathHot && first.Node == nodeA && first.Code == code &&
		first.Error == "refused 1 by the broker", "kept as %+v", first)
	f.must(first.At.Sub(start).Abs() < time.Hour && first.At.Location() == time.UTC, "at %s", first.At)
	long := strings.Repeat("ö", 400)
	for n := 2; n <= 14; n++ {
		fail(ref(f.one(nodeA)), core.FailUnavailable, core.PathCold, "away")
		kind := core.FailRetry
		if n == 14 {
			kind = core.FailDead
		}
		fail(ref(f.one(nodeA)), kind, core.PathCold, fmt.Sprint(n, " ", long))
	}
	got = f.attempts(row.ID)
	f.must(len(got) == ops.MaxAttempts, "%d attempts are kept", len(got))
	for i, a := range got {
		n := i + 5
		f.must(a.Attempt == n && a.Path == core.PathCold && a.Node == nodeA && a.Code == code &&
			strings.HasPrefix(a.Error, fmt.Sprint(n, " ööö")) && len(a.Error) < 310, "attempt %d is kept as %+v", n, a)
		f.must(i == 0 || !a.At.Before(got[i-1].At), "attempt %d is before the one before it", n)
	}
	f.commit(other)
	f.must(len(f.attempts(other.ID)) == 0 && len(f.attempts(newRow("topic", "").ID)) == 0,
		"another row has attempts")
}

func failedKeptLater(f *fixture) {
	dying := func(row core.NewRow, skip bool) {
		f.Helper()
		f.commit(row)
		c := f.claimAny(request(nodeA))
		f.must(len(c) == 1, "claimed %d rows", len(c))
		f.must(f.fail(nodeA, core.Failure{
			ClaimRef: ref(c[0]), Kind: core.FailDead, SkipDead: skip, Code: "boom", Path: core.PathCold,
		})[0], "not changed")
	}
	row := newRow("topic", "")
	dying(row, false)
	f.must(f.redrive(adminOf(row.ID)) == 1, "not redriven")
	f.must(len(f.attempts(row.ID)) == 1, "the redrive has lost the refusal")
	f.must(
		f.fail(nodeA, core.Failure{ClaimRef: ref(f.one(nodeA)), Kind: core.FailRetry, Code: "again"})[0],
		"not changed",
	)
	f.must(f.done(false, row.ID) == 1, "not done")
	got := f.attempts(row.ID)
	f.must(len(got) == 2 && got[0].Code == "boom" && got[1].Code == "again" && got[1].Attempt == 1,
		"of a done row %+v is kept", got)
	left := newRow("topic", "k")
	dying(left, true)
	f.must(f.redrive(adminOf(left.ID)) == 1, "not redriven")
	copied := f.next(nodeA)
	f.must(copied.ID != left.ID, "the row was not appended")
	got = f.attempts(copied.ID)
	f.must(len(got) == 1 && got[0].Code == "boom", "the copy has %+v", got)
}

// hardTexts are error texts that publishers may return.
var hardTexts = []string{
	"🤷 größe \U0001F4A9", "\xff\xfe broken", "nul \x00 in it", strings.Repeat("é", 3000), strings.Repeat("x", 1<<20),
	"a\nb\tc\x01\x7f", `{"quoted": "\\u0000"}`, "\U0010FFFF\uFFFE",
}

func failedTexts(f *fixture) {
	var rows []core.NewRow
	var failures []core.Failure
	for _, text := range hardTexts {
		row := newRow("topic", "")
		rows = append(rows, row)
		failures = append(failures, core.Failure{
			ClaimRef: hotRef(row), Kind: core.FailDead,
			Code: text, Message: text,
		})
	}
	f.commit(hot(rows...)...)
	changed := f.fail(nodeA, failures...)
	f.must(!slices.Contains(changed, false), "changed %v", changed)
	dead := f.dead()
	f.must(len(dead) == len(rows), "%d dead rows, want %d", len(dead), len(rows))
	for _, d := range dead {
		f.must(len(f.attempts(d.ID)) == 1, "the attempt is not kept")
		f.must(len(d.Error) > 0 && utf8.ValidString(d.Error) && utf8.ValidString(d.ErrorCode),
			"listed with code %q and error %q", d.ErrorCode, d.Error)
	}
	for i, text := range hardTexts { // and as receipts
		n, err := f.Repository.MarkDone(f.Context(), []core.Done{{ID: rows[i].ID, Receipt: text}}, false)
		f.check(err)
		f.must(n == 1, "not done with receipt %.20q", text)
	}
}
