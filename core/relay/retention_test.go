package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
)

// A relay deletes published rows after Retention.Keep and unused keys after a day, in chunks, also
// after the database was away. The observer hears what was deleted. Dead rows stay.
func TestJanitor(t *testing.T) {
	for name, disabled := range map[string]bool{"runs": false, "disabled": true} {
		bubble(t, name, func(t *testing.T) {
			var mu sync.Mutex
			cleaned := map[string]int{}
			w := newWorld(t, core.Config{
				Relay: relay.Config{
					DisableJanitor: disabled,
					Retention:      relay.Retention{Keep: time.Hour, CleanupInterval: time.Minute, CleanupBatch: 2},
				},
				Observer: &core.Observer{Cleaned: func(table string, rows int) {
					mu.Lock()
					defer mu.Unlock()
					cleaned[table] += rows
					if rows > 2 {
						t.Errorf("%d rows of %s in one chunk", rows, table)
					}
				}},
			})
			away := errors.New("away")
			for _, m := range []outboxtest.Method{outboxtest.MethodCleanup, outboxtest.MethodCollectKeys} {
				w.faulty.Fail(outboxtest.Fault{Method: m, Err: away, Times: 3})
			}
			w.run()
			w.publish(core.Event{Type: "a", Key: "1"}, core.Event{Type: "a", Key: "2"},
				core.Event{Type: "a", Key: "3"}, core.Event{Type: "a"}, core.Event{Type: "a"})
			synctest.Wait() // they are published
			w.pub.FailNext(1, core.Permanent(errors.New("no")))
			w.publish(core.Event{Type: "a", Key: "dead"})
			time.Sleep(50 * time.Minute)
			equal(t, len(w.repo.Rows()), 6, "rows within the retention")
			time.Sleep(30 * time.Hour)
			rows, keys, want := 1, 1, map[string]int{"event": 5, "key": 3}
			if disabled {
				rows, keys, want = 6, 4, map[string]int{}
			}
			if got := w.repo.Rows(); len(got) != rows || w.repo.Keys() != keys {
				t.Errorf("%d rows and %d keys are left, want %d and %d", len(got), w.repo.Keys(), rows, keys)
			}
			mu.Lock()
			if !maps.Equal(cleaned, want) {
				t.Errorf("heard of %v, want %v", cleaned, want)
			}
			mu.Unlock()
			_ = w.stop()
		})
	}
}

func archiveNothing(context.Context, []core.ArchivedEvent) error { return nil }

// archiveWorld is a relay with an archive, which published five events and discarded one.
func archiveWorld(t *testing.T, keep relay.Retention, cleaned func(rows int)) (repo *outboxtest.Repository,
	log *logLines,
) {
	t.Helper()
	repo, log = outboxtest.NewRepository(), &logLines{}
	ob := newOutbox(t, core.Config{
		Repository: repo, Publisher: &outboxtest.Publisher{}, Relay: relay.Config{Retention: keep},
		Logger:   slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Observer: &core.Observer{Cleaned: func(_ string, rows int) { cleaned(rows) }},
	})
	publish := func(events ...core.Event) {
		must(t, publishTx(t.Context(), repo, ob, events...))
	}
	publish(core.Event{Type: "discarded", Delay: time.Hour})
	id := repo.Rows()[0].ID
	must(t, errOf(ob.Discard(t.Context(), core.AdminRequest{
		IDs: []core.RowID{id}, Actor: "ann", Reason: "a test", Force: true,
	})))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ob.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(time.Hour):
			t.Error("Run has not returned an hour after its context ended")
		}
	})
	for range 5 {
		publish(core.Event{Type: "published"})
	}
	return repo, log
}

// Rows of an archive that fails stay, however it fails. The janitor comes back to them.
func TestArchiveFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, archived, deleted atomic.Int64
		repo, log := archiveWorld(t, relay.Retention{
			Keep: time.Hour, CleanupInterval: time.Minute,
			Archive: func(ctx context.Context, rows []core.ArchivedEvent) error {
				if d, ok := ctx.Deadline(); !ok || time.Until(d) > time.Minute {
					t.Errorf("the context of the archive ends %v", d)
				}
				switch calls.Add(1) {
				case 1:
					return errors.New("the disk is full")
				case 2:
					panic("of the archive")
				}
				archived.Add(int64(len(rows)))
				return nil
			},
		}, func(rows int) { deleted.Add(int64(rows)) })
		time.Sleep(30 * time.Minute)
		equal(t, calls.Load(), 0, "calls for rows that are young")
		for calls.Load() < 2 {
			time.Sleep(10 * time.Second)
		}
		if n := len(repo.Rows()); n != 6 || deleted.Load() != 0 {
			t.Errorf("%d rows are left and %d were deleted after two failures, want 6 and 0", n, deleted.Load())
		}
		time.Sleep(time.Hour)
		if n := len(repo.Rows()); n != 0 || archived.Load() != 6 || deleted.Load() != 6 {
			t.Errorf("%d rows are left, %d archived, %d deleted, want 0, 6 and 6", n, archived.Load(), deleted.Load())
		}
		for _, want := range []string{"the disk is full", "panic: of the archive"} {
			if !log.has("Retention.Archive: " + want) {
				t.Errorf("no %q in the log", want)
			}
		}
	})
}

// An archive that ignores the end of its context keeps neither the janitor nor the end of Run. No
// second call begins beside it, and its rows stay until a call returns.
func TestArchiveHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls, deleted atomic.Int64
		hang := make(chan struct{})
		t.Cleanup(func() { close(hang) }) // after the cleanup of archiveWorld, which waits for Run
		repo, log := archiveWorld(t, relay.Retention{
			Keep: time.Hour, CleanupInterval: time.Minute,
			Archive: func(context.Context, []core.ArchivedEvent) error {
				if calls.Add(1) == 2 {
					runtime.Goexit()
				}
				<-hang
				return nil
			},
		}, func(rows int) { deleted.Add(int64(rows)) })
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		equal(t, calls.Load(), 1, "calls at once")
		if n := log.count("it has not returned although its context has ended"); n < 20 {
			t.Errorf("the log names the archive that hangs %d times in an hour", n)
		}
		hang <- struct{}{} // its rows stay: nobody knows what the call had done when it was left alone
		synctest.Wait()
		if n := len(repo.Rows()); n != 6 || deleted.Load() != 0 {
			t.Errorf("%d rows are left and %d were deleted, want 6 and 0", n, deleted.Load())
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if want := "runtime.Goexit"; !log.has("Retention.Archive", want) {
			t.Errorf("no %q in the log", want)
		}
		time.Sleep(10 * time.Minute)
		equal(t, calls.Load(), 3, "calls after one that returned and one that ended its goroutine")
	})
}

// Discarded rows have a time of their own.
func TestJanitorByStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo, _ := archiveWorld(t, relay.Retention{Keep: time.Hour, KeepDiscarded: 10 * time.Hour}, func(int) {})
		time.Sleep(5 * time.Hour)
		if rows := repo.Rows(); len(rows) != 1 || rows[0].Status != outboxtest.StatusDiscarded {
			t.Errorf("%+v is left, want the discarded row", rows)
		}
		time.Sleep(6 * time.Hour)
		if rows := repo.Rows(); len(rows) != 0 {
			t.Errorf("%+v is left", rows)
		}
	})
}

// slowToDelete is a table that deletes no more than some rows within the time limit of a statement.
type slowToDelete struct {
	*outboxtest.Repository
	most  int
	calls atomic.Int64
}

func (r *slowToDelete) Cleanup(ctx context.Context, req core.CleanupRequest) (int, bool, error) {
	r.calls.Add(1)
	if req.Limit > r.most {
		return 0, false, fmt.Errorf("delete: %w", context.DeadlineExceeded)
	}
	return r.Repository.Cleanup(ctx, req)
}

// A time limit of the database that the whole batch never meets makes the batch smaller.
func TestCleanupUnderATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repo := &slowToDelete{Repository: outboxtest.NewRepository(), most: 40}
		w := join(t, repo.Repository, &outboxtest.Publisher{}, core.Config{
			Repository: repo,
			Relay:      relay.Config{Retention: relay.Retention{Keep: time.Hour, CleanupInterval: time.Minute}},
		}).run()
		const events = 2000
		for range events / 100 {
			w.publish(slices.Repeat([]core.Event{{Type: "a"}}, 100)...)
		}
		time.Sleep(time.Hour + 3*time.Minute)
		if n := len(repo.Rows()); n > 0 {
			t.Errorf("%d of %d rows are left", n, events)
		}
		if n := repo.calls.Load(); n > 2*60+2*events/40 {
			t.Errorf("%d statements", n)
		}
	})
}
