package suite

import (
	"context"
	"errors"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

func lockedCases() []repositoryCase {
	return []repositoryCase{
		{"an acknowledgement of other rows does not wait", lockedDone},
		{"a failure of other rows does not wait", lockedFailed},
		{"a lease of other rows is renewed and released", lockedLease},
		{"a locked row that is not concerned is not named", lockedOther},
		{"a claim passes over locked rows", lockedClaim},
	}
}

// lock locks rows in a transaction and returns a function that ends it.
func (f *fixture) lock(rows ...core.NewRow) (unlock func()) {
	f.Helper()
	tx := f.begin()
	f.check(f.Lock(f.Context(), tx, newIDs(rows)...))
	return func() { f.check(tx.Rollback()) }
}

// wantLocked requires an error that names exactly these rows.
func (f *fixture) wantLocked(err error, rows ...core.NewRow) {
	f.Helper()
	var e *core.LockedError
	if !errors.As(err, &e) || !sameSet(e.Rows, newIDs(rows)) {
		f.Fatalf("error %v, want a LockedError of %s", err, newIDs(rows))
	}
}

// brief calls fn with a short deadline. A call that waited for the lock would miss it, because the
// lock is released only after the call.
func (f *fixture) brief(fn func(ctx context.Context)) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	fn(ctx)
	f.must(ctx.Err() == nil, "the call waited for the lock")
}

// lockedRows commits claimed rows of each kind. The test locks the held rows and not the free ones.
func (f *fixture) lockedRows() (held, free []core.NewRow) {
	f.Helper()
	held = []core.NewRow{newRow("a", ""), newRow("a", "k")}
	free = []core.NewRow{newRow("b", ""), newRow("b", "k"), newRow("a", "other"), newRow("a", "")}
	f.commit(hot(slices.Concat(held, free)...)...)
	return held, free
}

func lockedDone(f *fixture) {
	if f.SingleWriter {
		return // no other transaction writes
	}
	for _, deleteRows := range []bool{false, true} {
		for _, receipt := range []string{"", "a/1@2"} {
			held, free := f.lockedRows()
			var done []core.Done
			for _, n := range slices.Concat(free, held) {
				done = append(done, core.Done{ID: n.ID, Receipt: receipt})
			}
			unlock := f.lock(held...)
			f.brief(func(ctx context.Context) {
				changed, err := f.Repository.MarkDone(ctx, done, deleteRows)
				f.wantLocked(err, held...)
				f.must(changed == len(free), "%d rows changed, want %d", changed, len(free))
				changed, err = f.Repository.MarkDone(ctx, done, deleteRows)
				f.wantLocked(err, held...)
				f.must(changed == 0, "%d rows changed twice", changed)
			})
			unlock()
			f.must(f.done(deleteRows, newIDs(held)...) == len(held), "not done once it was free")
			for _, n := range slices.Concat(held, free) {
				f.must(f.done(deleteRows, n.ID) == 0, "changed twice")
			}
		}
	}
}

func lockedFailed(f *fixture) {
	if f.SingleWriter {
		return
	}
	for _, kind := range []core.FailureKind{core.FailRetry, core.FailDead, core.FailUnavailable} {
		held, free := f.lockedRows()
		all := slices.Concat(held, free)
		failures := make([]core.Failure, len(all))
		for i, n := range all {
			failures[i] = core.Failure{
				ClaimRef: hotRef(n), Kind: kind, Code: "c",
				Message: "m",
			}
		}
		unlock := f.lock(held...)
		f.brief(func(ctx context.Context) {
			changed, err := f.Repository.MarkFailed(ctx, nodeA, failures)
			f.wantLocked(err, held...)
			f.must(slices.Equal(changed, []bool{false, false, true, true, true, true}), "changed %v", changed)
		})
		unlock()
		changed := f.fail(nodeA, failures...)
		f.must(slices.Equal(changed, []bool{true, true, false, false, false, false}), "changed %v once they were free",
			changed)
		f.done(true, newIDs(all)...)
	}
}

func lockedLease(f *fixture) {
	if f.SingleWriter {
		return
	}
	held, free := f.lockedRows()
	var claims []core.ClaimRef
	for _, n := range slices.Concat(free, held) {
		claims = append(claims, hotRef(n))
	}
	unlock := f.lock(held...)
	f.brief(func(ctx context.Context) {
		renewed, err := f.Repository.Renew(ctx, nodeA, longLease, claims)
		f.wantLocked(err, held...)
		f.must(slices.Equal(renewed, []bool{true, true, true, true, false, false}), "renewed %v", renewed)
		changed, err := f.Repository.Release(ctx, nodeA, claims)
		f.wantLocked(err, held...)
		f.must(changed == len(free), "%d rows released, want %d", changed, len(free))
	})
	f.wantSet(f.claimAny(request(nodeB)), free...)
	unlock()
	f.must(f.release(nodeA, claims...) == len(held), "not released once they were free")
	f.wantSet(f.claimAny(request(nodeB)), held...)
}

// lockedClaim requires that a claim does not wait for rows that another transaction holds, and
// takes no later row of their keys.
func lockedClaim(f *fixture) {
	if f.SingleWriter {
		return
	}
	single := newRows(2, "topic", "")
	head, middle := newRows(3, "topic", "head"), newRows(3, "topic", "middle")
	f.commit(slices.Concat(single, head, middle)...)
	unlock := f.lock(single[0], head[0], middle[1])
	f.brief(func(ctx context.Context) {
		got, err := f.Repository.ClaimUnordered(ctx, request(nodeA))
		f.check(err)
		f.wantIDs(got, single[1])
		got, _, err = f.Repository.ClaimHeads(ctx, request(nodeA), core.KeyID{})
		f.check(err)
		f.wantIDs(got, middle[0])
		got, err = f.Repository.ClaimKey(ctx, request(nodeA), head[0].KeyID)
		f.check(err)
		f.wantIDs(got)
	})
	unlock()
	f.wantSet(f.claimAny(request(nodeB)), slices.Concat(single[:1], head)...)
}

func lockedOther(f *fixture) {
	if f.SingleWriter {
		return
	}
	ended, stale, free := newRow("a", ""), newRow("a", ""), newRow("b", "")
	f.commit(hot(ended, stale, free)...)
	f.must(f.done(false, ended.ID) == 1, "not done")
	unlock := f.lock(ended, stale)
	f.brief(func(ctx context.Context) {
		changed, err := f.Repository.MarkDone(ctx, []core.Done{{ID: ended.ID}, {ID: free.ID}}, false)
		f.check(err)
		f.must(changed == 1, "%d rows changed, want 1", changed)
		failed, err := f.Repository.MarkFailed(ctx, nodeA, []core.Failure{
			{ClaimRef: core.ClaimRef{ID: stale.ID, ClaimNo: newClaimNo()}, Kind: core.FailRetry},
			{ClaimRef: hotRef(ended), Kind: core.FailRetry},
		})
		f.check(err)
		f.must(slices.Equal(failed, []bool{false, false}), "changed %v", failed)
	})
	unlock()
}
