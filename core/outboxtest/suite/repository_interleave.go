package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// A claim is several statements on most databases. These cases change its rows before each of them.
// After any change, no event is claimed while an earlier one is not finished, and no node gets a
// row that another node holds.

// meddler changes the rows while another node claims them.
type meddler struct {
	f    *fixture
	rows []core.NewRow // all of one key, or all unordered

	held     []core.Claimed // claimed by nodeB before the claim began
	kept     map[core.RowID]int64
	finished map[core.RowID]bool
}

type interleaving struct {
	name  string
	setup func(m *meddler)
	act   func(ctx context.Context, m *meddler) error
}

func interleavingCases() []repositoryCase {
	var cases []repositoryCase
	ordered := []interleaving{
		{"another claim of the head", nil, claimKeep(1)},
		{"another claim of the run", nil, claimKeep(100)},
		{"another claim gives the head back", nil, claimRelease},
		{"another claim makes the head dead", nil, claimFail(core.FailDead, 0)},
		{"another claim puts the head off", nil, claimFail(core.FailRetry, time.Hour)},
		{"another claim fails and the head is due again", nil, claimFail(core.FailRetry, 0)},
		{"another claim finds the destination away", nil, claimFail(core.FailUnavailable, time.Hour)},
		{"another claim finishes the head", nil, claimDone},
		{"another claim makes the second dead", nil, killSecond},
		{"the head is done", nil, doneAt(0)},
		{"the second is done", nil, doneAt(1)},
		{"the head is discarded", nil, discardAt(0)},
		{"the second is discarded", nil, discardAt(1)},
		{"the head was dead and is redriven", headDead, redriveAt(0)},
		{"the head was dead, is redriven and claimed", headDead, redriveClaim},
		{"the head was dead, is redriven and dies again", headDead, redriveKill},
		{"the head was dead and is discarded", headDead, discardAt(0)},
		{"the second was dead and is redriven", secondDead, redriveAt(1)},
		{"the head was dead and is edited", headDead, editAt(0)},
		{"the second was dead and is edited", secondDead, editAt(1)},
		{"the head was held and is given back", headHeld, heldRelease},
		{"the head was held and dies", headHeld, heldFail(core.FailDead, 0)},
		{"the head was held and is put off", headHeld, heldFail(core.FailRetry, time.Hour)},
		{"the head was held and is done", headHeld, doneAt(0)},
		{"another event is added", nil, addEvent},
	}
	for _, i := range ordered {
		cases = append(cases, repositoryCase{i.name, func(f *fixture) {
			f.interleave(i, "k", func(ctx context.Context, _ core.KeyID) ([]core.Claimed, error) {
				rows, _, err := f.Repository.ClaimHeads(ctx, request(nodeA), core.KeyID{})
				return rows, err
			})
			f.interleave(i, "k", func(ctx context.Context, _ core.KeyID) ([]core.Claimed, error) {
				req := request(nodeA)
				req.Run = 1
				rows, _, err := f.Repository.ClaimHeads(ctx, req, core.KeyID{})
				return rows, err
			})
			f.interleave(i, "k", func(ctx context.Context, l core.KeyID) ([]core.Claimed, error) {
				return f.Repository.ClaimKey(ctx, request(nodeA), l)
			})
		}})
	}
	unordered := []interleaving{
		{"unordered, another claim of one", nil, claimKeep(1)},
		{"unordered, another claim of all", nil, claimKeep(100)},
		{"unordered, another claim gives one back", nil, claimRelease},
		{"unordered, another claim makes one dead", nil, claimFail(core.FailDead, 0)},
		{"unordered, another claim puts one off", nil, claimFail(core.FailRetry, time.Hour)},
		{"unordered, one is done", nil, doneAt(0)},
		{"unordered, one is discarded", nil, discardAt(0)},
		{"unordered, one was dead and is redriven", headDead, redriveAt(0)},
		{"unordered, one was dead and is edited", headDead, editAt(0)},
	}
	for _, i := range unordered {
		cases = append(cases, repositoryCase{i.name, func(f *fixture) {
			f.interleave(i, "", func(ctx context.Context, _ core.KeyID) ([]core.Claimed, error) {
				return f.Repository.ClaimUnordered(ctx, request(nodeA))
			})
		}})
	}
	return cases
}

// blockedAfter is how long a claim waits for the meddler. A meddler that takes longer waits for a
// lock of the claim, so the claim must go on.
const blockedAfter = 300 * time.Millisecond

// interleave repeats the claim. i acts before its first statement, then before its second, and so
// on.
func (f *fixture) interleave(i interleaving, key string,
	claim func(context.Context, core.KeyID) ([]core.Claimed, error),
) {
	f.Helper()
	for point := 0; ; point++ {
		f.must(point < 100, "a claim of more than %d statements", point)
		m := &meddler{
			f: f, rows: newRows(4, "topic", key), kept: map[core.RowID]int64{},
			finished: map[core.RowID]bool{},
		}
		if i.setup == nil {
			f.commit(m.rows...)
		} else {
			i.setup(m)
		}
		acted := make(chan error, 1)
		at, reached := 0, false
		ctx := ContextWithPause(f.Context(), func() error {
			if at++; at-1 != point {
				return nil
			}
			reached = true
			go func() {
				err := i.act(f.Context(), m)
				if _, ok := errors.AsType[*core.LockedError](err); ok { // the claim has locked the rows first
					err = nil
				}
				acted <- err
			}()
			wait := time.NewTimer(blockedAfter)
			defer wait.Stop()
			select {
			case err := <-acted:
				acted <- err
			case <-wait.C:
			}
			return nil
		})
		got, err := claim(ctx, m.rows[0].KeyID)
		f.check(err)
		if reached {
			f.within(func(ctx context.Context) error {
				select {
				case err := <-acted:
					return err
				case <-ctx.Done():
					return fmt.Errorf("statement %d: what was done meanwhile does not end: %w", point, ctx.Err())
				}
			})
		}
		m.judge(got, point)
		if !reached {
			f.must(point > 0, "no statement called Pause: see suite.Pause")
			return
		}
	}
}

// judge checks the claimed rows and finishes all rows.
func (m *meddler) judge(got []core.Claimed, point int) {
	f := m.f
	f.Helper()
	claimed := map[core.RowID]bool{}
	last := -1
	for _, c := range got {
		at := slices.IndexFunc(m.rows, func(n core.NewRow) bool { return n.ID == c.ID })
		f.must(at >= 0, "statement %d: claimed %s, which is none of the rows", point, c.ID)
		f.must(!claimed[c.ID], "statement %d: row %d was claimed twice", point, at)
		claimed[c.ID] = true
		no, kept := m.kept[c.ID]
		f.must(!kept, "statement %d: claim %d of row %d was given away, another node has claim %d", point, c.ClaimNo,
			at, no)
		if c.KeyID.IsZero() {
			continue
		}
		f.must(at > last, "statement %d: row %d was claimed after row %d", point, at, last)
		last = at
		for before := range at {
			id := m.rows[before].ID
			f.must(claimed[id] || m.finished[id], "statement %d: row %d was claimed while row %d before it is "+
				"neither finished nor claimed",
				point, at, before)
		}
	}
	open := len(m.rows) - len(m.finished)
	changed := f.done(false, newIDs(m.rows)...)
	f.must(changed == open, "statement %d: %d rows were open or dead in the end, want %d", point, changed, open)
}

// claim claims at most n rows as nodeB.
func (m *meddler) claim(ctx context.Context, n int) ([]core.Claimed, error) {
	req := request(nodeB)
	if m.rows[0].KeyID.IsZero() {
		req.Limit = n
		return m.f.Repository.ClaimUnordered(ctx, req)
	}
	req.Run = n
	return m.f.Repository.ClaimKey(ctx, req, m.rows[0].KeyID)
}

func claimKeep(n int) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error {
		rows, err := m.claim(ctx, n)
		for _, c := range rows {
			m.kept[c.ID] = c.ClaimNo
		}
		return err
	}
}

func claimRelease(ctx context.Context, m *meddler) error {
	rows, err := m.claim(ctx, 1)
	if err != nil || len(rows) == 0 {
		return err
	}
	_, err = m.f.Repository.Release(ctx, nodeB, refsOf(rows))
	return err
}

func claimFail(kind core.FailureKind, delay time.Duration) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error {
		rows, err := m.claim(ctx, 1)
		if err != nil || len(rows) == 0 {
			return err
		}
		return m.failRow(ctx, rows[0], kind, delay)
	}
}

func (m *meddler) failRow(ctx context.Context, c core.Claimed, kind core.FailureKind, delay time.Duration) error {
	_, err := m.f.Repository.MarkFailed(ctx, nodeB,
		[]core.Failure{{ClaimRef: ref(c), Kind: kind, Delay: delay, Code: "c"}})
	return err
}

func claimDone(ctx context.Context, m *meddler) error {
	rows, err := m.claim(ctx, 1)
	if err != nil || len(rows) == 0 {
		return err
	}
	return m.done(ctx, rows[0].ID)
}

func (m *meddler) done(ctx context.Context, id core.RowID) error {
	changed, err := m.f.Repository.MarkDone(ctx, []core.Done{{ID: id}}, false)
	if changed == 1 {
		m.finished[id] = true
	}
	return err
}

// killSecond claims two rows, releases the first and makes the second dead.
func killSecond(ctx context.Context, m *meddler) error {
	rows, err := m.claim(ctx, 2)
	if err != nil || len(rows) < 2 {
		return err
	}
	if err := m.failRow(ctx, rows[1], core.FailDead, 0); err != nil {
		return err
	}
	_, err = m.f.Repository.Release(ctx, nodeB, refsOf(rows[:1]))
	return err
}

func doneAt(row int) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error { return m.done(ctx, m.rows[row].ID) }
}

func discardAt(row int) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error {
		changed, err := m.f.Repository.Discard(ctx, adminOf(m.rows[row].ID))
		if changed == 1 {
			m.finished[m.rows[row].ID] = true
		}
		return err
	}
}

func redriveAt(row int) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error {
		_, err := m.f.Repository.Redrive(ctx, adminOf(m.rows[row].ID))
		return err
	}
}

func redriveClaim(ctx context.Context, m *meddler) error {
	if err := redriveAt(0)(ctx, m); err != nil {
		return err
	}
	return claimKeep(1)(ctx, m)
}

func redriveKill(ctx context.Context, m *meddler) error {
	if err := redriveAt(0)(ctx, m); err != nil {
		return err
	}
	return claimFail(core.FailDead, 0)(ctx, m)
}

func headDead(m *meddler) {
	m.f.addDead(m.rows[0])
	m.f.commit(m.rows[1:]...)
}

func secondDead(m *meddler) {
	m.f.commit(m.rows[0])
	m.f.addDead(m.rows[1])
	m.f.commit(m.rows[2:]...)
}

func headHeld(m *meddler) {
	m.f.commit(m.rows...)
	rows, err := m.claim(m.f.Context(), 1)
	m.f.check(err)
	m.f.wantIDs(rows, m.rows[0])
	m.held = rows
}

func heldRelease(ctx context.Context, m *meddler) error {
	_, err := m.f.Repository.Release(ctx, nodeB, refsOf(m.held))
	return err
}

func heldFail(kind core.FailureKind, delay time.Duration) func(context.Context, *meddler) error {
	return func(ctx context.Context, m *meddler) error { return m.failRow(ctx, m.held[0], kind, delay) }
}

// addEvent commits one more event of the key.
func addEvent(_ context.Context, m *meddler) error {
	more := newRow("topic", "k")
	_, err := m.f.tryCommit(core.InsertRequest{
		Node: nodeB, ClaimNo: hotNo, Lease: longLease,
		Rows: []core.NewRow{more},
	})
	if err == nil {
		m.rows = append(m.rows, more)
	}
	return err
}
