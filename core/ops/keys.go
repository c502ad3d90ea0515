package ops

import (
	"cmp"
	"context"
	"slices"

	"github.com/ormoutbox/ormoutbox/core"
)

// KeyQuery selects keys that a dead event blocks.
type KeyQuery struct {
	Topic    string // empty: all
	TenantID string // empty: all
	Limit    int    // default DefaultLimit, at most MaxLimit
}

// BlockedKey is a key that a dead event blocks.
type BlockedKey struct {
	Topic    string `json:"topic"`
	TenantID string `json:"tenant_id,omitempty"`
	Key      string `json:"key"`
	Head     Event  `json:"head"` // the dead event that has to go first
	Dead     int    `json:"dead"`
	Waiting  Count  `json:"waiting"` // open events of the key
}

// BlockedKeys are keys that dead events block.
type BlockedKeys struct {
	Keys []BlockedKey `json:"keys"` // the longest blocked first
	More bool         `json:"more"` // there may be more: raise KeyQuery.Limit, or name a topic
}

// BlockedKeys lists the keys that dead events block. Redrive or discard the Head of a key, and the
// key goes on. It reads MaxLook dead events at most. Under core.SkipDead nothing is blocked.
func (a *API) BlockedKeys(ctx context.Context, q KeyQuery) (all BlockedKeys, err error) {
	if q.Limit <= 0 {
		q.Limit = DefaultLimit
	}
	q.Limit = min(q.Limit, MaxLimit)
	all.Keys = []BlockedKey{}
	if a.outbox.DeadPolicy() == core.SkipDead {
		return all, nil
	}
	dead := Scan{
		Filter: Filter{Topic: q.Topic, TenantID: q.TenantID, Statuses: []Status{StatusDead}},
		Limit:  MaxLook, Look: MaxLook,
	}
	if err := dead.check(); err != nil {
		return all, err
	}
	found, err := a.store.ScanEvents(ctx, dead)
	if err != nil {
		return all, err
	}
	byKey := map[core.KeyID]*BlockedKey{}
	for i := range found.Events {
		e := &found.Events[i]
		if e.KeyID.IsZero() {
			continue
		}
		k := byKey[e.KeyID]
		if k == nil {
			k = &BlockedKey{Topic: e.Topic, TenantID: e.TenantID, Key: e.Key, Head: *e}
			byKey[e.KeyID] = k
		}
		if k.Dead++; e.KeySeq < k.Head.KeySeq {
			k.Head = *e
		}
	}
	for _, k := range byKey {
		all.Keys = append(all.Keys, *k)
	}
	slices.SortFunc(all.Keys, func(a, b BlockedKey) int {
		return cmp.Or(a.Head.CreatedAt.Compare(b.Head.CreatedAt), cmp.Compare(a.Head.ID.String(), b.Head.ID.String()))
	})
	all.More = found.Next != "" || len(all.Keys) > q.Limit
	all.Keys = all.Keys[:min(len(all.Keys), q.Limit)]
	for i := range all.Keys {
		if all.Keys[i].Waiting, err = a.behind(ctx, all.Keys[i].Head.KeyID); err != nil {
			return all, err
		}
	}
	return all, nil
}

// behind counts the open events of a key.
func (a *API) behind(ctx context.Context, key core.KeyID) (Count, error) {
	s, err := a.store.ScanEvents(ctx, Scan{
		Filter: Filter{Statuses: []Status{StatusNew, StatusRetry}}, KeyID: key, Limit: MaxCount, Look: MaxLook,
	})
	return Count{N: len(s.Events), More: s.Next != ""}, err
}
