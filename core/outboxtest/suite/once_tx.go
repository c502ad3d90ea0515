package suite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
)

// OnceTxHarness gives TestOnceTxStore access to an implementation of once.TxStore.
type OnceTxHarness struct {
	// New returns an empty store. It is called once for each case; cases run in parallel.
	New func(t *testing.T) OnceTxBackend
}

// OnceTxBackend is one empty store with its transactions. All fields are required.
type OnceTxBackend struct {
	// Store is the lease form on the same keys.
	Store   once.Store
	TxStore once.TxStore
	// Begin opens a transaction. Its Exec understands SAVEPOINT and ROLLBACK TO SAVEPOINT.
	Begin func(ctx context.Context) (Transaction, error)
}

type onceTxCase struct {
	name string
	run  func(f *onceTxFixture)
}

// TestOnceTxStore is the conformance suite of once.TxStore. It checks the promises in the comments
// of that interface, from outside the store.
func TestOnceTxStore(t *testing.T, h OnceTxHarness) {
	for _, group := range []struct {
		name  string
		cases []onceTxCase
	}{
		{"Outcome", onceTxOutcomeCases()},
		{"Lease", onceTxLeaseCases()},
		{"Concurrency", onceTxConcurrencyCases()},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					b := h.New(t)
					c.run(&onceTxFixture{onceFixture: onceFixture{T: t, store: b.Store}, OnceTxBackend: b})
				})
			}
		})
	}
}

type onceTxFixture struct {
	onceFixture
	OnceTxBackend
}

func (f *onceTxFixture) begin() Transaction {
	f.Helper()
	tx, err := f.Begin(f.Context())
	f.check(err)
	f.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (f *onceTxFixture) exec(tx core.Tx, query string) {
	f.Helper()
	_, err := tx.Exec(f.Context(), query)
	f.check(err)
}

func (f *onceTxFixture) acquireTx(tx core.Tx, req once.Request) once.Acquired {
	f.Helper()
	got, err := f.TxStore.AcquireTx(f.Context(), tx, req)
	f.check(err)
	return got
}

// freshTx acquires a key that must be free.
func (f *onceTxFixture) freshTx(tx core.Tx, req once.Request) once.Claim {
	f.Helper()
	got := f.acquireTx(tx, req)
	f.must(got.State == once.Fresh, "%s is %s, want fresh", req.Key, got.State)
	return once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}
}

func onceTxOutcomeCases() []onceTxCase {
	return []onceTxCase{
		{"a commit makes it done, with its result", func(f *onceTxFixture) {
			want := once.Result{Data: []byte("result \x00\xff"), ContentType: "text/plain", Meta: "m"}
			tx := f.begin()
			c := f.freshTx(tx, onceRequest(keyOf("k")))
			f.check(f.TxStore.CompleteTx(f.Context(), tx, c, want))
			f.freshTx(tx, onceRequest(keyOf("without a result")))
			f.check(tx.Commit())

			tx = f.begin()
			got := f.acquireTx(tx, onceRequest(keyOf("k")))
			f.must(got.State == once.Done, "it is %s", got.State)
			f.wantResult(got.Result, want)
			got = f.acquireTx(tx, onceRequest(keyOf("without a result")))
			f.must(got.State == once.Done, "without a result it is %s", got.State)
			f.wantResult(got.Result, once.Result{})
			f.check(tx.Rollback())
			got = f.acquire(onceRequest(keyOf("k")))
			f.must(got.State == once.Done, "in the lease form it is %s", got.State)
			f.wantResult(got.Result, want)
		}},
		{"a rollback leaves no trace", func(f *onceTxFixture) {
			tx := f.begin()
			req := onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintA
			c := f.freshTx(tx, req)
			f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("x")}))
			f.check(tx.Rollback())
			tx = f.begin()
			req = onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintB
			got := f.acquireTx(tx, req)
			f.must(got.State == once.Fresh && got.Fence == c.Fence && got.Attempt <= 1 && !got.TakenOver, "got %+v",
				got)
			f.check(tx.Rollback())
		}},
		{"a transaction sees its own keys", func(f *onceTxFixture) {
			tx := f.begin()
			c := f.freshTx(tx, onceRequest(keyOf("k")))
			f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("x")}))
			got := f.acquireTx(tx, onceRequest(keyOf("k")))
			f.must(got.State == once.Done, "it is %s", got.State)
			f.wantResult(got.Result, once.Result{Data: []byte("x")})
			f.check(tx.Commit())
		}},
		{"a rollback to a savepoint erases it", func(f *onceTxFixture) {
			tx := f.begin()
			f.freshTx(tx, onceRequest(keyOf("before")))
			f.exec(tx, "SAVEPOINT s")
			c := f.freshTx(tx, onceRequest(keyOf("within")))
			f.exec(tx, "ROLLBACK TO SAVEPOINT s")
			for name, err := range map[string]error{
				"CompleteTx": f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("x")}),
				"ReleaseTx":  f.TxStore.ReleaseTx(f.Context(), tx, c),
			} {
				if !errors.Is(err, once.ErrLeaseLost) {
					f.Errorf("%s: %v", name, err)
				}
			}
			f.freshTx(tx, onceRequest(keyOf("within")))
			f.check(tx.Commit())
			f.wantState(keyOf("before"), once.Done)
			f.wantState(keyOf("within"), once.Done)
		}},
		{"a fingerprint is compared", func(f *onceTxFixture) {
			tx := f.begin()
			req := onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintA
			f.freshTx(tx, req)
			f.check(tx.Commit())
			tx = f.begin()
			for want, fp := range map[once.State]once.Fingerprint{
				once.Mismatch: fingerprintB,
				once.Done:     fingerprintA,
			} {
				req := onceRequest(keyOf("k"))
				req.Fingerprint = fp
				if got := f.acquireTx(tx, req); got.State != want {
					f.Errorf("it is %s, want %s", got.State, want)
				}
			}
			f.check(tx.Commit())
		}},
		{"a released key is free after the commit", func(f *onceTxFixture) {
			tx := f.begin()
			c := f.freshTx(tx, onceRequest(keyOf("k")))
			f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("x")}))
			f.check(f.TxStore.ReleaseTx(f.Context(), tx, c))
			f.check(tx.Commit())
			tx = f.begin()
			got := f.acquireTx(tx, onceRequest(keyOf("k")))
			f.must(got.State == once.Fresh && got.Fence > c.Fence && got.Attempt != 1, "got %+v", got)
			f.check(tx.Commit())
			f.wantResult(f.acquire(onceRequest(keyOf("k"))).Result, once.Result{})
		}},
		{"a key is forgotten after its time to live", func(f *onceTxFixture) {
			tx := f.begin()
			req := onceRequest(keyOf("k"))
			req.TTL = shortLease
			c := f.freshTx(tx, req)
			f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("old")}))
			f.check(tx.Commit())
			f.pass(shortLease)
			tx = f.begin()
			got := f.acquireTx(tx, onceRequest(keyOf("k")))
			f.must(got.State == once.Fresh && got.Attempt <= 1, "got %+v", got)
			f.check(tx.Commit())
			f.wantResult(f.acquire(onceRequest(keyOf("k"))).Result, once.Result{})
		}},
		{"hostile keys are kept apart", func(f *onceTxFixture) {
			tx := f.begin()
			for _, k := range hostileKeys() {
				f.freshTx(tx, onceRequest(k))
			}
			f.check(tx.Commit())
			for _, k := range hostileKeys() {
				f.wantState(k, once.Done)
			}
		}},
		{"bad requests are refused before anything is written", func(f *onceTxFixture) {
			tx := f.begin()
			for name, tt := range map[string]struct {
				change func(*once.Request)
				want   error
			}{
				"no id":           {func(r *once.Request) { r.Key.ID = "" }, once.ErrInvalidKey},
				"NUL":             {func(r *once.Request) { r.Key.ID = "\x00" }, once.ErrInvalidKey},
				"no owner":        {func(r *once.Request) { r.Owner = "" }, once.ErrInvalidRequest},
				"no time to live": {func(r *once.Request) { r.TTL = 0 }, once.ErrInvalidRequest},
			} {
				req := onceRequest(keyOf("k"))
				tt.change(&req)
				if got, err := f.TxStore.AcquireTx(f.Context(), tx, req); !errors.Is(err, tt.want) || got.State != 0 {
					f.Errorf("%s: %+v, %v", name, got, err)
				}
			}
			req := onceRequest(keyOf("k"))
			req.Lease = 0 // the transaction form ignores it
			f.freshTx(tx, req)
			f.check(tx.Commit())
		}},
		{"without an open transaction nothing is written", func(f *onceTxFixture) {
			ended := f.begin()
			f.check(ended.Commit())
			for name, tx := range map[string]core.Tx{"nil": nil, "ended": ended} {
				if _, err := f.TxStore.AcquireTx(f.Context(), tx, onceRequest(keyOf("k"))); err == nil {
					f.Errorf("%s: no error", name)
				} else if tx == nil && !errors.Is(err, core.ErrNoTransaction) {
					f.Errorf("%s: %v", name, err)
				}
			}
			f.wantState(keyOf("k"), once.Fresh)
		}},
	}
}

func onceTxLeaseCases() []onceTxCase {
	return []onceTxCase{
		{"a key that is held is in progress", func(f *onceTxFixture) {
			f.fresh(onceRequest(keyOf("k")))
			tx := f.begin()
			got := f.acquireTx(tx, onceRequest(keyOf("k")))
			f.must(got.State == once.InProgress && got.RetryAfter > 0 && got.RetryAfter <= longLease, "got %+v", got)
			f.check(tx.Commit())
		}},
		{"a stale lease is taken over and its holder fenced", func(f *onceTxFixture) {
			old := f.stale(keyOf("k"), once.Fingerprint{})
			tx := f.begin()
			refused := onceRequest(keyOf("k"))
			refused.RefuseStale = true
			if got := f.acquireTx(tx, refused); got.State != once.Abandoned {
				f.Errorf("refused, it is %s", got.State)
			}
			got := f.acquireTx(tx, onceRequest(keyOf("k")))
			f.must(got.State == once.Fresh && got.TakenOver && got.Fence > old.Fence, "got %+v", got)
			f.check(tx.Commit())
			if err := f.store.Complete(f.Context(), old, once.Result{}, time.Hour); !errors.Is(err,
				once.ErrAlreadyDone) {
				f.Errorf("Complete by the old holder: %v", err)
			}
			if err := f.store.Extend(f.Context(), old, longLease); !errors.Is(err, once.ErrLeaseLost) {
				f.Errorf("Extend by the old holder: %v", err)
			}
			f.wantState(keyOf("k"), once.Done)
		}},
		{"a takeover that is rolled back took nothing", func(f *onceTxFixture) {
			old := f.stale(keyOf("k"), once.Fingerprint{})
			tx := f.begin()
			f.freshTx(tx, onceRequest(keyOf("k")))
			f.check(tx.Rollback())
			f.check(f.store.Complete(f.Context(), old, once.Result{}, time.Hour))
		}},
		{"the lease form waits for a transaction", func(f *onceTxFixture) {
			tx := f.begin()
			c := f.freshTx(tx, onceRequest(keyOf("k")))
			f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("x")}))
			answer := make(chan once.Acquired, 1)
			go func() {
				got, err := f.store.Acquire(f.Context(), onceRequest(keyOf("k")))
				if err != nil {
					f.Errorf("acquire: %v", err)
				}
				answer <- got
			}()
			f.check(tx.Commit())
			got := <-answer
			f.must(got.State == once.Done, "it is %s", got.State)
			f.wantResult(got.Result, once.Result{Data: []byte("x")})
		}},
	}
}

func onceTxConcurrencyCases() []onceTxCase {
	// run runs one transaction, and repeats it if it failed only because of other transactions. It
	// reports whether its key was fresh.
	run := func(f *onceTxFixture, key once.Key, fresh func() (commit bool)) (committed bool) {
		for f.Context().Err() == nil {
			tx, err := f.Begin(f.Context())
			if err != nil {
				if sqltx.Retryable(err) {
					continue
				}
				f.Errorf("begin: %v", err)
				return false
			}
			got, err := f.TxStore.AcquireTx(f.Context(), tx, onceRequest(key))
			commit := err == nil
			if err == nil && got.State == once.Fresh {
				commit = fresh()
			} else if err == nil && got.State != once.Done {
				f.Errorf("it is %s", got.State)
			}
			if commit {
				if err = tx.Commit(); err == nil {
					return got.State == once.Fresh
				}
			}
			_ = tx.Rollback()
			if err != nil && !sqltx.Retryable(err) {
				f.Errorf("%v", err)
				return false
			}
		}
		return false
	}
	return []onceTxCase{
		{"an archive does not wait for a transaction", onceTxArchive},
		{"of 16 duplicates one commits", func(f *onceTxFixture) {
			var commits atomic.Int32
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					if run(f, keyOf("k"), func() bool { return true }) {
						commits.Add(1)
					}
				})
			}
			wg.Wait()
			f.must(commits.Load() == 1, "%d commits", commits.Load())
		}},
		{"of 16 duplicates one commits after some have rolled back", func(f *onceTxFixture) {
			var commits, rollbacks atomic.Int32
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					if run(f, keyOf("k"), func() bool { return rollbacks.Add(1) > 5 }) {
						commits.Add(1)
					}
				})
			}
			wg.Wait()
			f.must(commits.Load() == 1, "%d commits", commits.Load())
		}},
		{"a duplicate sees what it has waited for", func(f *onceTxFixture) {
			for _, commit := range []bool{true, false} {
				key := keyOf(map[bool]string{true: "committed", false: "rolled back"}[commit])
				tx := f.begin()
				c := f.freshTx(tx, onceRequest(key))
				f.check(f.TxStore.CompleteTx(f.Context(), tx, c, once.Result{Data: []byte("x")}))
				fresh := make(chan bool, 1)
				go func() { fresh <- run(f, key, func() bool { return true }) }()
				if commit {
					f.check(tx.Commit())
				} else {
					f.check(tx.Rollback())
				}
				if <-fresh == commit {
					f.Errorf("%s: fresh is %t", key, commit)
				}
			}
		}},
	}
}
