package suite

import (
	"context"
	"errors"

	"github.com/ormoutbox/ormoutbox/core"
)

func contextCases() []repositoryCase {
	return []repositoryCase{
		{"that has ended stops every call before it changes anything", contextEnded},
		{"that ends while a producer waits for its key", contextEndsWaiting},
	}
}

func contextEnded(f *fixture) {
	open, leased, ended := newRow("topic", ""), hot(newRow("topic", "k"))[0], newRow("topic", "")
	f.commit(open, leased, ended)
	f.done(false, ended.ID)
	dead := f.addDead(newRow("topic", ""))
	audits := f.Audits(f)
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	own := hotRef(leased)
	calls := map[string]func() error{
		"ClaimUnordered": func() error { _, err := f.Repository.ClaimUnordered(ctx, request(nodeA)); return err },
		"ClaimHeads": func() error {
			_, _, err := f.Repository.ClaimHeads(ctx, request(nodeA), core.KeyID{})
			return err
		},
		"ClaimKey": func() error { _, err := f.Repository.ClaimKey(ctx, request(nodeA), leased.KeyID); return err },
		"MarkDone": func() error {
			_, err := f.Repository.MarkDone(ctx, []core.Done{{ID: open.ID}}, false)
			return err
		},
		"MarkFailed": func() error {
			_, err := f.Repository.MarkFailed(ctx, nodeA,
				[]core.Failure{{ClaimRef: own, Kind: core.FailDead, Code: "c"}})
			return err
		},
		"BeginSuspect": func() error {
			_, err := f.Repository.BeginSuspect(ctx, nodeA, 0, []core.ClaimRef{own})
			return err
		},
		"Renew": func() error {
			_, err := f.Repository.Renew(ctx, nodeA, longLease, []core.ClaimRef{own})
			return err
		},
		"Release":     func() error { _, err := f.Repository.Release(ctx, nodeA, []core.ClaimRef{own}); return err },
		"NextDue":     func() error { _, _, err := f.Repository.NextDue(ctx, request(nodeA)); return err },
		"Backlog":     func() error { _, err := f.Repository.Backlog(ctx, 10); return err },
		"ListDead":    func() error { _, err := f.Repository.ListDead(ctx, core.DeadQuery{}); return err },
		"Redrive":     func() error { _, err := f.Repository.Redrive(ctx, adminOf(dead.ID)); return err },
		"Discard":     func() error { _, err := f.Repository.Discard(ctx, adminOf(open.ID)); return err },
		"Cleanup":     func() error { _, _, err := f.Repository.Cleanup(ctx, cleanupOf(0, 10)); return err },
		"CollectKeys": func() error { _, _, err := f.Repository.CollectKeys(ctx, 0, core.KeyID{}, 10); return err },
		"ResetKeys":   func() error { _, err := f.Repository.ResetKeys(ctx, "a", "r"); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, context.Canceled) {
			f.Errorf("%s: %v, want context.Canceled", name, err)
		}
	}
	f.audited(audits)
	b := f.backlog(10)
	f.must(b.Pending == 2 && b.Dead == 1, "backlog %+v", b)
	f.must(f.renew(nodeA, longLease, own)[0], "the claim was touched")
	f.wantIDs(f.claimAny(request(nodeA)), open)

	tx := f.begin()
	_, err := f.Repository.Insert(ctx, tx, core.InsertRequest{
		Node: nodeA, ClaimNo: hotNo, Lease: longLease,
		Rows: newRows(1, "topic", "k"),
	})
	f.must(err != nil, "inserted after the end of the context")
	_ = tx.Rollback()
	f.must(f.backlog(10).Pending == 2, "inserted after the end of the context")
}

func contextEndsWaiting(f *fixture) {
	row := newRow("topic", "k")
	tx := f.begin()
	f.insertIn(tx, row)
	if !f.SingleWriter { // with a SingleWriter, Begin would wait
		ctx, cancel := context.WithTimeout(f.Context(), shortLease)
		defer cancel()
		other, err := f.Begin(f.Context())
		f.check(err)
		_, err = f.Repository.Insert(ctx, other, core.InsertRequest{
			Node: nodeA, ClaimNo: hotNo, Lease: longLease,
			Rows: newRows(1, "topic", "k"),
		})
		f.must(err != nil, "the second producer did not wait for the key")
		_ = other.Rollback()
	}
	f.check(tx.Commit())
	next := newRow("topic", "k")
	place := f.commit(next)[0]
	f.must(place.Prev == row.ID, "place %+v, want it after %s", place, row.ID)
}
