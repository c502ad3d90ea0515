package sqloutbox

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// candidate is a row that a claim wants.
type candidate struct {
	id     core.RowID
	lane   core.KeyID
	topic  string
	tenant string // of the head of a lane
	keySeq int64
	size   int64
	ok     bool  // due and free
	dead   bool  // no row of its lane can be claimed
	rowid  int64 // SQLite
}

// addresses appends what the statements of claims find the rows by.
func (w *rowwise) addresses(rows []*candidate, args ...any) []any {
	for _, c := range rows {
		if w.rowids {
			args = append(args, c.rowid)
		} else {
			args = append(args, c.id[:])
		}
	}
	return args
}

// addressed adds the place of the rowid to the places for the columns of a row.
func (w *rowwise) addressed(rowid *int64, dest ...any) []any {
	if w.rowids {
		dest = append(dest, rowid)
	}
	return dest
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

// topics returns the wanted topics: the filter's, or all that have open unordered rows.
func (w *rowwise) topics(ctx context.Context, q sqlkit.Querier, f filter) ([]string, error) {
	if f.only != nil {
		return f.only, nil
	}
	all, err := w.openTopics(ctx, q)
	return slices.DeleteFunc(all, func(t string) bool { return !f.wants(t) }), err
}

// openTopics returns all topics that have open unordered rows. It jumps from one to the next.
func (w *rowwise) openTopics(ctx context.Context, q sqlkit.Querier) (all []string, err error) {
	for last := ""; ; {
		found, err := sqlkit.FirstRow(ctx, q, w.sql.nextTopic, []any{last}, &last)
		if err != nil || !found {
			return all, err
		}
		all = append(all, last)
	}
}

// topicRows returns up to part due and free rows of each topic, the topics in turns.
func (w *rowwise) topicRows(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, topics []string,
	part int,
) ([]candidate, error) {
	byTopic := make(map[string][]candidate, len(topics))
	most := 0
	tenants := textArgs(req.ExceptTenants)
	// each part lists all paused tenants
	for chunk := range slices.Chunk(topics, max(1, min(unionSelects, chunkRows/max(1, len(tenants))))) {
		var args []any
		for _, t := range chunk {
			args = append(append(append(args, t, micros(req.MaxLease)), tenants...), part)
		}
		err := sqlkit.EachRow(ctx, q, w.sql.topicRows.text(len(chunk), len(tenants)), args, func(res core.Rows) error {
			c := candidate{ok: true}
			err := res.Scan(w.addressed(&c.rowid, (*outboxsql.ID)(&c.id), &c.topic, &c.size)...)
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

// textArgs returns the texts as parameters.
func textArgs(texts []string) []any {
	args := make([]any, len(texts))
	for i, s := range texts {
		args[i] = s
	}
	return args
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
) ([]core.Claimed, core.KeyID, bool, error) {
	var next core.KeyID
	dead := false
	rows, err := w.claimCandidates(ctx, "claim heads", req, func(q sqlkit.Querier) (all []candidate, err error) {
		rest := req
		for next = after; ; {
			scan := laneScan{
				tables: w, filter: f, most: min(rest.Keys, headPage), bound: next,
				depth: min(rest.Run, rest.Limit), short: shortRun(rest),
			}
			if next == after { // a later look is needed where heads are blocked or lanes short
				scan.enough = rest.Limit
			}
			if err := scan.run(ctx, q); err != nil {
				return nil, err
			}
			next = scan.next
			heads, err := w.headsOf(ctx, q, req, f, scan.heads)
			if err != nil {
				return nil, err
			}
			dead = dead || slices.ContainsFunc(heads, func(h head) bool { return h.dead })
			heads = claimable(heads)
			rows, cutShort, err := w.runs(ctx, q, rest, f, heads, scan.behind, len(all) == 0)
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
			rest.Keys -= scan.visited
			if next.IsZero() || rest.Keys <= 0 || rest.Limit <= 0 || rest.MaxBytes <= 0 {
				return all, nil
			}
		}
	})
	return rows, next, dead, err
}

// headPage is how many lanes are looked at, at most, before their runs are read.
const headPage = 128

// shortRun is the shortest run of a claim whose limit has no room for a whole run of each key. The
// claim then takes rows of about as many keys as are published at once, and of at least 64. One row
// of each of 500 keys would need more look-ups.
func shortRun(req core.ClaimRequest) int { return max(1, min(req.Run, req.Limit/max(req.AtOnce, 64))) }

// claimLane claims the head of one lane with its run.
func (w *rowwise) claimLane(ctx context.Context, req core.ClaimRequest, f filter,
	lane core.KeyID,
) (claimed []core.Claimed, dead bool, err error) {
	claimed, err = w.claimCandidates(ctx, "claim key", req, func(q sqlkit.Querier) ([]candidate, error) {
		rows, err := w.laneRows(ctx, q, req, lane, max(1, min(req.Run, req.Limit)))
		if err != nil || len(rows) == 0 || !f.wants(rows[0].topic) ||
			slices.Contains(req.ExceptTenants, rows[0].tenant) {
			return nil, err
		}
		dead = rows[0].dead
		if i := slices.IndexFunc(rows, func(c candidate) bool { return !c.ok }); i >= 0 {
			rows = rows[:i]
		}
		return cut(rows, req, true), nil
	})
	return claimed, dead, err
}

// head is the first row of a lane.
type head struct {
	candidate
	until time.Duration // how long until it is due and free
}

// headsOf reads heads of wanted topics and tenants: whether they are dead, and whether they are due
// and free.
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
			var id outboxsql.ID
			var h head
			var us *int64 // nil: a date of MySQL without a day, which only another program writes
			if err := res.Scan(w.addressed(&h.rowid, &id, &h.topic, &h.tenant, &h.size, &h.ok, &us,
				&h.dead)...); err != nil {
				return err
			}
			if us != nil {
				h.until = untilDue(*us)
			}
			c := byID[core.RowID(id)]
			h.id, h.lane, h.keySeq = c.id, c.lane, c.keySeq
			if f.wants(h.topic) && !slices.Contains(req.ExceptTenants, h.tenant) {
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

func claimable(heads []head) []head {
	return slices.DeleteFunc(heads, func(h head) bool { return !h.ok })
}

// runs returns the heads with the rows behind them, up to the first that is not due and free. It
// also reports whether lanes were left out because of the limits. With oversize the first row may
// have more bytes than the limit.
func (w *rowwise) runs(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, f filter, heads []head,
	behind map[core.KeyID][]candidate, oversize bool,
) (all []candidate, short bool, err error) {
	if len(heads) == 0 {
		return nil, false, nil
	}
	run := max(shortRun(req), min(req.Run, req.Limit/len(heads)))
	var followers []candidate
	for i := range heads {
		if i+len(followers) >= req.Limit {
			heads, short = heads[:i], true
			break
		}
		rows := behind[heads[i].lane]
		followers = append(followers, rows[:min(len(rows), run-1)]...)
	}
	next, err := w.headsOf(ctx, q, req, f, followers)
	if err != nil {
		return nil, false, err
	}
	next = claimable(next)
	byID := make(map[core.RowID]*candidate, len(next))
	for i := range next {
		byID[next[i].id] = &next[i].candidate
	}
	for i := range heads {
		all = append(all, heads[i].candidate)
		rows := behind[heads[i].lane]
		for _, c := range rows[:min(len(rows), run-1)] {
			ok := byID[c.id]
			if ok == nil {
				break
			}
			all = append(all, *ok)
		}
	}
	kept := cut(all, req, oversize)
	return kept, short || len(kept) < len(all), nil
}

// laneRows reads the first rows of a lane, at most run.
func (w *rowwise) laneRows(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest, lane core.KeyID,
	run int,
) ([]candidate, error) {
	args := []any{micros(req.MaxLease), lane[:], run}
	return sqlkit.Rows(ctx, q, w.sql.laneRows, args, func(res core.Rows) (candidate, error) {
		c := candidate{lane: lane}
		err := res.Scan(w.addressed(&c.rowid, (*outboxsql.ID)(&c.id), &c.topic, &c.tenant, &c.keySeq, &c.size, &c.ok,
			&c.dead)...)
		return c, err
	})
}

// claimCandidates reads candidates without locks and leases the candidates that it can lock. If
// other claims took all of them in the meantime, it reads again.
func (w *rowwise) claimCandidates(ctx context.Context, what string, req core.ClaimRequest,
	find func(q sqlkit.Querier) ([]candidate, error),
) (rows []core.Claimed, err error) {
	for range 4 {
		wanted, err := sqlkit.Ask(ctx, w.single, what, find)
		if err != nil || len(wanted) == 0 {
			return nil, err
		}
		rows, err = sqlkit.Ask(ctx, w.inTx, what, func(q sqlkit.Querier) ([]core.Claimed, error) {
			return w.lease(ctx, q, req, wanted)
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

// lease locks the wanted rows by their ids with the condition repeated, and leases them. A row that
// cannot be locked ends the run of its lane.
//
// The wanted rows of a lane are its first ones, as one statement saw the lane, without a gap. No
// open row can come before one of them later: a row is numbered under the lock of its key, so rows
// with smaller numbers were committed before, and ended rows stay ended. So it is enough that each
// of them is still open, due and free.
func (w *rowwise) lease(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest,
	wanted []candidate,
) ([]core.Claimed, error) {
	byID, err := w.lock(ctx, q, req, wanted)
	if err != nil {
		return nil, err
	}
	rows := make([]core.Claimed, 0, len(byID))
	taken := make([]*candidate, 0, len(byID))
	broken := map[core.KeyID]bool{}
	for i := range wanted {
		row := byID[wanted[i].id]
		if lane := wanted[i].lane; !lane.IsZero() {
			broken[lane] = broken[lane] || row == nil
			if broken[lane] {
				continue
			}
		}
		if row != nil {
			rows, taken = append(rows, *row), append(taken, &wanted[i])
		}
	}
	for chunk := range slices.Chunk(taken, chunkRows) {
		args := w.addresses(chunk, req.Node, req.ClaimNo, req.Node, micros(req.Lease))
		if _, err := q.Exec(ctx, w.sql.claim.text(len(chunk)), args...); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// lock locks the wanted rows that are still due and free.
func (w *rowwise) lock(ctx context.Context, q sqlkit.Querier, req core.ClaimRequest,
	wanted []candidate,
) (map[core.RowID]*core.Claimed, error) {
	byID := make(map[core.RowID]*core.Claimed, len(wanted))
	rows := make([]core.Claimed, 0, len(wanted)) // never grows: byID points into it
	var rowid int64
	var lost int
	s := newClaimScan(w.addressed(&rowid, &lost)...)
	all := make([]*candidate, len(wanted))
	for i := range wanted {
		all[i] = &wanted[i]
	}
	for chunk := range slices.Chunk(all, chunkRows) {
		args := append(w.addresses(chunk, req.Node), micros(req.MaxLease))
		err := sqlkit.EachRow(ctx, q, w.sql.lock.text(len(chunk)), args, func(res core.Rows) error {
			lost = 0
			if err := s.scan(res); err != nil {
				return err
			}
			rows = append(rows, s.claimed())
			c := &rows[len(rows)-1]
			c.ClaimNo = req.ClaimNo
			c.LostClaims += lost
			byID[c.ID] = c
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
		if !ok || d < least {
			least, ok = d, true
		}
	}
	topics, err := w.topics(ctx, q, f)
	if err != nil {
		return 0, false, err
	}
	tenants := textArgs(req.ExceptTenants)
	topicDue := w.sql.topicDue.text(1, len(tenants))
	for _, t := range topics {
		var us *int64
		args := append([]any{micros(req.MaxLease), t}, tenants...)
		if _, err := sqlkit.FirstRow(ctx, q, topicDue, args, &us); err != nil {
			return 0, false, err
		}
		if us != nil {
			look(untilDue(*us))
		}
	}
	if req.Keys <= 0 {
		return least, ok, nil
	}
	scan := laneScan{tables: w, filter: f, most: req.Keys}
	if err := scan.run(ctx, q); err != nil {
		return 0, false, err
	}
	heads, err := w.headsOf(ctx, q, req, f, scan.heads)
	for _, h := range heads {
		switch {
		case !h.dead:
			look(h.until)
		case req.SkipDead: // a claim takes it out of its key
			look(0)
		}
	}
	return least, ok, err
}
