package suite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core/once"
)

func onceClaimCases() []onceCase {
	return []onceCase{
		{"a released key is free at once", func(f *onceFixture) {
			first := f.fresh(onceRequest(keyOf("k")))
			f.check(f.store.Release(f.Context(), first, 1))
			f.check(f.store.Release(f.Context(), first, 1)) // the answer was lost
			for name, err := range map[string]error{
				"Extend":   f.store.Extend(f.Context(), first, longLease),
				"Complete": f.store.Complete(f.Context(), first, once.Result{}, time.Hour),
			} {
				if !errors.Is(err, once.ErrLeaseLost) {
					f.Errorf("%s: %v", name, err)
				}
			}
			got := f.acquire(onceRequest(first.Key))
			f.must(got.State == once.Fresh && !got.TakenOver && got.Attempt != 1, "got %+v", got)
			f.must(got.Fence > first.Fence, "fence %d after %d", got.Fence, first.Fence)
		}},
		{"a free key takes any fingerprint", func(f *onceFixture) {
			req := onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintA
			f.check(f.store.Release(f.Context(), f.fresh(req), 1))
			req = onceRequest(keyOf("k"))
			req.Fingerprint = fingerprintB
			f.complete(f.fresh(req), once.Result{})
			req.Fingerprint = fingerprintA
			got := f.acquire(req)
			f.must(got.State == once.Mismatch, "it is %s: the old fingerprint is still there", got.State)
		}},
		{"completing is idempotent", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.complete(c, once.Result{Data: []byte("first"), Meta: "m"})
			f.complete(c, once.Result{Data: []byte("second"), Meta: "n"})
			f.wantResult(f.acquire(onceRequest(c.Key)).Result, once.Result{Data: []byte("first"), Meta: "m"})
		}},
		{"a done key stays done", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			f.complete(c, once.Result{})
			if err := f.store.Release(f.Context(), c, 1); !errors.Is(err, once.ErrAlreadyDone) {
				f.Errorf("Release: %v", err)
			}
			if err := f.store.Extend(f.Context(), c, longLease); !errors.Is(err, once.ErrLeaseLost) {
				f.Errorf("Extend: %v", err)
			}
			f.wantState(c.Key, once.Done)
		}},
		{"a claim is key, owner and fence", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			owner, fence, unknown := c, c, c
			owner.Owner += "x"
			fence.Fence++
			unknown.Key.ID = "nobody asked for this one"
			for name, wrong := range map[string]once.Claim{"owner": owner, "fence": fence} {
				f.wantErrors(wrong, once.ErrLeaseLost, name)
			}
			if err := f.store.Release(f.Context(), unknown, 1); !errors.Is(err, once.ErrLeaseLost) {
				f.Errorf("Release of an unknown key: %v", err)
			}
			f.wantState(c.Key, once.InProgress)
			f.complete(c, once.Result{})
			for name, wrong := range map[string]once.Claim{"owner": owner, "fence": fence} {
				if err := f.store.Complete(f.Context(), wrong, once.Result{}, time.Hour); !errors.Is(err,
					once.ErrAlreadyDone) {
					f.Errorf("Complete of a done key with another %s: %v", name, err)
				}
			}
		}},
		{"an owner that holds the key again cannot use its earlier claim", func(f *onceFixture) {
			req := onceRequest(keyOf("k"))
			earlier := f.fresh(req)
			f.check(f.store.Release(f.Context(), earlier, 1))
			f.fresh(req)
			f.wantErrors(earlier, once.ErrLeaseLost, "an earlier fence")
			f.wantState(req.Key, once.InProgress)
		}},
		{"durations out of range are refused", func(f *onceFixture) {
			c := f.fresh(onceRequest(keyOf("k")))
			for name, err := range map[string]error{
				"Extend by nothing":        f.store.Extend(f.Context(), c, 0),
				"Extend for ever":          f.store.Extend(f.Context(), c, once.MaxLease+1),
				"Complete without TTL":     f.store.Complete(f.Context(), c, once.Result{}, 0),
				"Complete with a long TTL": f.store.Complete(f.Context(), c, once.Result{}, once.MaxTTL+1),
			} {
				if !errors.Is(err, once.ErrInvalidRequest) {
					f.Errorf("%s: %v", name, err)
				}
			}
			f.wantState(c.Key, once.InProgress)
		}},
	}
}

func onceResultCases() []onceCase {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	results := map[string]once.Result{
		"nothing":        {},
		"an empty slice": {Data: []byte{}},
		"every byte":     {Data: every},
		"blanks":         {Data: []byte("  x  "), ContentType: " x ", Meta: " x "},
		"texts":          {ContentType: "application/json; charset=utf-8", Meta: "{\"ä\": \"漢字 😀\", \"q\": \"'\\\\\"}"},
		"64 KiB":         {Data: bytes.Repeat(every, 256)},
		"1 MiB":          {Data: bytes.Repeat(every, 4096)},
		"long meta":      {Meta: strings.Repeat("m", once.MaxMeta)},
	}
	cases := make([]onceCase, 0, len(results)+1)
	for name, want := range results {
		cases = append(cases, onceCase{name, func(f *onceFixture) {
			f.complete(f.fresh(onceRequest(keyOf("k"))), want)
			got := f.acquire(onceRequest(keyOf("k")))
			f.must(got.State == once.Done, "it is %s", got.State)
			f.wantResult(got.Result, want)
		}})
	}
	return append(cases, onceCase{"a result is the store's own", func(f *onceFixture) {
		data := []byte("abc")
		f.complete(f.fresh(onceRequest(keyOf("k"))), once.Result{Data: data})
		data[0] = 'x'
		got := f.acquire(onceRequest(keyOf("k"))).Result
		f.wantResult(got, once.Result{Data: []byte("abc")})
		got.Data[0] = 'y'
		f.wantResult(f.acquire(onceRequest(keyOf("k"))).Result, once.Result{Data: []byte("abc")})
	}})
}

func onceExpiryCases() []onceCase {
	return []onceCase{
		{"a done key is forgotten after its time to live", func(f *onceFixture) {
			const ttl = 3 * time.Second
			var key once.Key
			for n := 0; ; n++ {
				key = keyOf(fmt.Sprintf("k%d", n))
				req := onceRequest(key)
				req.Fingerprint = fingerprintA
				begin := time.Now()
				f.check(f.store.Complete(f.Context(), f.fresh(req), once.Result{Data: []byte("old")}, ttl))
				if got := f.state(key); got == once.Done {
					break
				} else if time.Since(begin) < ttl { // not on a slow machine, where that time may be over
					f.Fatalf("%s is %s, want %s", key, got, once.Done)
				}
			}
			req := onceRequest(key)
			req.Fingerprint = fingerprintB
			var got once.Acquired
			eventually(f, "the end of the time to live", func() bool {
				got = f.acquire(req)
				return got.State != once.Mismatch
			})
			f.must(got.State == once.Fresh && !got.TakenOver && got.Attempt <= 1, "got %+v", got)
			f.complete(once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}, once.Result{})
			f.wantResult(f.acquire(req).Result, once.Result{}) // nothing of the old result is left
		}},
		{"cleanup deletes what is forgotten, in chunks, and nothing else", func(f *onceFixture) {
			if f.ForgetsExpired {
				return
			}
			f.complete(f.fresh(onceRequest(keyOf("done"))), once.Result{})
			f.check(f.store.Release(f.Context(), f.fresh(onceRequest(keyOf("free"))), 1))
			f.fresh(onceRequest(keyOf("held")))
			short := func(id string) once.Request {
				req := onceRequest(keyOf(id))
				req.Lease, req.TTL = 10*time.Millisecond, 10*time.Millisecond
				return req
			}
			for i := range 3 {
				f.check(f.store.Complete(f.Context(), f.fresh(onceRequest(keyOf(fmt.Sprintf("old done %d", i)))),
					once.Result{}, 10*time.Millisecond))
			}
			f.check(f.store.Release(f.Context(), f.fresh(short("old free")), 1))
			f.fresh(short("old stale"))
			kept := short("kept alive") // its time to live is over, and its lease has not ended
			f.check(f.store.Extend(f.Context(), f.fresh(kept), longLease))
			f.pass(shortLease)

			var deleted []int
			eventually(f, "the end of cleanup", func() bool {
				n, err := f.store.Cleanup(f.Context(), 2)
				f.check(err)
				f.must(n <= 2, "%d keys in a chunk of 2", n)
				deleted = append(deleted, n)
				total := 0
				for _, n := range deleted {
					total += n
				}
				f.must(total <= 5, "deleted %v", deleted)
				return total == 5
			})
			f.wantState(keyOf("done"), once.Done)
			f.wantState(keyOf("held"), once.InProgress)
			f.wantState(kept.Key, once.InProgress)
			if got := f.acquire(onceRequest(keyOf("free"))); got.State != once.Fresh || got.Attempt == 1 {
				f.Errorf("the free key: %+v", got)
			}
			if n, err := f.store.Cleanup(f.Context(), 0); n != 0 || err != nil {
				f.Errorf("a chunk of none: %d, %v", n, err)
			}
		}},
	}
}
