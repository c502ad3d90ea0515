package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

// archiveCases are the cases of Cleanup with an archive.
func archiveCases() []repositoryCase {
	return []repositoryCase{
		{"each status has a time of its own", cleanByStatus},
		{"rows come complete", archiveComplete},
		{"rows of a failed archive stay and come again", archiveFails},
		{"an archive that fails later keeps what it got before", archiveFailsLater},
		{"at most so many rows and bytes at once", archiveParts},
		{"rows that are open, dead or young are not archived", archiveOnlyOld},
		{"rows that are deleted meanwhile", archiveRaces},
	}
}

const soon = time.Millisecond // after it a row is old

// clean calls Cleanup once.
func (f *fixture) clean(req core.CleanupRequest) (deleted int, err error) {
	f.Helper()
	deleted, _, err = f.Repository.Cleanup(f.Context(), req)
	return deleted, err
}

// archived cleans up until want rows are deleted, and returns what the archive got.
func (f *fixture) archived(want int) map[core.RowID]core.ArchivedEvent {
	f.Helper()
	got := map[core.RowID]core.ArchivedEvent{}
	deleted := 0
	f.eventually("rows are archived", func() bool {
		n, err := f.clean(core.CleanupRequest{
			Keep: soon, KeepDiscarded: soon, Limit: 100,
			Archive: func(_ context.Context, rows []core.ArchivedEvent) error {
				for _, row := range rows {
					if _, again := got[row.ID]; again {
						f.Errorf("row %s was archived twice", row.ID)
					}
					got[row.ID] = row
				}
				return nil
			},
		})
		f.check(err)
		deleted += n
		return deleted >= want
	})
	f.must(deleted == want && len(got) == want, "deleted %d and archived %d rows, want %d", deleted, len(got), want)
	return got
}

func cleanByStatus(f *fixture) {
	for _, c := range []core.CleanupRequest{
		{Keep: soon, KeepDiscarded: time.Hour}, {Keep: time.Hour, KeepDiscarded: soon},
	} {
		done, discarded := newRow("topic", "k"), newRow("topic", "")
		done.Event.ID, discarded.Event.ID = earlierID(), earlierID()
		done, discarded = rowOf(done.Event), rowOf(discarded.Event)
		f.commit(done, discarded)
		f.done(false, done.ID)
		f.discard(adminOf(discarded.ID))
		c.Limit = 100
		deleted := 0
		f.eventually("one of them is old", func() bool {
			n, err := f.clean(c)
			f.check(err)
			deleted += n
			return deleted > 0
		})
		for range 2 { // whole walks
			n, err := f.clean(c)
			f.check(err)
			deleted += n
		}
		f.must(deleted == 1, "%d rows are deleted, want 1", deleted)
		left := slices.Collect(maps.Keys(f.archived(1)))
		want := discarded.ID
		if c.Keep == time.Hour {
			want = done.ID
		}
		f.must(left[0] == want, "row %s is left, want %s", left[0], want)
	}
}

func archiveComplete(f *fixture) {
	var rows []core.NewRow
	for _, key := range []string{"k", ""} {
		e := newRow("topic", key).Event
		e.SchemaVersion, e.AggregateType, e.AggregateID, e.AggregateVersion = 3, "order", "1 é", 4
		e.TenantID, e.Headers, e.Payload = "t", map[string]string{"a": "b \"c\""}, []byte{0, 0xff, '{'}
		rows = append(rows, rowOf(e))
	}
	published, discarded := rows[0], rows[1]
	place := f.commit(published)[0]
	f.commit(hot(discarded)...)
	f.fail(nodeA, core.Failure{ClaimRef: hotRef(discarded), Kind: core.FailDead, Code: "boom", Message: "too large"})
	_, err := f.Repository.MarkDone(f.Context(), []core.Done{{ID: published.ID, Receipt: "orders/3@1042"}}, false)
	f.check(err)
	f.discard(adminOf(discarded.ID))
	got := f.archived(2)
	for i, want := range []core.ArchivedEvent{
		{ID: published.ID, KeyID: published.KeyID, KeySeq: place.KeySeq, Receipt: "orders/3@1042"},
		{ID: discarded.ID, Discarded: true, Attempts: 1, ErrorCode: "boom", Error: "too large"},
	} {
		a := got[want.ID]
		e := a.Event
		f.must(fmt.Sprintf("%+v", e) == fmt.Sprintf("%+v", rows[i].Event), "archived %+v, want %+v", e, rows[i].Event)
		f.must(a.Err == nil && !a.CreatedAt.IsZero() && !a.EndedAt.Before(a.CreatedAt) &&
			near(a.EndedAt.Sub(a.CreatedAt), 0), "archived %+v", a)
		a.Event, a.CreatedAt, a.EndedAt = core.Event{}, time.Time{}, time.Time{}
		f.must(fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", want), "archived %+v, want %+v", a, want)
	}
}

// endedRows returns n rows that are done and old. Their ids ascend and are of long ago.
func (f *fixture) endedRows(n int, payload []byte) []core.NewRow {
	f.Helper()
	rows := make([]core.NewRow, n)
	for i := range rows {
		e := newRow("topic", "").Event
		e.ID = fmt.Sprintf("00000001-0%03x-7000-8000-000000000000", i)
		e.Payload = payload
		rows[i] = rowOf(e)
	}
	f.commit(rows...)
	f.done(false, newIDs(rows)...)
	<-time.After(5 * soon)
	return rows
}

// archiveFails has an archive that always fails. A call of Clean may end before the archive is
// called, because its time is over. The next call goes on there.
func archiveFails(f *fixture) {
	rows := f.endedRows(3, []byte("{}"))
	broken := errors.New("the disk is full")
	calls := 0
	f.eventually("the archive is called three times", func() bool {
		before := calls
		n, err := f.clean(core.CleanupRequest{
			Keep: soon, KeepDiscarded: soon, Limit: 100,
			Archive: func(_ context.Context, got []core.ArchivedEvent) error {
				calls++
				f.must(len(got) == 3 && got[0].ID == rows[0].ID, "call %d of the archive got %d rows", calls, len(got))
				return broken
			},
		})
		f.must(n == 0 && errors.Is(err, broken) == (calls > before), "%d rows are deleted, %v", n, err)
		f.must(calls <= before+1, "one call of Clean called an archive that fails %d times", calls-before)
		return calls == 3
	})
	f.archived(3)
}

func archiveFailsLater(f *fixture) {
	const rows = core.ArchiveRows + 5
	f.endedRows(rows, []byte("{}"))
	broken := errors.New("the disk is full")
	calls, deleted := 0, 0
	f.eventually("the archive fails", func() bool {
		n, err := f.clean(core.CleanupRequest{
			Keep: soon, KeepDiscarded: soon, Limit: 1000,
			Archive: func(context.Context, []core.ArchivedEvent) error {
				if calls++; calls == 2 {
					return broken
				}
				return nil
			},
		})
		deleted += n
		f.must(errors.Is(err, broken) == (calls == 2), "after %d calls of the archive: %v", calls, err)
		return calls == 2
	})
	f.must(deleted == core.ArchiveRows, "%d rows are deleted", deleted)
	f.archived(5)
}

func archiveParts(f *fixture) {
	big := make([]byte, core.ArchiveBytes/2-1)
	f.endedRows(5, big)
	var parts []int
	deleted := 0
	f.eventually("all are deleted", func() bool {
		n, err := f.clean(core.CleanupRequest{
			Keep: soon, KeepDiscarded: soon, Limit: 100,
			Archive: func(_ context.Context, rows []core.ArchivedEvent) error {
				parts = append(parts, len(rows))
				return nil
			},
		})
		f.check(err)
		deleted += n
		return deleted == 5
	})
	f.must(slices.Equal(parts, []int{2, 2, 1}), "parts of %v rows, want 2, 2 and 1", parts)
}

func archiveOnlyOld(f *fixture) {
	open, young := newRow("topic", "k"), newRow("topic", "k")
	f.commit(open, young)
	f.addDead(newRow("topic", ""))
	f.done(false, young.ID)
	for range 2 {
		n, err := f.clean(core.CleanupRequest{
			Keep: time.Hour, KeepDiscarded: time.Hour, Limit: 100,
			Archive: func(_ context.Context, rows []core.ArchivedEvent) error {
				f.Errorf("archived %+v", rows)
				return nil
			},
		})
		f.must(n == 0 && err == nil, "%d rows are deleted, %v", n, err)
	}
	got := f.archived(1)
	f.must(got[young.ID].ID == young.ID, "archived %+v", got)
	b := f.backlog(100)
	f.must(b.Pending == 1 && b.Dead == 1, "backlog %+v", b)
}

// archiveRaces cleans up within a cleanup. The inner one may delete the rows or leave them because
// they are locked, but no row is counted twice. A call of Clean may end before the archive is
// called, because its time is over.
func archiveRaces(f *fixture) {
	f.endedRows(3, []byte("{}"))
	inner, outer := 0, 0
	f.eventually("the rows are deleted", func() bool {
		n, err := f.clean(core.CleanupRequest{
			Keep: soon, KeepDiscarded: soon, Limit: 100,
			Archive: func(context.Context, []core.ArchivedEvent) error {
				n, err := f.clean(core.CleanupRequest{
					Keep: soon, KeepDiscarded: soon, Limit: 100,
					Archive: func(context.Context, []core.ArchivedEvent) error { return nil },
				})
				inner += n
				if _, locked := errors.AsType[*core.LockedError](err); locked { // by the outer one
					return nil
				}
				return err
			},
		})
		f.check(err)
		outer += n
		return inner+outer >= 3
	})
	f.must(inner+outer == 3, "%d and %d rows are deleted, want 3 together", inner, outer)
}
