package sqloutbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func checkClaim(req core.ClaimRequest) error {
	switch {
	case req.Node == "":
		return errors.New("sqloutbox: claim: Node is empty")
	case req.ClaimNo <= 0:
		return fmt.Errorf("sqloutbox: claim: ClaimNo %d must be greater than 0", req.ClaimNo)
	case req.Lease <= 0 || req.MaxLease < req.Lease:
		return fmt.Errorf("sqloutbox: claim: Lease %s and MaxLease %s must be 0 < Lease <= MaxLease", req.Lease,
			req.MaxLease)
	}
	return nil
}

// ClaimUnordered implements core.Repository. First every topic gets an equal part of the limit.
// Topics with more rows share the rest.
func (r *Repository) ClaimUnordered(ctx context.Context, req core.ClaimRequest) ([]core.Claimed, error) {
	if err := checkClaim(req); err != nil {
		return nil, err
	}
	f := newFilter(req)
	var all []core.Claimed
	for req.Limit > 0 && !f.nothing() {
		rows, topics, err := r.database.claimTopics(ctx, req, f, len(all) == 0)
		if err != nil {
			if len(all) > 0 { // these rows are claimed already: return them
				return all, nil
			}
			return nil, err
		}
		if all == nil { // no copy
			all = rows
		} else {
			all = append(all, rows...)
		}
		count := map[string]int{}
		for i := range rows {
			count[rows[i].Event.Topic]++
			req.MaxBytes -= int64(len(rows[i].Event.Payload))
		}
		req.Limit -= len(rows)
		part := quota(req.Limit+len(rows), topics)
		f = filter{only: []string{}}
		for t, n := range count {
			if n >= part && topics > 1 {
				f.only = append(f.only, t)
			}
		}
		if req.MaxBytes <= 0 {
			break
		}
	}
	return all, nil
}

// quota is the equal part of a limit, rounded up.
func quota(limit, parts int) int {
	if parts <= 1 {
		return limit
	}
	return (limit + parts - 1) / parts
}

// ClaimHeads implements core.Repository. If there are more keys than the limit allows whole runs,
// each key gets a shorter run, because different keys can be published at once.
func (r *Repository) ClaimHeads(ctx context.Context, req core.ClaimRequest,
	after core.KeyID,
) (rows []core.Claimed, next core.KeyID, err error) {
	if err := checkClaim(req); err != nil {
		return nil, core.KeyID{}, err
	}
	f := newFilter(req)
	if f.nothing() || req.Limit <= 0 || req.Keys <= 0 {
		return nil, core.KeyID{}, nil
	}
	rows, next, err = r.pastDead(ctx, req, f, after, func() ([]core.Claimed, core.KeyID, bool, error) {
		return r.database.claimHeads(ctx, req, f, after)
	})
	if err != nil {
		return nil, core.KeyID{}, err
	}
	sortByLane(rows)
	return rows, next, nil
}

// ClaimKey implements core.Repository.
func (r *Repository) ClaimKey(ctx context.Context, req core.ClaimRequest,
	lane core.KeyID,
) (rows []core.Claimed, err error) {
	if err := checkClaim(req); err != nil {
		return nil, err
	}
	f := newFilter(req)
	if req.Limit <= 0 || !f.lane(lane) {
		return nil, nil
	}
	one := req
	one.Keys = 1
	rows, _, err = r.pastDead(ctx, one, f, keyBefore(lane), func() ([]core.Claimed, core.KeyID, bool, error) {
		rows, dead, err := r.database.claimLane(ctx, req, f, lane)
		return rows, core.KeyID{}, dead, err
	})
	if err != nil {
		return nil, err
	}
	sortByLane(rows)
	return rows, nil
}

// NextDue implements core.Repository. It looks at the first 1,000 unordered rows of each topic and
// at the heads of the first req.Keys keys.
func (r *Repository) NextDue(ctx context.Context, req core.ClaimRequest) (time.Duration, bool, error) {
	f := newFilter(req)
	if f.nothing() {
		return 0, false, nil
	}
	return r.database.nextDue(ctx, req, f)
}

// nextDueRowsPerTopic bounds NextDue.
const nextDueRowsPerTopic = 1000

// sortByLane sorts places of rows, because rows are large.
func sortByLane(rows []core.Claimed) {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, k int) int {
		a, b := &rows[i], &rows[k]
		if lanes := bytes.Compare(a.KeyID[:], b.KeyID[:]); lanes != 0 {
			return lanes
		}
		return cmp.Or(cmp.Compare(a.KeySeq, b.KeySeq), bytes.Compare(a.ID[:], b.ID[:]))
	})
	arrange(rows, order)
}

// filter selects the topics of a claim. only is nil for all topics, else the topics without the
// stopped ones. except is empty if only is set.
type filter struct {
	only, except []string
	// topics of core.ServedTopicPrefix that are wanted; no others of that prefix are wanted if only
	// is nil
	served []string
}

func newFilter(req core.ClaimRequest) filter {
	if req.Only == nil {
		return filter{except: req.Except, served: req.Served}
	}
	only := make([]string, 0, len(req.Only))
	for _, t := range req.Only {
		if !slices.Contains(req.Except, t) && !slices.Contains(only, t) {
			only = append(only, t)
		}
	}
	return filter{only: only}
}

// wants reports whether rows of the topic are wanted, unless their tenant is paused.
func (f filter) wants(topic string) bool {
	return core.ClaimRequest{Only: f.only, Except: f.except, Served: f.served}.Wants(topic, "")
}

// nothing reports whether no topic is wanted.
func (f filter) nothing() bool { return f.only != nil && len(f.only) == 0 }

// key is equal for equal filters.
func (f filter) key() string {
	if f.only != nil {
		return textArray(f.only)
	}
	return textArray(f.except) + textArray(f.served)
}

// lane reports whether the lane can be of a wanted topic.
func (f filter) lane(l core.KeyID) bool {
	has := func(topics []string) bool {
		return slices.ContainsFunc(topics, func(t string) bool { return core.KeyIDPrefix(t) == [4]byte(l[:4]) })
	}
	return (f.only == nil || has(f.only)) && !has(f.except)
}

// prefixes returns the sorted lane prefixes of topics in hexadecimal.
func prefixes(topics []string) []string {
	all := make([]string, 0, len(topics))
	for _, t := range topics {
		p := core.KeyIDPrefix(t)
		all = append(all, hex.EncodeToString(p[:]))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// onlyPrefixes returns the prefixes of only, or NULL for all topics.
func (f filter) onlyPrefixes() any {
	if f.only == nil {
		return nil
	}
	return textArray(prefixes(f.only))
}
