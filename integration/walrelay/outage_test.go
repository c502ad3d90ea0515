package walrelay_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/ops"
	"github.com/ormoutbox/ormoutbox/core/ops/sqlops"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

var errAway = core.Unavailable(errors.New("away"))

// While a destination is away, the others go on. The relay does not confirm the position of events
// that the destination lacks, and spends no attempt. It reads nothing beyond the window.
func TestOutage(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.pub.Outage("down", errAway)
		cfg := w.config()
		cfg.Window, cfg.StallLimit = 20, -1
		stop := w.run(cfg)
		down := func(n int) core.Event {
			return core.Event{Type: "counted", Topic: "down", Key: "d", Payload: []byte(fmt.Sprint(n))}
		}
		w.service.Publish(down(1), down(2))
		behind := w.lsn("SELECT pg_current_wal_lsn()::text") // both committed before this position
		w.publish("a", 1, 10)
		w.await(10)
		w.publish("b", 1, 30) // more events than the window has room for
		fixture.Await(t, "the window is full", func() bool { return len(w.copies("b")) == 8 })
		stop()
		if got := w.confirmed(); got >= behind {
			t.Errorf("confirmed %s, although events before %s are not published", got, behind)
		}
		w.run(cfg)
		w.pub.Restore("down")
		fixture.Await(t, "all events are published", func() bool {
			return len(w.copies("d")) >= 2 && w.last("b") == "30"
		})
		w.wantRepeats("a", 10)
		w.wantRepeats("b", 30)
		if got := w.copies("d"); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("key d: %v", got)
		}
		for _, row := range w.service.Rows() {
			fixture.Must(t, row.Attempts == 0 && row.Holder == core.LogReader, "an outage changed a row: %+v", row)
		}
	})
}

// After StallLimit the events of a destination that is away wait in the table, and the others go on
// however long the outage lasts.
func TestStall(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.pub.Outage("down", errAway)
		cfg := w.config()
		cfg.Window, cfg.StallLimit, cfg.CheckpointEvery = 20, 10*time.Millisecond, 100*time.Millisecond
		w.run(cfg)
		for i := 1; i <= 30; i++ {
			w.service.Publish(core.Event{Type: "counted", Topic: "down", Key: "d", Payload: []byte(fmt.Sprint(i))})
			w.service.Publish(core.Event{Type: "counted", Topic: "down", Payload: []byte("loose")})
		}
		w.publish("a", 1, 30)
		w.await(30)
		if n := w.service.Statuses()[fixture.StatusNew]; n == 0 {
			t.Error("no event waits in the table")
		}
		end := w.lsn("SELECT pg_current_wal_lsn()::text")
		fixture.Await(t, "the server need not keep the log", func() bool { return w.confirmed() >= end })
		w.pub.Restore("down")
		w.await(90)
		w.wantRepeats("a", 30)
		w.wantRepeats("d", 30)
		for _, row := range w.service.Rows() {
			fixture.Must(t, row.Attempts == 0, "an outage spent an attempt: %+v", row)
		}
	})
}

// A person replays an event that is in the log and not published yet. The replay, which has a key
// of its own, is not the first copy of the event, and does not come before earlier events of the
// key.
func TestReplayOfWaitingEvent(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		ids := w.publish("a", 1, 30)
		relay := w.relay(w.config())
		api, err := sqlops.New(relay.Outbox())
		fixture.NoError(t, err)
		for _, id := range []string{ids[29], ids[1]} {
			row, err := core.NewRowID(id, "counts")
			fixture.NoError(t, err)
			p, err := api.PlanReplay(t.Context(), ops.Filter{},
				ops.ReplayOptions{IDs: []core.RowID{row}, DedupWindow: time.Hour})
			fixture.NoError(t, err)
			stored, err := api.StorePlan(t.Context(), p, "ann", "it is not there")
			fixture.NoError(t, err)
			_, err = api.RunPlan(t.Context(), stored.ID, ops.RunOptions{Actor: "ann"})
			fixture.NoError(t, err)
		}
		end := w.lsn("SELECT pg_current_wal_lsn()::text") // behind the replays
		w.pub.Outage("counts", errAway)
		cfg := w.config()
		cfg.Window, cfg.StallLimit = 5, 10*time.Millisecond
		r := w.relay(cfg)
		fixture.RunRelay(w, r)
		fixture.Await(t, "events wait in the table, and the replays have been read", func() bool {
			st, err := r.Status(t.Context())
			return err == nil && st.Confirmed >= end && w.service.Statuses()[fixture.StatusNew] >= 28
		})
		w.pub.Restore("counts")
		w.awaitLast("a", 30)
		w.wantRepeats("a", 30)
		for _, d := range w.pub.Accepted() {
			if !d.ReplayOf.IsZero() {
				t.Errorf("the replay of an event that waited is published: %s", d.Payload)
			}
		}
	})
}

// A refused event that may succeed later is tried again from the table. The rest of its key
// follows.
func TestRetry(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		tries := map[string]int{}
		w.pub.FailFor(func(d core.Delivery) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if tries[string(d.Payload)]++; d.Key == "a" && string(d.Payload) == "2" && tries["2"] < 4 {
				return core.Transient(errors.New("busy"))
			}
			return nil
		})
		w.run(w.config())
		w.publish("a", 1, 5)
		w.await(5)
		if got := w.copies("a"); !slices.Equal(got, []string{"1", "2", "3", "4", "5"}) {
			t.Errorf("key a: %v", got)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if tries["2"] != 4 {
			t.Errorf("%d tries, want 4", tries["2"])
		}
	})
}

// With SkipDead a dead event does not hold up its key.
func TestSkipDead(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.refuse("a", 2)
		cfg := w.config()
		cfg.Outbox.DeadPolicy = core.SkipDead
		relay := w.relay(cfg)
		fixture.RunRelay(w, relay)
		w.publish("a", 1, 4)
		w.await(3)
		if got := w.copies("a"); !slices.Equal(got, []string{"1", "3", "4"}) {
			t.Errorf("key a: %v", got)
		}
		fixture.Await(t, "one event is dead, and the others are done", func() bool {
			s := w.service.Statuses()
			return s[fixture.StatusDead] == 1 && s[fixture.StatusDone] == 3
		})
	})
}

// A person discards a spilled event. It is not sent, also when the log is read again, and the key
// goes on.
func TestDiscard(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.pub.Outage("down", errAway) // nothing is confirmed, so that all events are read again
		cfg := w.config()
		cfg.StallLimit = -1
		relay := w.relay(cfg)
		stop := fixture.RunRelay(w, relay)
		w.service.Publish(core.Event{Type: "counted", Topic: "down"})
		w.refuse("a", 2)
		w.publish("a", 1, 3)
		fixture.Await(t, "an event is dead", func() bool {
			return w.service.Statuses()[fixture.StatusDead] == 1 && w.service.Statuses()[fixture.StatusNew] == 1
		})
		dead, err := relay.Outbox().ListDead(t.Context(), core.DeadQuery{})
		fixture.NoError(t, err)
		n, err := relay.Outbox().Discard(t.Context(), core.AdminRequest{
			IDs: []core.RowID{dead[0].ID}, Actor: "ann", Reason: "wrong",
		})
		if err != nil || n != 1 {
			t.Fatal(n, err)
		}
		w.await(2)
		stop()
		w.pub.FailFor(nil)
		w.run(cfg)
		w.publish("a", 4, 4)
		w.awaitLast("a", 4)
		if got := w.copies("a"); slices.Contains(got, "2") {
			t.Errorf("key a: %v", got)
		}
	})
}

// Events of a topic that the publisher does not take are left to another relay, and delay no
// others.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		router := core.NewRouter()
		router.Handle("counts", w.pub)
		cfg := w.config()
		cfg.Outbox.Publisher = router
		w.run(cfg)
		other := core.Event{Type: "counted", Topic: "other"}
		w.service.Publish(other)
		other.Key = "o"
		w.service.Publish(other)
		w.publish("a", 1, 3)
		w.await(3)
		fixture.Await(t, "two events wait for another relay", func() bool {
			return w.service.Statuses()[fixture.StatusNew] == 2
		})
		fixture.JoinProcess(t, w.db, w.pub, core.Config{Relay: relay.Config{DisableJanitor: true}}).Run()
		w.await(5)
	})
}

// The events of a transaction that is larger than the window arrive in their order. Meanwhile the
// table gets new columns.
func TestLargeTransaction(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.Window, cfg.WindowBytes = 50, 1<<20
		w.run(cfg)
		w.publish("a", 1, 1)
		fixture.MustExec(t, w.service.Pool, "ALTER TABLE outbox_event ADD COLUMN more text DEFAULT 'x'")
		fixture.MustExec(t, w.service.Pool, "ALTER TABLE outbox_event ADD COLUMN other bigint[]")
		var events []core.Event
		for i := 2; i <= 1000; i++ {
			e := event("a", i)
			if i%100 == 0 {
				e.Headers = map[string]string{"x-long": string(bytes.Repeat([]byte("x"), 10_000))}
			}
			events = append(events, e)
		}
		w.service.Publish(events...)
		w.await(1000)
		w.wantRepeats("a", 1000)
		if len(w.pub.Accepted()) != 1000 {
			t.Errorf("%d copies", len(w.pub.Accepted()))
		}
	})
}

// After a lost connection the server sends events again. The relay does not publish them again.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.StallLimit = -1
		w.pub.Outage("down", errAway) // nothing is confirmed, so that the server sends all events again
		w.service.Publish(core.Event{Type: "counted", Topic: "down"})
		stop := w.run(cfg)
		for i := 1; i <= 3; i++ {
			w.publish("a", 10*i-9, 10*i)
			w.await(10 * i)
			fixture.MustExec(t, w.service.Pool, "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "+
				"WHERE slot_name = '"+w.slot+"' AND active")
		}
		w.publish("a", 31, 40)
		w.await(40)
		w.pub.Restore("down")
		w.await(41)
		stop()
		w.wantRepeats("a", 40)
		if n := len(w.pub.Accepted()); n != 41 {
			t.Errorf("%d copies of 41 events", n)
		}
	})
}

// A second process waits, and goes on when the first one ends.
func TestStandBy(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		relays := []*walrelay.Relay{w.relay(w.config()), w.relay(w.config())}
		stops := []func(){fixture.RunRelay(w, relays[0]), fixture.RunRelay(w, relays[1])}
		w.publish("a", 1, 5)
		w.await(5)
		leading := func() (n int) {
			for i, r := range relays {
				s, err := r.Status(t.Context())
				fixture.NoError(t, err)
				if s.Leading {
					n = i + 1
				}
			}
			return n
		}
		first := leading()
		fixture.Must(t, first != 0, "no relay reads the slot")
		stops[first-1]()
		w.publish("a", 6, 10)
		w.await(10)
		fixture.Check(t, leading() == 3-first, "the other relay does not read the slot")
		w.wantRepeats("a", 10)
	})
}

// A relay reports the metrics of its slot in each case: it reads the slot, another process does, no
// process does, and the slot is missing.
func TestLogBacklog(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		reads, stands := w.relay(w.config()), w.relay(w.config())
		ask := func(r *walrelay.Relay) core.LogBacklog {
			t.Helper()
			b, err := r.LogBacklog(t.Context())
			fixture.NoError(t, err)
			return b
		}
		if _, err := reads.LogBacklog(t.Context()); !errors.Is(err, walrelay.ErrNotSetUp) {
			t.Errorf("without the table: %v", err)
		}
		w.setUp()
		w.publish("a", 1, 1)
		if b := ask(stands); b.Slot != w.slot || !b.Known || b.Active || b.Lost || b.Leading || b.Behind <= 0 ||
			b.Kept < b.Behind {
			t.Errorf("nobody reads it: %+v", b)
		}
		w.pub.FailFor(func(d core.Delivery) error {
			if d.Key == "bad" {
				return errRefused
			}
			return nil
		})
		stop := fixture.RunRelay(w, reads)
		w.publish("bad", 1, 1)
		w.await(1)
		fixture.Await(t, "a key is spilled", func() bool { return ask(reads).SpilledKeys == 1 })
		if b := ask(reads); !b.Active || !b.Leading || b.Lost || b.Repairing {
			t.Errorf("this process reads it: %+v", b)
		}
		if b := ask(stands); !b.Active || b.Leading || b.SpilledKeys != 0 {
			t.Errorf("another process reads it: %+v", b)
		}
		stop()
		w.dropSlot()
		if b := ask(reads); b.Known || b.Active || !b.Lost || b.Leading {
			t.Errorf("it is missing: %+v", b)
		}
	})
}

// The log of a busy server is confirmed while the outbox is quiet.
func TestQuiet(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.CheckpointEvery = 100 * time.Millisecond
		w.run(cfg)
		w.publish("a", 1, 1)
		w.await(1)
		fixture.MustExec(t, w.service.Pool, "CREATE TABLE noise AS SELECT repeat(md5(i::text), 30) FROM "+
			"generate_series(1, 20000) i")
		end := w.lsn("SELECT pg_current_wal_lsn()::text")
		fixture.Await(t, "the slot is at the end of it", func() bool { return w.confirmed() >= end })
	})
}

// A server that shuts down waits for those who read its log. The relay leaves then, because its
// bookmark cannot be written any more. It goes on when the server is back.
func TestServerShutsDown(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	w, server := newPrivateWorld(t)
	relay := w.relay(w.config())
	fixture.NoError(t, relay.Setup(t.Context()))
	fixture.RunRelay(w, relay)
	w.publish("a", 1, 10)
	w.await(10)
	server.Run(t, "down") // kills it after 30 s
	log, err := os.ReadFile(filepath.Join(server.Folder("postgres"), "log"))
	fixture.NoError(t, err)
	fixture.Check(t, strings.Contains(string(log), "database system is shut down"), "the server was killed")
	w.up(server)
	w.publish("a", 11, 20)
	w.awaitLast("a", 20)
	w.wantRepeats("a", 20)
}

// The server is restored from a copy of its disk while the relay waits for it. It has no new
// timeline, and its positions in the log begin again where the copy was taken.
func TestServerIsRestored(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	w, server := newPrivateWorld(t)
	relay := w.relay(w.config())
	fixture.NoError(t, relay.Setup(t.Context()))
	fixture.RunRelay(w, relay)
	w.publish("a", 1, 10)
	w.await(10)
	var data string
	fixture.NoError(t, w.service.Pool.QueryRowContext(t.Context(), "SHOW data_directory").Scan(&data))
	kept := t.TempDir()
	server.Kill(t)
	fixture.NoError(t, exec.Command("cp", "-a", data+"/.", kept).Run())
	w.up(server)
	w.publish("a", 11, 100)
	w.awaitLast("a", 100)
	server.Kill(t)
	fixture.NoError(t, os.RemoveAll(data))
	fixture.NoError(t, exec.Command("cp", "-a", kept, data).Run())
	w.up(server)
	w.publish("b", 1, 3)
	fixture.AwaitIn(w, 40*time.Second, "the events after the restore", func() bool { return len(w.copies("b")) >= 3 })
	w.wantRepeats("b", 3)
}
