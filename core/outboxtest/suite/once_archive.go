package suite

import (
	"context"
	"errors"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// onceArchiveCases check a store that is a once.Archiver.
func onceArchiveCases() []onceCase {
	return []onceCase{
		{"keys are deleted after they were archived", onceArchive},
		{"a key that is taken while it is archived stays", onceArchiveTaken},
		{"a key that is completed while it is archived stays", onceArchiveCompleted},
	}
}

var errArchive = errors.New("suite: the archive is full")

// archiver returns the store if it is an archiver, else nil.
func (f *onceFixture) archiver() once.Archiver {
	a, ok := f.store.(once.Archiver)
	f.must(ok || f.ForgetsExpired, "a %T is no once.Archiver", f.store)
	return a
}

// expiring returns a request for a key that is forgotten soon.
func expiring(id string) once.Request {
	req := onceRequest(keyOf(id))
	req.Lease, req.TTL = 10*time.Millisecond, 10*time.Millisecond
	return req
}

func onceArchive(f *onceFixture) {
	a := f.archiver()
	if a == nil {
		return
	}
	f.complete(f.fresh(onceRequest(keyOf("young"))), once.Result{})
	f.fresh(onceRequest(keyOf("held")))
	req := expiring("done")
	req.Fingerprint = fingerprintA
	done, result := f.fresh(req), once.Result{Data: []byte{0, 219, 255}, ContentType: "text/plain", Meta: "m"}
	f.check(f.store.Complete(f.Context(), done, result, 10*time.Millisecond))
	free := f.fresh(expiring("free"))
	f.check(f.store.Release(f.Context(), free, 1))
	stale := f.fresh(expiring("stale"))
	f.pass(shortLease)

	n, err := a.Archive(f.Context(), 10, func(context.Context, []once.ArchivedKey) error { return errArchive })
	f.must(n == 0 && errors.Is(err, errArchive), "a broken archive: %d keys were deleted, %v", n, err)
	got := map[string]once.ArchivedKey{}
	for _, want := range []int{2, 1, 0} {
		n, err := a.Archive(f.Context(), 2, func(_ context.Context, keys []once.ArchivedKey) error {
			f.must(len(keys) == want, "the archive got %d keys, want %d", len(keys), want)
			for _, k := range keys {
				got[k.Key.ID] = k
			}
			return nil
		})
		f.check(err)
		f.must(n == want, "%d keys were deleted, want %d", n, want)
	}
	f.must(len(got) == 3, "archived %+v", got)
	for _, c := range []once.Claim{done, free, stale} {
		k := got[c.Key.ID]
		f.must(k.Key == c.Key && k.Owner == c.Owner && k.Fence == c.Fence && k.Attempts <= 1, "%+v of claim %+v", k, c)
		f.must(k.Done == (c == done) && k.DoneAt.IsZero() != k.Done, "%+v", k)
		f.must(!k.CreatedAt.IsZero() && k.ExpiresAt.After(k.CreatedAt) && time.Since(k.ExpiresAt) < time.Hour, "%+v", k)
	}
	f.wantResult(got["done"].Result, result)
	f.must(got["done"].Fingerprint == fingerprintA && got["free"].Fingerprint.IsZero(), "%+v", got)
	f.wantState(keyOf("young"), once.Done)
	f.wantState(keyOf("held"), once.InProgress)
	f.wantState(keyOf("done"), once.Fresh)
}

func onceArchiveTaken(f *onceFixture) {
	a := f.archiver()
	if a == nil {
		return
	}
	f.check(f.store.Complete(f.Context(), f.fresh(expiring("k")), once.Result{}, 10*time.Millisecond))
	f.pass(shortLease)
	var c once.Claim
	n, err := a.Archive(f.Context(), 10, func(context.Context, []once.ArchivedKey) error {
		c = f.fresh(onceRequest(keyOf("k")))
		return nil
	})
	f.check(err)
	f.must(n == 0, "%d keys were deleted", n)
	f.wantState(keyOf("k"), once.InProgress)
	f.complete(c, once.Result{Meta: "m"})
}

func onceArchiveCompleted(f *onceFixture) {
	a := f.archiver()
	if a == nil {
		return
	}
	c := f.fresh(expiring("k"))
	f.pass(shortLease)
	n, err := a.Archive(f.Context(), 10, func(context.Context, []once.ArchivedKey) error {
		f.complete(c, once.Result{Meta: "late"})
		return nil
	})
	f.check(err)
	f.must(n == 0, "%d keys were deleted", n)
	f.wantResult(f.acquire(onceRequest(keyOf("k"))).Result, once.Result{Meta: "late"})
}

// onceTxArchive takes a key in a transaction while the archive has it. The archive deletes the
// other key while the transaction is open: if it waited, the two could end in a deadlock.
func onceTxArchive(f *onceTxFixture) {
	a, ok := f.Store.(once.Archiver)
	if !ok {
		return
	}
	for _, id := range []string{"taken", "free"} {
		f.check(f.store.Complete(f.Context(), f.fresh(expiring(id)), once.Result{}, 10*time.Millisecond))
	}
	f.pass(shortLease)
	tx := f.begin()
	if tx.Dialect() == core.SQLite { // a transaction that writes keeps everybody waiting there
		return
	}
	var c once.Claim
	ctx, cancel := context.WithTimeout(f.Context(), 20*time.Second)
	defer cancel()
	n, err := a.Archive(ctx, 10, func(_ context.Context, keys []once.ArchivedKey) error {
		f.must(len(keys) == 2, "the archive got %+v", keys)
		c = f.freshTx(tx, onceRequest(keyOf("taken")))
		return nil
	})
	f.check(err)
	f.must(n == 1, "%d keys were deleted, want that which nobody has taken", n)
	f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Meta: "m"}))
	f.check(tx.Commit())
	f.wantState(keyOf("free"), once.Fresh)
	f.wantResult(f.acquire(onceRequest(keyOf("taken"))).Result, once.Result{Meta: "m"})
}
