package relay_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// picky is a table that refuses statements because of their values.
type picky struct {
	core.Repository
	mu     sync.Mutex
	text   string              // the table cannot store errors and receipts that contain it
	rows   map[core.RowID]bool // the table does not change these rows
	calls  atomic.Int64        // the number of marks
	closed atomic.Bool         // the table changes no row at all
}

var errPicky = errors.New("incorrect string value")

func (p *picky) refuses(id core.RowID, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() || p.rows[id] || p.text != "" && strings.Contains(text, p.text) {
		return errPicky
	}
	return nil
}

func (p *picky) never(ids ...core.RowID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rows = map[core.RowID]bool{}
	for _, id := range ids {
		p.rows[id] = true
	}
}

func (p *picky) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (int, error) {
	p.calls.Add(1)
	for _, d := range done {
		if err := p.refuses(d.ID, d.Receipt); err != nil {
			return 0, err
		}
	}
	return p.Repository.MarkDone(ctx, done, deleteRows)
}

func (p *picky) MarkFailed(ctx context.Context, node string, failures []core.Failure) ([]bool, error) {
	p.calls.Add(1)
	for _, f := range failures {
		if err := p.refuses(f.ID, f.Message); err != nil {
			return nil, err
		}
	}
	return p.Repository.MarkFailed(ctx, node, failures)
}

// receipts is a publisher that returns a receipt for each event.
type receipts struct {
	*outboxtest.Publisher
	receipt string
}

func (r receipts) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	return r.receipt, r.Publish(ctx, d)
}

func rowOf(t *testing.T, repo *outboxtest.Repository, eventID string) outboxtest.Row {
	t.Helper()
	for _, r := range repo.Rows() {
		if r.Event.ID == eventID {
			return r
		}
	}
	t.Fatalf("no row of event %s", eventID)
	return outboxtest.Row{}
}

// A table that cannot store an error text stores the outcome without it, and stores every other
// outcome. An event that is done is marked once, and is not released as well.
func TestEachOutcomeIsWrittenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var marked atomic.Int64
		w := newWorld(t,
			core.Config{Observer: &core.Observer{Marked: func(rows int, _ time.Duration, _ error) {
				marked.Add(int64(rows))
			}}})
		w.run()
		for i := range 300 {
			w.publish(core.Event{Type: "a"}, core.Event{Type: "b", Key: fmt.Sprint(i % 10)})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		w.atRest(600)
		if n := w.faulty.Calls(outboxtest.MethodRelease); n != 0 || marked.Load() != 600 {
			t.Errorf("%d outcomes written for 600 events, %d releases", marked.Load(), n)
		}
	})
}

func TestTextThatCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		p := &picky{Repository: repo, text: "🤷"}
		pub := &outboxtest.Publisher{}
		w := join(t, repo, pub, core.Config{Repository: p, Publisher: receipts{pub, "where 🤷"}}).run()
		pub.Outage("bad", core.Permanent(errors.New("no 🤷 today")))
		bad := w.publish(core.Event{Type: "bad"})[0]
		for range 300 {
			w.publish(core.Event{Type: "good"})
		}
		time.Sleep(time.Second)
		if r := rowOf(t, repo, bad); r.Status != outboxtest.StatusDead || r.ErrorCode != "permanent" || r.Error != "" {
			t.Errorf("row %+v, want a dead one with its code", r)
		}
		if got := w.statuses(); got[outboxtest.StatusDone] != 300 {
			t.Errorf("rows by status: %v", got)
		}
	})
}

// The relay marks a row that the table refuses to change apart from the others, whether its event
// was accepted or refused. The relay tries that mark until it succeeds.
func TestRowThatCannotBeMarked(t *testing.T) {
	for _, fails := range []bool{false, true} {
		bubble(t, fmt.Sprintf("fails=%t", fails), func(t *testing.T) {
			repo := outboxtest.NewRepository()
			p := &picky{Repository: repo}
			pub := &outboxtest.Publisher{}
			w := join(t, repo, pub, core.Config{Repository: p}).run()
			e := core.Event{ID: core.NewEventID(), Type: "bad", Topic: "bad"}
			id, err := core.NewRowID(e.ID, "bad")
			must(t, err)
			p.never(id)
			pub.FailFor(func(d core.Delivery) error {
				if fails && d.Topic == "bad" {
					return core.Permanent(errors.New("no"))
				}
				return nil
			})
			w.publish(e)
			time.Sleep(time.Second)
			for range 20 { // more events than may wait for their marks
				for range 50 {
					w.publish(core.Event{Type: "good"})
				}
				time.Sleep(100 * time.Millisecond)
			}
			if got := w.statuses(); got[outboxtest.StatusDone] != 1000 {
				t.Fatalf("rows by status: %v, want 1000 done", got)
			}
			p.never()
			time.Sleep(time.Minute)
			want := outboxtest.StatusDone
			if fails {
				want = outboxtest.StatusDead
			}
			if r := rowOf(t, repo, e.ID); r.Status != want {
				t.Errorf("the row is %s, want %s", r.Status, want)
			}
			if n := len(pub.Accepted()); !fails && n != 1001 {
				t.Errorf("%d copies of 1001 events", n)
			}
		})
	}
}

// While no mark can be written, the relay pauses publishing. It goes on once marks can be written.
func TestNothingCanBeMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := outboxtest.NewRepository()
		p := &picky{Repository: repo}
		w := join(
			t,
			repo,
			&outboxtest.Publisher{},
			core.Config{Repository: p, Relay: relay.Config{MaxUnmarked: 20, Workers: 4}},
		).run()
		p.closed.Store(true)
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		time.Sleep(9 * time.Second)
		if n := len(w.pub.Accepted()); n > 24 {
			t.Errorf("%d events published without a mark, want at most 24", n)
		}
		if n := p.calls.Load(); n > 1000 {
			t.Errorf("%d statements in 9 s", n)
		}
		p.closed.Store(false)
		time.Sleep(5 * time.Second)
		w.atRest(100)
	})
}

// Only the rows that another transaction holds wait. A lock on rows of one topic does not stop
// another topic, however long the lock lasts and however many rows it covers. When the lock ends,
// the rows are marked without a second copy.
func TestLockedRowsStopNobody(t *testing.T) {
	for _, n := range []int{1, 400} {
		bubble(t, fmt.Sprintf("%d rows", n), func(t *testing.T) {
			w := newWorld(t, core.Config{})
			w.pub.Block()
			w.run()
			var rows []core.RowID
			for range n {
				id, err := core.NewRowID(w.publish(core.Event{Type: "a"})[0], "a")
				must(t, err)
				rows = append(rows, id)
			}
			tx, err := w.repo.Begin(t.Context())
			must(t, err)
			must(t, tx.LockRows(t.Context(), rows...))
			w.pub.Unblock()
			for i := range 1000 {
				w.publish(core.Event{Type: "b", Key: fmt.Sprint(i % 10)})
			}
			time.Sleep(3 * time.Second) // less than the lease of the fast path
			if got := w.statuses(); got[outboxtest.StatusDone] != 1000 || got[outboxtest.StatusNew] != n {
				t.Fatalf("rows by status: %v, want 1000 done", got)
			}
			must(t, tx.Rollback())
			time.Sleep(3 * time.Second)
			w.atRest(1000 + n)
			if got := len(w.pub.Accepted()); got != 1000+n {
				t.Errorf("%d copies of %d events", got, 1000+n)
			}
			inOrder(t, w.pub.Accepted())
		})
	}
}

// If rows are locked, their refusals and releases are the only marks that wait.
func TestLockedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, core.Config{})
		w.pub.Outage("a", core.Permanent(errors.New("no")))
		bad := core.Event{ID: core.NewEventID(), Type: "a"}
		id, err := core.NewRowID(bad.ID, "a")
		must(t, err)
		w.publish(bad)
		w.pub.Block()
		w.run()
		time.Sleep(time.Second) // the row is claimed by now
		tx, err := w.repo.Begin(t.Context())
		must(t, err)
		must(t, tx.LockRows(t.Context(), id))
		w.pub.Unblock()
		for range 500 {
			w.publish(core.Event{Type: "b"})
		}
		time.Sleep(time.Second)
		if got := w.statuses(); got[outboxtest.StatusDone] != 500 || got[outboxtest.StatusNew] != 1 {
			t.Fatalf("rows by status: %v, want 500 done", got)
		}
		must(t, tx.Rollback())
		time.Sleep(3 * time.Second)
		if r := rowOf(t, w.repo, bad.ID); r.Status != outboxtest.StatusDead || r.Attempts != 1 {
			t.Errorf("row %+v, want a dead one", r)
		}
	})
}

// Marks of claimed events are written in batches as large as a claim. Those of the fast path are
// written in batches of MarkBatch.
func TestBatchesOfMarks(t *testing.T) {
	const events, publish, delay = 1000, time.Millisecond, time.Minute
	for _, path := range []core.Path{core.PathHot, core.PathCold} {
		bubble(t, string(path), func(t *testing.T) {
			var mu sync.Mutex
			var batches []int
			w := newWorld(t, core.Config{
				Relay: relay.Config{MarkDelay: delay},
				Publisher: core.PublisherFunc(func(context.Context, core.Delivery) error {
					time.Sleep(publish)
					return nil
				}),
				Observer: &core.Observer{Marked: func(rows int, _ time.Duration, _ error) {
					mu.Lock()
					defer mu.Unlock()
					batches = append(batches, rows)
				}},
			})
			from := w
			if path == core.PathCold {
				from = join(t, w.repo, w.pub, core.Config{}) // a process without a relay
			} else {
				w.run()
			}
			all := make([]core.Event, events)
			for i := range all {
				all[i] = core.Event{Type: "a"}
			}
			from.publish(all...)
			if path == core.PathCold {
				w.run()
			}
			time.Sleep(2 * delay)
			w.atRest(events)
			const workers, markBatch = 32, 100
			for i, n := range batches {
				if path == core.PathHot && (n > markBatch+workers || n < markBatch && i < len(batches)-1) {
					t.Errorf("batches of %v marks, want %d or a little more", batches, markBatch)
					break
				}
			}
			if path == core.PathCold && len(batches) != 2 {
				t.Errorf("batches of %v marks, want 2: one for each claim", batches)
			}
		})
	}
}

// While no mark can be written, each path publishes only as many events as a crash may repeat. The
// fast path publishes MaxUnmarked events and one for each worker, and the poller publishes
// ColdEvents. The fast path does not hold the poller back.
func TestUnmarkedEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers, maxUnmarked, coldEvents = 4, 10, 30
		w := newWorld(t, core.Config{
			Relay: relay.Config{
				Workers:     workers,
				MarkBatch:   5,
				MaxUnmarked: maxUnmarked,
				ColdEvents:  coldEvents,
				ClaimBatch:  20,
			},
		})
		other := join(t, w.repo, w.pub, core.Config{}) // a process without a relay
		w.faulty.Fail(outboxtest.Fault{Method: outboxtest.MethodMarkDone, Times: -1})
		w.run()
		w.pub.Block() // a mark that fails keeps new events from the fast path for a moment
		for range 100 {
			w.publish(core.Event{Type: "a"})
		}
		w.pub.Unblock()
		for range 100 {
			other.publish(core.Event{Type: "a"})
		}
		time.Sleep(20 * time.Second) // less than a lease of the poller
		if n := w.hot.Load(); n < maxUnmarked || n > maxUnmarked+workers {
			t.Errorf("%d events of the fast path were published without a mark, want %d to %d", n, maxUnmarked,
				maxUnmarked+workers)
		}
		equal(t, w.cold.Load(), coldEvents, "claimed events were published without a mark")
		w.faulty.Heal()
		time.Sleep(time.Minute)
		w.atRest(200)
		equal(t, len(w.pub.Accepted()), 200, "copies of 200 events")
	})
}

// limited fails MarkDone with an error of the database if it gets more rows than most.
type limited struct {
	*outboxtest.Repository
	most int
	err  error
}

func (r *limited) MarkDone(ctx context.Context, done []core.Done, deleteRows bool) (int, error) {
	if len(done) > r.most {
		return 0, r.err
	}
	return r.Repository.MarkDone(ctx, done, deleteRows)
}

// sqlState is an error of PostgreSQL.
type sqlState string

func (s sqlState) Error() string    { return "SQLSTATE " + string(s) }
func (s sqlState) SQLState() string { return string(s) }

// A batch of marks that is too large for the database is written in parts.
func TestMarksAreWrittenInParts(t *testing.T) {
	for name, err := range map[string]error{
		"a deadlock": sqlState("40P01"), "a time limit": sqlState("57014"),
		"another error": errors.New("packet too large"),
	} {
		bubble(t, name, func(t *testing.T) {
			repo := &limited{outboxtest.NewRepository(), 3, err}
			w := join(t, repo.Repository, &outboxtest.Publisher{}, core.Config{Repository: repo}).run()
			for range 50 {
				w.publish(core.Event{Type: "a"})
			}
			time.Sleep(time.Second)
			w.atRest(50)
		})
	}
}
