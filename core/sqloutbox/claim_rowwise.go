package sqloutbox

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// candidate is a row that a claim wants.
type candidate struct {
	id     core.RowID
	lane   core.KeyID
	topic  string
	keySeq int64
	size   int64
	ok     bool
}

// unionSelects is how many parts one statement joins.
const unionSelects = 16

// claimTopics claims unordered rows.
func (w *rowwise) claimTopics(ctx context.Context, req core.ClaimRequest, f filter, oversize bool,
) (rows []core.Claimed, topics int, err error) {
	rows, err = w.claimCandidates(ctx, "claim unordered", req, func(q sqlkit.Querier) ([]candidate, error) {
		names, err := w.topics(ctx, q, f)
		if err != nil {
			return nil, err
		}
		topics = len(names)
		all, err := w.topicRows(ctx, q, req, names, quota(req.Limit, len(names)))
		return cut(all, req, oversize), err
	})
	return rows, topics, err
}

// topics returns the wanted topics: those of the filter, or all that have open unordered rows,
// found by jumping from one to the next.
func (w *rowwise) topics(ctx context.Context, q sqlkit.Querier, f filter) ([]string, error) {
	if f.only != nil {
		return f.only, nil
	}
	var all []string
	for last := ""; ; {
		found := false
		err := sqlkit.EachRow(ctx, q, w.sql.nextTopic, []any{last}, func(res core.Rows) error {
			found = true
			return res.Scan(&last)
		})
		if err != nil || !found {
			return all, err
		}
		if f.wants(last) {
			all = append(all, last)
		}
	}
}

// topicRows returns up to part due and free rows of each topic, the topics in turns.
func (w *rowwise) topicRows(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, topics []string,
	part int,
) ([]candidate, error) {
	byTopic := make(map[string][]candidate, len(topics))
	most := 0
	for chunk := range slices.Chunk(topics, unionSelects) {
		var args []any
		for _, t := range chunk {
			args = append(args, t, micros(req.MaxLease), part)
		}
		err := sqlkit.EachRow(ctx, q, w.sql.topicRows.text(len(chunk)), args, func(res core.Rows) error {
			var c candidate
			var id id16
			err := res.Scan(&id, &c.topic, &c.size)
			c.id, c.ok = core.RowID(id), true
			byTopic[c.topic] = append(byTopic[c.topic], c)
			most = max(most, len(byTopic[c.topic]))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var all []candidate
	for turn := range most {
		for _, t := range topics {
			if rows := byTopic[t]; turn < len(rows) {
				all = append(all, rows[turn])
			}
		}
	}
	return all, nil
}

// cut keeps the candidates that fit into the limits of the claim; with oversize at least one row.
func cut(all []candidate, req core.ClaimRequest, oversize bool) []candidate {
	total := int64(0)
	for i := range all {
		total += all[i].size
		if i == req.Limit || total > req.MaxBytes && (i > 0 || !oversize) {
			return all[:i]
		}
	}
	return all
}

// claimHeads claims heads of lanes with their runs.
func (w *rowwise) claimHeads(ctx context.Context, req core.ClaimRequest, f filter,
	after core.KeyID,
) ([]core.Claimed, core.KeyID, error) {
	var next core.KeyID
	rows, err := w.claimCandidates(ctx, "claim heads", req, func(q sqlkit.Querier) (all []candidate, err error) {
		rest := req
		for next = after; ; {
			scan := laneScan{tables: w, filter: f, most: min(rest.Keys, headPage), bound: next}
			if err := scan.run(ctx, q); err != nil {
				return nil, err
			}
			next = scan.next
			heads, err := w.claimableHeads(ctx, q, req, f, scan.heads)
			if err != nil {
				return nil, err
			}
			rows, cutShort, err := w.runs(ctx, q, rest, heads, len(all) == 0)
			if err != nil {
				return nil, err
			}
			all = append(all, rows...)
			if cutShort {
				if len(all) > 0 {
					next = all[len(all)-1].lane
				}
				return all, nil
			}
			rest.Limit -= len(rows)
			for i := range rows {
				rest.MaxBytes -= rows[i].size
			}
			rest.Keys -= headPage
			if next.IsZero() || rest.Keys <= 0 || rest.Limit <= 0 || rest.MaxBytes <= 0 {
				return all, nil
			}
		}
	})
	return rows, next, err
}

// headPage is how many lanes are looked at before their runs are read.
const headPage = 128

// shortRun is the shortest run of a claim if there are more keys than the limit allows whole runs.
// A claim then takes rows of some 64 keys, about as many as are published at once. One row of each
// of 500 keys would need more look-ups.
func shortRun(req core.ClaimRequest) int { return max(1, min(req.Run, req.Limit/64)) }

// claimLane claims the head of one lane with its run.
func (w *rowwise) claimLane(ctx context.Context, req core.ClaimRequest, f filter,
	lane core.KeyID,
) ([]core.Claimed, error) {
	return w.claimCandidates(ctx, "claim key", req, func(q sqlkit.Querier) ([]candidate, error) {
		var first []candidate
		err := sqlkit.EachRow(ctx, q, w.sql.laneHead, []any{lane[:]}, func(res core.Rows) error {
			var id id16
			c := candidate{lane: lane}
			err := res.Scan(&c.keySeq, &id)
			c.id = core.RowID(id)
			first = append(first, c)
			return err
		})
		if err != nil {
			return nil, err
		}
		heads, err := w.claimableHeads(ctx, q, req, f, first)
		if err != nil {
			return nil, err
		}
		all, _, err := w.runs(ctx, q, req, heads, true)
		return all, err
	})
}

// head is the first row of a lane that is not dead.
type head struct {
	candidate
	dead  int64         // first dead number of the lane; the largest number if there is none
	until time.Duration // how long until it is due and free
}

const noDead = int64(^uint64(0) >> 1)

// headsOf reads heads: whether they are of a wanted topic, due, free, and not behind a dead row.
func (w *rowwise) headsOf(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, f filter,
	first []candidate,
) ([]head, error) {
	byID := make(map[core.RowID]*candidate, len(first))
	for i := range first {
		byID[first[i].id] = &first[i]
	}
	var heads []head
	for chunk := range slices.Chunk(first, chunkRows) {
		longest := micros(req.MaxLease)
		args := []any{longest, longest}
		for i := range chunk {
			args = append(args, chunk[i].id[:])
		}
		err := sqlkit.EachRow(ctx, q, w.sql.heads.text(len(chunk)), args, func(res core.Rows) error {
			var id id16
			var h head
			var us int64
			var dead *int64
			if err := res.Scan(&id, &h.topic, &h.size, &h.ok, &us, &dead); err != nil {
				return err
			}
			h.dead, h.until = noDead, time.Duration(us)*time.Microsecond
			if dead != nil && !req.SkipDead {
				h.dead = *dead
			}
			c := byID[core.RowID(id)]
			h.id, h.lane, h.keySeq = c.id, c.lane, c.keySeq
			if h.keySeq < h.dead && f.wants(h.topic) {
				heads = append(heads, h)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(heads, func(a, b head) int { return bytes.Compare(a.lane[:], b.lane[:]) })
	return heads, nil
}

func (w *rowwise) claimableHeads(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, f filter,
	first []candidate,
) ([]head, error) {
	heads, err := w.headsOf(ctx, q, req, f, first)
	return slices.DeleteFunc(heads, func(h head) bool { return !h.ok }), err
}

// runs returns the heads with the rows that follow them and are due and free too. It also reports
// whether lanes were left out because of the limits. With oversize the first row may have more
// bytes than the limit.
func (w *rowwise) runs(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, heads []head, oversize bool,
) (all []candidate, short bool, err error) {
	if len(heads) == 0 {
		return nil, false, nil
	}
	run := max(shortRun(req), min(req.Run, req.Limit/len(heads)))
	short = len(heads) > req.Limit
	heads = heads[:min(len(heads), req.Limit)]
	if run == 1 {
		for _, h := range heads {
			all = append(all, h.candidate)
		}
		kept := cut(all, req, oversize)
		return kept, short || len(kept) < len(all), nil
	}
	dead := make(map[core.KeyID]int64, len(heads))
	for _, h := range heads {
		dead[h.lane] = h.dead
	}
	broken := map[core.KeyID]bool{}
	for chunk := range slices.Chunk(heads, unionSelects) {
		if len(all) >= req.Limit {
			short = true
			break
		}
		var args []any
		for i := range chunk {
			args = append(args, micros(req.MaxLease), chunk[i].lane[:], run)
		}
		var rows []candidate
		err := sqlkit.EachRow(ctx, q, w.sql.laneRows.text(len(chunk)), args, func(res core.Rows) error {
			var id, lane id16
			var c candidate
			err := res.Scan(&id, &lane, &c.keySeq, &c.size, &c.ok)
			c.id, c.lane = core.RowID(id), core.KeyID(lane)
			rows = append(rows, c)
			return err
		})
		if err != nil {
			return nil, false, err
		}
		slices.SortStableFunc(rows, byLane)
		for _, c := range rows {
			if broken[c.lane] = broken[c.lane] || !c.ok || c.keySeq >= dead[c.lane]; !broken[c.lane] {
				all = append(all, c)
			}
		}
	}
	kept := cut(all, req, oversize)
	return kept, short || len(kept) < len(all), nil
}

func byLane(a, b candidate) int {
	if c := bytes.Compare(a.lane[:], b.lane[:]); c != 0 {
		return c
	}
	if a.keySeq != b.keySeq {
		return int(min(1, max(-1, a.keySeq-b.keySeq)))
	}
	return bytes.Compare(a.id[:], b.id[:])
}

// claimCandidates reads candidates without locks and leases those that it can lock. If other claims
// took all of them in the meantime, it reads again.
func (w *rowwise) claimCandidates(ctx context.Context, what string, req core.ClaimRequest,
	find func(q sqlkit.Querier) ([]candidate, error),
) (rows []core.Claimed, err error) {
	for range 4 {
		var wanted []candidate
		err = w.single(ctx, what, func(q sqlkit.Querier) (err error) {
			wanted, err = find(q)
			return err
		})
		if err != nil || len(wanted) == 0 {
			return nil, err
		}
		err = w.inTx(ctx, what, func(q sqlkit.Querier) (err error) {
			rows, err = w.lease(ctx, q, req, wanted)
			return err
		})
		if err != nil || len(rows) > 0 {
			return rows, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(rand.N(4 * time.Millisecond)):
		}
	}
	return nil, nil
}

// lockedRow is a row that a claim has locked.
type lockedRow struct {
	core.Claimed
	before, dead *int64 // of its lane: the open row before it, and the first dead row if that is before it
}

// follows reports whether the row comes next in its lane after the row with that number, or first
// if there is none. The candidates were read by several statements, and rows seen by two of them
// may never have existed at the same time: a head that died in between would be passed over.
// follows checks, in one view of the lane, that no open and no dead row is before this one. That
// stays true, because ended rows stay ended.
func (l *lockedRow) follows(last *int64, skipDead bool) bool {
	if l.dead != nil && !skipDead {
		return false
	}
	return l.before == nil && last == nil || l.before != nil && last != nil && *l.before == *last
}

// lease locks the wanted rows by their ids with the condition repeated, and leases them. A row that
// cannot be locked, or no longer follows the previous one, ends the run of its lane.
func (w *rowwise) lease(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest,
	wanted []candidate,
) ([]core.Claimed, error) {
	byID, err := w.lock(ctx, q, req, wanted)
	if err != nil {
		return nil, err
	}
	rows := make([]core.Claimed, 0, len(byID))
	taken := make([]core.RowID, 0, len(byID))
	broken, last := map[core.KeyID]bool{}, map[core.KeyID]*int64{}
	for i := range wanted {
		l, ok := byID[wanted[i].id]
		if lane := wanted[i].lane; !lane.IsZero() {
			ok = ok && !broken[lane] && l.follows(last[lane], req.SkipDead)
			broken[lane] = !ok
			if ok {
				last[lane] = &l.KeySeq
			}
		}
		if ok {
			rows, taken = append(rows, l.Claimed), append(taken, l.ID)
		}
	}
	for chunk := range slices.Chunk(taken, chunkRows) {
		args := append([]any{req.Node, req.Node, micros(req.Lease)}, idArgs(chunk)...)
		if _, err := q.Exec(ctx, w.sql.claim.text(len(chunk)), args...); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// lock locks those of the wanted rows that are still due and free. Either all of them have a key,
// or all are unordered.
func (w *rowwise) lock(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest,
	wanted []candidate,
) (map[core.RowID]*lockedRow, error) {
	byID := make(map[core.RowID]*lockedRow, len(wanted))
	ids := make([]core.RowID, len(wanted))
	for i := range wanted {
		ids[i] = wanted[i].id
	}
	statement, lanes := w.sql.lock, !wanted[0].lane.IsZero()
	if lanes {
		statement = w.sql.lockLanes
	}
	for chunk := range slices.Chunk(ids, chunkRows) {
		args := append([]any{req.Node}, idArgs(chunk, micros(req.MaxLease))...)
		err := sqlkit.EachRow(ctx, q, statement.text(len(chunk)), args, func(res core.Rows) error {
			var s claimScan
			l, lost := &lockedRow{}, 0
			more := []any{&lost}
			if lanes {
				more = append(more, &l.before, &l.dead)
			}
			if err := s.scan(res, more...); err != nil {
				return err
			}
			c := s.claimed()
			c.ClaimNo++
			c.LostClaims += lost
			l.Claimed = c
			byID[c.ID] = l
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return byID, nil
}

func (w *rowwise) nextDue(ctx context.Context, req core.ClaimRequest,
	f filter,
) (least time.Duration, ok bool, err error) {
	err = w.single(ctx, "next due", func(q sqlkit.Querier) (err error) {
		least, ok, err = w.leastDue(ctx, q, req, f)
		return err
	})
	return least, ok, err
}

func (w *rowwise) leastDue(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest,
	f filter,
) (least time.Duration, ok bool, err error) {
	look := func(d time.Duration) {
		if d = max(0, d); !ok || d < least {
			least, ok = d, true
		}
	}
	topics, err := w.topics(ctx, q, f)
	if err != nil {
		return 0, false, err
	}
	for _, t := range topics {
		var us *int64
		if _, err := sqlkit.FirstRow(ctx, q, w.sql.topicDue, []any{micros(req.MaxLease), t}, &us); err != nil {
			return 0, false, err
		}
		if us != nil {
			look(time.Duration(*us) * time.Microsecond)
		}
	}
	scan := laneScan{tables: w, filter: f, most: max(req.Keys, 1)}
	if err := scan.run(ctx, q); err != nil {
		return 0, false, err
	}
	heads, err := w.headsOf(ctx, q, req, f, scan.heads)
	for _, h := range heads {
		look(h.until)
	}
	return least, ok, err
}
