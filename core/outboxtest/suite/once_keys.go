package suite

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ormoutbox/ormoutbox/core/once"
)

// hostileKeys are different keys that a careless store treats as the same.
func hostileKeys() []once.Key {
	var keys []once.Key
	for _, id := range []string{
		"a", "A", "a ", "a  ", " a", "ä", "a\u0308", "Ä", "ae", "ß", "ss", "i", "ı", "İ", "\u00a0a", "a\u200b", "ａ",
		"😀", "😁", "漢", "漢字", "%", "%25", "%7C", "_", "*", "|", "a|", "|a", "a|b", "/", "a/b", "a%2Fb", ":", "{a}", "0",
		"00", "0.0", "1e0", "null", "NULL", "'", "''", `"`, `\`, `\\`, `\'`,
		"'; DROP TABLE idempotency_key; --", "$1", "?", "a?", "true",
		strings.Repeat("x", once.MaxID), strings.Repeat("x", once.MaxID-1), strings.Repeat("x", once.MaxID-1) + "y",
		strings.Repeat("漢", once.MaxID/3),
	} {
		keys = append(keys, once.Key{Scope: "s", ID: id})
	}
	long := strings.Repeat("y", once.MaxScope)
	return append(keys,
		once.Key{Scope: "S", ID: "a"}, once.Key{Scope: "s ", ID: "a"}, once.Key{Scope: "s", Tenant: "a", ID: "a"},
		once.Key{Scope: "s", Tenant: "A", ID: "a"}, once.Key{Scope: "s", Tenant: "a ", ID: "a"},
		once.Key{Scope: "s|", ID: "a"}, once.Key{Scope: "s", Tenant: "|", ID: "a"}, once.Key{Scope: "s|a", ID: "a"},
		once.Key{Scope: "sa", ID: "a"}, once.Key{Scope: "s", ID: "aa"}, once.Key{Scope: "s|a|a", ID: "a"},
		once.Key{Scope: "s", Tenant: "a|a", ID: "a"}, once.Key{Scope: "s", Tenant: "a", ID: "a|a"},
		once.Key{Scope: "s%7C", ID: "a"}, once.Key{Scope: once.Scope("s", "a"), ID: "a"},
		once.Key{Scope: once.Scope("s/a"), ID: "a"}, once.Key{
			Scope: long, Tenant: strings.Repeat("z", once.MaxTenant),
			ID: strings.Repeat("x", once.MaxID),
		},
	)
}

func onceKeyCases() []onceCase {
	return []onceCase{
		{"hostile keys are kept apart", func(f *onceFixture) {
			keys := hostileKeys()
			for i, k := range keys {
				c := f.fresh(onceRequest(k))
				f.complete(c, once.Result{Data: fmt.Append(nil, i)})
			}
			for i, k := range keys {
				got := f.acquire(onceRequest(k))
				if got.State != once.Done || string(got.Result.Data) != strconv.Itoa(i) {
					f.Errorf("%q is %s with result %q, want done with %d", k, got.State, got.Result.Data, i)
				}
			}
		}},
	}
}

func onceConcurrencyCases() []onceCase {
	// among asks for the key with n goroutines at once and counts the states in the answers.
	among := func(f *onceFixture, n int, key once.Key) map[once.State]int {
		f.Helper()
		var mu sync.Mutex
		states := map[once.State]int{}
		var wg sync.WaitGroup
		for range n {
			req := onceRequest(key)
			wg.Go(func() {
				got, err := f.store.Acquire(f.Context(), req)
				if err != nil {
					f.Errorf("acquire: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				states[got.State]++
			})
		}
		wg.Wait()
		return states
	}
	return []onceCase{
		{"one of 64 is fresh", func(f *onceFixture) {
			if s := among(f, 64, keyOf("k")); s[once.Fresh] != 1 || s[once.InProgress] != 63 {
				f.Errorf("got %v", s)
			}
		}},
		{"one of 64 takes a stale key over", func(f *onceFixture) {
			f.stale(keyOf("k"), once.Fingerprint{})
			if s := among(f, 64, keyOf("k")); s[once.Fresh] != 1 || s[once.InProgress] != 63 {
				f.Errorf("got %v", s)
			}
		}},
		{"holders come one after the other, with rising fences", func(f *onceFixture) {
			var holders, turns atomic.Int32
			var last atomic.Int64
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for turns.Load() < 40 && !f.Failed() {
						req := onceRequest(keyOf("k"))
						got, err := f.store.Acquire(f.Context(), req)
						if err != nil {
							f.Errorf("acquire: %v", err)
							return
						}
						if got.State != once.Fresh {
							continue
						}
						if holders.Add(1) != 1 {
							f.Error("two hold the key")
						}
						if before := last.Swap(got.Fence); got.Fence <= before {
							f.Errorf("fence %d after %d", got.Fence, before)
						}
						turns.Add(1)
						holders.Add(-1)
						if err := f.store.Release(f.Context(),
							once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}, 1); err != nil {
							f.Errorf("release: %v", err)
						}
					}
				})
			}
			wg.Wait()
		}},
		{"many keys at once", func(f *onceFixture) {
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := range 20 {
						req := onceRequest(keyOf(strconv.Itoa((g*7 + i) % 40)))
						got, err := f.store.Acquire(f.Context(), req)
						if err == nil && got.State == once.Fresh {
							err = f.store.Complete(f.Context(),
								once.Claim{Key: req.Key, Owner: req.Owner, Fence: got.Fence}, once.Result{}, longLease)
						}
						if err != nil {
							f.Errorf("%v", err)
						}
					}
				})
			}
			wg.Wait()
			for i := range 40 {
				if s := f.state(keyOf(strconv.Itoa(i))); s != once.Done && s != once.Fresh {
					f.Errorf("key %d is %s", i, s)
				}
			}
		}},
	}
}
