package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func concurrencyCases() []repositoryCase {
	return []repositoryCase{
		{"producers of the same keys", concurrentProducers},
		{"producers that name the same keys in different orders", concurrentOrders},
		{"claims of the same rows", concurrentClaims},
		{"claims of the same keys", concurrentLanes},
		{"the collector and producers of the same keys", concurrentCollector},
		{"everything at once", concurrentEverything},
	}
}

// parallel runs fn n times at once and reports the errors.
func (f *fixture) parallel(n int, fn func(ctx context.Context, worker int) error) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 6*patience)
	defer cancel()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = fn(ctx, i) })
	}
	wg.Wait()
	f.check(errors.Join(errs...))
}

// ledger records the rows that producers have committed.
type ledger struct {
	mu   sync.Mutex
	rows map[core.KeyID][]committed
}

type committed struct {
	row core.NewRow
	at  core.Inserted
}

func (l *ledger) add(rows []core.NewRow, places []core.Inserted) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range rows {
		l.rows[r.KeyID] = append(l.rows[r.KeyID], committed{r, places[i]})
	}
}

// produce commits or rolls back transactions with one to three rows for keys of a small set. Like
// an application, it runs a transaction again that the database refused.
func (f *fixture) produce(ctx context.Context, seed uint64, transactions int, keys []string, l *ledger) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	for range transactions {
		var rows []core.NewRow
		for range 1 + rng.IntN(3) {
			rows = append(rows, newRow("topic", keys[rng.IntN(len(keys))]))
		}
		rollback := rng.IntN(4) == 0
		var err error
		for range 20 {
			if err = f.produceOnce(ctx, rows, rollback, l); err == nil {
				break
			}
		}
		if err != nil {
			return fmt.Errorf("producer: %w", err)
		}
	}
	return nil
}

func (f *fixture) produceOnce(ctx context.Context, rows []core.NewRow, rollback bool, l *ledger) error {
	tx, err := f.Begin(ctx)
	if err != nil {
		return err
	}
	places, err := f.Repository.Insert(ctx, tx, core.InsertRequest{
		Node: nodeA, ClaimNo: hotNo, Lease: longLease,
		Rows: rows,
	})
	if err != nil || rollback {
		return errors.Join(err, tx.Rollback())
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	l.add(rows, places)
	return nil
}

// verify requires that the numbers of each key have no gap, and that each row names the row before
// it. A key that was opened again is an exception.
func (f *fixture) verify(l *ledger, reopened bool) {
	f.Helper()
	for lane, rows := range l.rows {
		if lane.IsZero() {
			continue
		}
		slices.SortFunc(rows, func(a, b committed) int { return int(a.at.KeySeq - b.at.KeySeq) })
		for i, c := range rows {
			if i == 0 || reopened && c.at.Opened {
				f.must(c.at.Opened && c.at.Prev.IsZero(), "key id %x: place %d is %+v, want it opened", lane, i, c.at)
				f.must(i == 0 || c.at.KeySeq > rows[i-1].at.KeySeq, "key id %x: number %d twice", lane, c.at.KeySeq)
				continue
			}
			before := rows[i-1]
			f.must(!c.at.Opened && c.at.KeySeq == before.at.KeySeq+1 && c.at.Prev == before.row.ID,
				"key id %x: place %d is %+v, want it after %s at %d", lane, i, c.at, before.row.ID, before.at.KeySeq)
		}
	}
}

func concurrentProducers(f *fixture) {
	l := &ledger{rows: map[core.KeyID][]committed{}}
	keys := []string{"", "k", "l", "m"}
	f.parallel(6, func(ctx context.Context, worker int) error { return f.produce(ctx, uint64(worker), 15, keys, l) })
	f.verify(l, false)
	want := map[core.KeyID][]core.RowID{}
	total := 0
	for lane, rows := range l.rows {
		for _, c := range rows {
			want[lane] = append(want[lane], c.row.ID)
			total++
		}
	}
	got := map[core.KeyID][]core.RowID{}
	for _, c := range f.claimAny(request(nodeB)) {
		got[c.KeyID] = append(got[c.KeyID], c.ID)
		total--
	}
	f.must(total == 0, "%d committed rows were not claimed", total)
	for lane := range want {
		if lane.IsZero() {
			f.must(sameSet(got[lane], want[lane]), "unordered rows differ")
			continue
		}
		f.must(slices.Equal(got[lane], want[lane]), "key id %x: claimed %s, want %s", lane, got[lane], want[lane])
	}
}

// claims records which node claimed which row under which number.
type claims struct {
	mu   sync.Mutex
	seen map[core.ClaimRef]string
	done map[core.RowID]bool
}

func newClaims() *claims {
	return &claims{seen: map[core.ClaimRef]string{}, done: map[core.RowID]bool{}}
}

// note fails if the claim was given before, or if the row was done.
func (c *claims) note(node string, rows []core.Claimed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rows {
		if other, twice := c.seen[ref(r)]; twice {
			return fmt.Errorf("row %s: claim %d went to %s and to %s", r.ID, r.ClaimNo, other, node)
		}
		c.seen[ref(r)] = node
		if c.done[r.ID] {
			return fmt.Errorf("row %s was claimed after it was done", r.ID)
		}
	}
	return nil
}

// finish marks rows done. They count as done only after the call, because only then no node may
// claim them.
func (f *fixture) finish(ctx context.Context, c *claims, ids []core.RowID, deleteRows bool) error {
	marks := make([]core.Done, len(ids))
	for i, id := range ids {
		marks[i].ID = id
	}
	changed := 0
	err := untilUnlocked(ctx, func() error {
		n, err := f.Repository.MarkDone(ctx, marks, deleteRows)
		changed += n
		return err
	})
	if err != nil {
		return err
	}
	if changed != len(ids) {
		return fmt.Errorf("MarkDone changed %d of %d rows that only their holder knows", changed, len(ids))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.done[id] = true
	}
	return nil
}

// untilUnlocked repeats a mark while other transactions hold some of its rows, as a relay does. A
// row that was changed is not changed again.
func untilUnlocked(ctx context.Context, mark func() error) error {
	for {
		err := mark()
		if _, locked := errors.AsType[*core.LockedError](err); !locked || ctx.Err() != nil {
			return err
		}
	}
}

func (c *claims) finished() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

func concurrentClaims(f *fixture) {
	const n = 200
	f.commit(newRows(n, "topic", "")...)
	c := newClaims()
	f.parallel(4, func(ctx context.Context, worker int) error {
		rng := rand.New(rand.NewPCG(uint64(worker), 2))
		req := request(fmt.Sprint("node-", worker))
		req.Limit = 7
		for c.finished() < n {
			req.ClaimNo = newClaimNo()
			rows, err := f.Repository.ClaimUnordered(ctx, req)
			if err == nil {
				err = c.note(req.Node, rows)
			}
			if err != nil {
				return err
			}
			var keep []core.RowID
			for _, r := range rows {
				if rng.IntN(3) > 0 {
					keep = append(keep, r.ID)
					continue
				}
				released := 0
				err := untilUnlocked(ctx, func() (err error) {
					released, err = f.Repository.Release(ctx, req.Node, []core.ClaimRef{ref(r)})
					return err
				})
				if err != nil || released != 1 {
					return fmt.Errorf("released %d rows: %w", released, err)
				}
			}
			if err := f.finish(ctx, c, keep, false); err != nil {
				return err
			}
		}
		return nil
	})
	f.none("all are done")
}

// laneOrder records the rows of each key that were not claimed yet.
type laneOrder struct {
	mu   sync.Mutex
	rows map[core.KeyID][]core.RowID // the remaining rows, in order
}

// check requires that the claimed rows are the next ones of their keys.
func (o *laneOrder) check(rows []core.Claimed) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := map[core.KeyID]int{}
	for _, r := range rows {
		left := o.rows[r.KeyID]
		i := at[r.KeyID]
		if i >= len(left) || left[i] != r.ID {
			return fmt.Errorf("key id %x: claimed row %s, which is not number %d of those left", r.KeyID, r.ID, i)
		}
		at[r.KeyID]++
	}
	return nil
}

func (o *laneOrder) pop(lane core.KeyID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rows[lane] = o.rows[lane][1:]
}

func (o *laneOrder) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, rows := range o.rows {
		if len(rows) > 0 {
			return false
		}
	}
	return true
}

// concurrentLanes makes several nodes process the same keys. A node must claim the next rows of
// the key at that moment. No node ever gets a row while another node holds an earlier one.
func concurrentLanes(f *fixture) {
	order := &laneOrder{rows: map[core.KeyID][]core.RowID{}}
	for i := range 6 {
		rows := newRows(12, "topic", fmt.Sprint("key", i))
		f.commit(rows...)
		order.rows[rows[0].KeyID] = newIDs(rows)
	}
	c := newClaims()
	f.parallel(3, func(ctx context.Context, worker int) error {
		req := request(fmt.Sprint("node-", worker))
		req.Run, req.Limit, req.Keys = 1+worker, 9, 4
		var after core.KeyID
		for !order.empty() {
			req.ClaimNo = newClaimNo()
			rows, next, err := f.Repository.ClaimHeads(ctx, req, after)
			if err == nil {
				err = errors.Join(c.note(req.Node, rows), order.check(rows))
			}
			if err != nil {
				return err
			}
			after = next
			for _, r := range rows {
				order.pop(r.KeyID) // before the row is done, because another node may then claim the next one at once
				if err := f.finish(ctx, c, []core.RowID{r.ID}, worker == 0); err != nil {
					return err
				}
			}
		}
		return nil
	})
	f.none("all are done")
}

// concurrentCollector deletes key rows while producers use them. Numbers never repeat, and a key is
// opened only if none of its rows is left.
func concurrentCollector(f *fixture) {
	l := &ledger{rows: map[core.KeyID][]committed{}}
	ctx, stop := context.WithCancel(f.Context())
	defer stop()
	var background sync.WaitGroup
	var failed error
	background.Go(func() { failed = f.consumeAndCollect(ctx) })
	f.parallel(3, func(ctx context.Context, worker int) error {
		return f.produce(ctx, uint64(worker), 25, []string{"k", "l"}, l)
	})
	stop()
	background.Wait()
	f.check(failed)
	f.verify(l, true)
}

func (f *fixture) consumeAndCollect(ctx context.Context) error {
	background := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		rows, _, err := f.Repository.ClaimHeads(background, request(nodeB), core.KeyID{})
		if err != nil {
			return err
		}
		done := make([]core.Done, len(rows))
		for i, r := range rows {
			done[i].ID = r.ID
		}
		err = untilUnlocked(background,
			func() error { _, err := f.Repository.MarkDone(background, done, true); return err })
		if err != nil {
			return err
		}
		if _, _, err := f.Repository.CollectKeys(background, time.Microsecond, core.KeyID{}, 10); err != nil {
			return err
		}
	}
	return nil
}

// concurrentEverything runs producers, an administrator and a janitor at once, and holders that
// succeed, fail and disappear. In the end every committed row is done or discarded, and no claim
// was given twice.
func concurrentEverything(f *fixture) {
	l := &ledger{rows: map[core.KeyID][]committed{}}
	c := newClaims()
	producing, stop := context.WithCancel(f.Context())
	defer stop()
	var producers sync.WaitGroup
	var failed error
	producers.Go(func() {
		defer stop()
		failed = f.produce(f.Context(), 9, 30, []string{"", "k", "l"}, l)
	})
	f.parallel(3, func(ctx context.Context, worker int) error {
		rng := rand.New(rand.NewPCG(uint64(worker), 3))
		for {
			over := producing.Err() != nil
			if err := f.holdAndFail(ctx, fmt.Sprint("node-", worker), rng, c); err != nil {
				return err
			}
			b, err := f.Repository.Backlog(ctx, 1000)
			if err != nil {
				return err
			}
			if over && b.Pending+b.Dead == 0 {
				return nil
			}
		}
	})
	producers.Wait()
	f.check(failed)
	f.verify(l, false)
	f.none("all have ended")
}

// holdAndFail claims a few rows, and treats each of them as a relay or a crash may do. Then it
// redrives or discards dead rows as an administrator, and cleans up.
func (f *fixture) holdAndFail(ctx context.Context, node string, rng *rand.Rand, c *claims) error {
	req := request(node)
	req.Limit, req.Run, req.Lease = 5, 2, 30*time.Millisecond
	rows, err := f.Repository.ClaimUnordered(ctx, req)
	if err != nil {
		return err
	}
	more, _, err := f.Repository.ClaimHeads(ctx, req, core.KeyID{})
	if err != nil {
		return err
	}
	rows = append(rows, more...)
	if err := c.note(node, rows); err != nil {
		return err
	}
	for _, r := range rows {
		failure := core.Failure{
			ClaimRef: ref(r), Kind: core.FailureKind(1 + rng.IntN(3)), Delay: time.Millisecond,
			Code: "c",
		}
		var act func() (err error)
		switch rng.IntN(6) {
		case 0:
			act = func() (err error) {
				_, err = f.Repository.MarkFailed(ctx, node, []core.Failure{failure})
				return err
			}
		case 1:
			act = func() (err error) { _, err = f.Repository.Release(ctx, node, []core.ClaimRef{ref(r)}); return err }
		case 2: // the holder disappears; other nodes wait for the end of its lease
			continue
		case 3:
			act = func() (err error) {
				_, err = f.Repository.Renew(ctx, node, 40*time.Millisecond, []core.ClaimRef{ref(r)})
				return err
			}
		default:
			act = func() (err error) { _, err = f.Repository.MarkDone(ctx, []core.Done{{ID: r.ID}}, false); return err }
		}
		if err := untilUnlocked(ctx, act); err != nil {
			return err
		}
	}
	dead, err := f.Repository.ListDead(ctx, core.DeadQuery{Limit: 5})
	if err != nil {
		return err
	}
	for i, d := range dead {
		act := f.Repository.Redrive
		if i%2 == 1 {
			act = f.Repository.Discard
		}
		if _, err := act(ctx, adminOf(d.ID)); err != nil {
			return err
		}
	}
	return untilUnlocked(
		ctx,
		func() error { _, _, err := f.Repository.Cleanup(ctx, cleanupOf(time.Millisecond, 10)); return err },
	)
}

// concurrentOrders has producers name the same keys in different orders. Each call locks them in
// the same order, so no producer becomes the victim of a deadlock.
func concurrentOrders(f *fixture) {
	keys := []string{"k", "l", "m", "n"}
	for _, k := range keys {
		f.commit(newRow("topic", k))
	}
	f.parallel(4, func(_ context.Context, worker int) error {
		rng := rand.New(rand.NewPCG(uint64(worker), 4))
		for range 40 {
			var rows []core.NewRow
			for _, i := range rng.Perm(len(keys)) {
				rows = append(rows, newRow("topic", keys[i]))
			}
			if _, err := f.tryCommit(core.InsertRequest{
				Node: nodeA, ClaimNo: hotNo, Lease: longLease,
				Rows: rows,
			}); err != nil {
				return err
			}
		}
		return nil
	})
}
