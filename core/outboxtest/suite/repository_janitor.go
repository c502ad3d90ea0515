package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

func retentionCases() []repositoryCase {
	return []repositoryCase{
		{"only what ended, and only when it is old", cleanupOld},
		{"up to the limit", cleanupLimit},
		{"repeated calls reach every row, whatever its id", cleanupReaches},
		{"rows behind many that are not old", cleanupPasses},
		{"an empty table", func(f *fixture) { f.must(f.cleanup(0, 10) == 0, "deleted something") }},
	}
}

func cleanupOf(keep time.Duration, limit int) core.CleanupRequest {
	return core.CleanupRequest{Keep: keep, KeepDiscarded: keep, Limit: limit}
}

func (f *fixture) cleanup(keep time.Duration, limit int) int {
	f.Helper()
	deleted, _, err := f.Repository.Cleanup(f.Context(), cleanupOf(keep, limit))
	f.check(err)
	f.must(deleted <= limit, "deleted %d rows, more than %d", deleted, limit)
	return deleted
}

func cleanupOld(f *fixture) {
	for _, key := range []string{"", "k"} {
		done, discarded, open, retry := newRow("topic", key), newRow("topic", key), newRow("topic", key),
			newRow("topic", key)
		f.commit(done, discarded)
		f.done(false, done.ID)
		f.discard(adminOf(discarded.ID))
		f.commit(hot(retry)...)
		f.fail(nodeA, core.Failure{ClaimRef: hotRef(retry), Kind: core.FailRetry, Code: "c"})
		f.commit(open)
		dead := f.addDead(newRow("topic", key))
		f.must(f.cleanup(time.Hour, 100) == 0, "deleted rows that are not old")
		deleted := 0
		f.eventually("the rows are old", func() bool {
			deleted += f.cleanup(20*time.Millisecond, 100)
			return deleted >= 2
		})
		f.must(deleted == 2 && f.cleanup(0, 100) == 0, "deleted %d rows, want the two that ended", deleted)
		f.commit(done, discarded) // their ids are not in use any more
		b := f.backlog(100)
		f.must(b.Pending == 4 && b.Dead == 1, "backlog %+v", b)
		f.done(true, done.ID, discarded.ID, open.ID, retry.ID, dead.ID)
	}
}

// cleanupLimit has rows whose ids have no time, so no partition of a time has them. Such a
// partition would be dropped with its rows, and dropped rows are not counted.
func cleanupLimit(f *fixture) {
	var rows []core.NewRow
	for i := range 7 {
		e := newRow("topic", "").Event
		e.ID = fmt.Sprintf("f%07x-0000-4000-8000-000000000000", i)
		rows = append(rows, rowOf(e))
	}
	f.commit(rows...)
	f.done(false, newIDs(rows)...)
	var steps []int
	f.eventually("all are deleted", func() bool {
		n := f.cleanup(time.Millisecond, 3)
		if n > 0 {
			steps = append(steps, n)
		}
		total := 0
		for _, s := range steps {
			total += s
		}
		return total == 7
	})
	f.must(len(steps) >= 3, "deleted in steps of %v", steps)
}

// earlierID returns an event id of three days ago, which is in no partition. A partition of the
// present would be dropped with its rows, and dropped rows are not counted.
func earlierID() string {
	ms := time.Now().Add(-3 * 24 * time.Hour).UnixMilli()
	return fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff) + core.NewEventID()[13:]
}

// cleanupReaches deletes rows in several rounds, and each round has lower ids and higher ones than
// the round before.
func cleanupReaches(f *fixture) {
	open := newRows(9, "topic", "")
	f.commit(open...)
	for round := range 3 {
		var ended []core.NewRow
		for i := range 4 {
			for _, id := range []string{
				fmt.Sprintf("%08x-0000-7000-8000-00000000000%d", 2-round, i), // long ago
				fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5%d%dV", round, i),
				earlierID(), core.DeriveEventID(core.NewEventID()),
				fmt.Sprintf("f%07x-0000-4000-8000-00000000000%d", round, i),
			} {
				e := newRow("topic", []string{"", "k"}[i%2]).Event
				e.ID = id
				ended = append(ended, rowOf(e))
			}
		}
		f.commit(ended...)
		f.done(false, newIDs(ended)...)
		deleted := 0
		for deleted < len(ended) { // a call for each three rows, which may each take long on a busy machine
			f.eventually("more of those that ended are deleted", func() bool {
				n := f.cleanup(time.Millisecond, 3)
				deleted += n
				return n > 0
			})
		}
		f.must(deleted == len(ended), "deleted %d rows, want %d", deleted, len(ended))
		f.must(f.backlog(100).Pending == int64(len(open)), "backlog %+v", f.backlog(100))
	}
}

// cleanupPasses deletes the row behind many that stay: a call reads many times its limit, as long
// as it has time. So it is deleted by the second call at the latest, not counting calls that went
// on for long, as they do on a busy machine.
func cleanupPasses(f *fixture) {
	const calls, long = 2, 500 * time.Millisecond
	var rows []core.NewRow
	for i := range 61 {
		e := newRow("topic", "").Event
		e.ID = fmt.Sprintf("00000001-00%02x-7000-8000-000000000000", i) // long ago
		rows = append(rows, rowOf(e))
	}
	f.commit(rows...)
	f.done(false, rows[60].ID)
	<-time.After(5 * time.Millisecond)
	deleted := 0
	for short := 0; deleted == 0 && short < calls; {
		start := time.Now()
		deleted = f.cleanup(time.Millisecond, 1)
		if time.Since(start) < long {
			short++
		}
	}
	f.must(deleted == 1, "deleted %d rows in %d short calls, want the last of 61", deleted, calls)
	f.must(f.backlog(100).Pending == 60, "backlog %+v", f.backlog(100))
}

func keyCases() []repositoryCase {
	return []repositoryCase{
		{"idle keys are collected and come back higher", keysCollected},
		{"keys with open or dead rows are not collected", keysInUse},
		{"keys used recently are not collected", keysRecent},
		{"a key that a transaction holds is not collected", keysLocked},
		{"a walk over all keys", keysWalk},
		{"a reset moves every key to the clock", keysReset},
		{"a reset of an empty table", func(f *fixture) { f.must(f.resetKeys() == 0, "changed something") }},
		{"a reset keeps what is open in order", keysResetOrder},
	}
}

func (f *fixture) collect(idle time.Duration, limit int) int {
	f.Helper()
	total := 0
	var after core.KeyID
	for range 10000 {
		deleted, next, err := f.Repository.CollectKeys(f.Context(), idle, after, limit)
		f.check(err)
		total += deleted
		if next.IsZero() {
			return total
		}
		f.must(bytes.Compare(next[:], after[:]) > 0, "CollectKeys went back from key id %x to %x", after, next)
		after = next
	}
	f.Fatal("CollectKeys does not come to an end")
	return 0
}

func (f *fixture) resetKeys() int {
	f.Helper()
	changed, err := f.Repository.ResetKeys(f.Context(), "ann", "failover")
	f.check(err)
	return changed
}

// collected waits until n keys have been collected.
func (f *fixture) collected(n, limit int) {
	f.Helper()
	total := 0
	f.eventually("the keys are idle", func() bool {
		total += f.collect(20*time.Millisecond, limit)
		return total >= n
	})
	f.must(total == n, "collected %d keys, want %d", total, n)
}

func keysCollected(f *fixture) {
	var last core.Inserted
	for life := range 3 {
		rows := newRows(4, "topic", "k")
		places := f.commit(rows...)
		f.chain(rows, places, nil, core.RowID{})
		f.must(places[0].KeySeq > last.KeySeq, "life %d begins at %d, not above %d", life, places[0].KeySeq,
			last.KeySeq)
		last = places[len(places)-1]
		f.done(life%2 == 1, newIDs(rows)...) // done rows may stay; deleted rows do not exist
		f.collected(1, 100)
	}
}

func keysInUse(f *fixture) {
	rows := map[string]core.NewRow{}
	places := map[string]core.Inserted{}
	for _, key := range []string{"open", "retry", "dead", "idle"} {
		n := newRow("topic", key)
		rows[key] = n
		places[key] = f.commit(hot(n)...)[0]
		c := hotRef(n)
		switch key {
		case "open":
			f.release(nodeA, c)
		case "retry":
			f.fail(nodeA, core.Failure{ClaimRef: c, Kind: core.FailRetry, Delay: time.Hour, Code: "c"})
		case "dead":
			f.fail(nodeA, core.Failure{ClaimRef: c, Kind: core.FailDead, Code: "c"})
		case "idle":
			f.done(false, n.ID)
		}
	}
	f.collected(1, 100)
	for _, key := range []string{"open", "retry", "dead"} {
		next, place := newRow("topic", key), places[key]
		f.chain([]core.NewRow{next}, f.commit(next), &place, rows[key].ID)
	}
}

func keysRecent(f *fixture) {
	row, next := newRow("topic", "k"), newRow("topic", "k")
	place := f.commit(row)[0]
	f.done(true, row.ID)
	f.must(f.collect(time.Hour, 100) == 0, "collected a key that was used just now")
	f.chain([]core.NewRow{next}, f.commit(next), &place, row.ID)
}

func keysLocked(f *fixture) {
	row, next := newRow("topic", "k"), newRow("topic", "k")
	place := f.commit(row)[0]
	f.done(true, row.ID)
	<-time.After(30 * time.Millisecond) // idle for long enough, but still locked
	tx := f.begin()
	at := f.insertIn(tx, next)
	if !f.SingleWriter {
		f.within(func(ctx context.Context) error {
			deleted, _, err := f.Repository.CollectKeys(ctx, 20*time.Millisecond, core.KeyID{}, 100)
			f.must(deleted == 0, "collected a key that a transaction holds")
			return err
		})
	}
	f.check(tx.Commit())
	f.chain([]core.NewRow{next}, at, &place, row.ID)
	f.must(f.collect(0, 100) == 0, "collected a key with an open row")
	third := newRow("topic", "k")
	f.chain([]core.NewRow{third}, f.commit(third), &at[0], next.ID)
}

func keysWalk(f *fixture) {
	var rows []core.NewRow
	for i := range 7 {
		rows = append(rows, newRow("topic", fmt.Sprint("key", i)))
	}
	f.commit(rows...)
	f.done(true, newIDs(rows)...)
	f.must(f.collect(time.Hour, 2) == 0, "collected keys that were used just now")
	f.collected(7, 2)
	f.must(f.collect(0, 2) == 0, "collected keys twice")
}

func keysReset(f *fixture) {
	rows := newRows(3, "topic", "k")
	places := f.commit(append(rows, newRow("topic", "other"))...)
	f.done(true, newIDs(rows)...)
	// The clock of SQLite counts milliseconds, and must pass the numbers of k.
	<-time.After(2 * time.Millisecond)
	if n, ok := f.Repository.(core.Waker); ok { // the row that some databases keep for it is no key
		if err := n.Notify(f.Context()); !errors.Is(err, errors.ErrUnsupported) {
			f.check(err)
		}
	}
	f.must(f.resetKeys() == 2, "want two keys changed")
	next := f.commit(newRow("topic", "k"), newRow("topic", "other"))
	for i, p := range next {
		f.must(!p.Opened && p.Prev.IsZero(), "place %+v after a reset, want neither opened nor a row before it", p)
		f.must(p.KeySeq > places[2].KeySeq && p.KeySeq > places[3].KeySeq, "place %d: %+v is not above %+v", i, p,
			places)
	}
	f.must(next[0].KeySeq == next[1].KeySeq, "two readings of the clock: %+v", next)
}

func keysResetOrder(f *fixture) {
	before, after := newRows(2, "topic", "k"), newRows(2, "topic", "k")
	f.commit(before...)
	f.resetKeys()
	f.commit(after...)
	f.wantIDs(f.heads(request(nodeA)), append(before, after...)...)
}
