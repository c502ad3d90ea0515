package walrelay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// repairLimit is how long a repair may take. It waits for all transactions of the server that run
// when it makes the slot. A mutant that never repairs has to fail within the minute that mutants
// have.
const repairLimit = 30 * time.Second

// quick makes checkpoints often.
func (w *world) quick() walrelay.Config {
	cfg := w.config()
	cfg.CheckpointEvery = 20 * time.Millisecond
	return cfg
}

// awaitCheckpoint waits until a checkpoint is later than now.
func (w *world) awaitCheckpoint(r *walrelay.Relay) {
	w.Helper()
	now := time.Now()
	fixture.Await(w, "a checkpoint", func() bool {
		s, err := r.Status(w.Context())
		fixture.NoError(w.T, err)
		return s.Checkpoint.After(now)
	})
}

// A relay that is behind makes checkpoints all the same: each of its publishes takes many times as
// long as it waits between two looks.
func TestCheckpointsOfARelayThatIsBehind(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.quick()
		fixture.ChangeRelay(&cfg.Outbox, func(c *relay.Config) { c.Workers = 100 })
		cfg.Outbox.Publisher = core.PublisherFunc(func(ctx context.Context, d core.Delivery) error {
			time.Sleep(300 * time.Millisecond)
			return w.pub.Publish(ctx, d)
		})
		relay := w.relay(cfg)
		fixture.RunRelay(w, relay)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				w.service.Publish(event("", 1))
				time.Sleep(10 * time.Millisecond)
			}
		}()
		defer func() { cancel(); <-ended }()
		w.await(10)
		for range 3 {
			w.awaitCheckpoint(relay)
		}
	})
}

func (w *world) dropSlot() {
	w.Helper()
	fixture.Await(w, "the slot is dropped", func() bool {
		_, err := w.service.Pool.ExecContext(w.Context(), "SELECT pg_drop_replication_slot($1)", w.slot)
		return err == nil
	})
}

// A slot that was dropped is made again, and the events that it had are read from the table. So are
// the events of a transaction that was open at the checkpoint, also if they were inserted in a
// savepoint: a snapshot does not tell whether the id of a savepoint has ended. Older events are not
// published again.
func TestRepairDropped(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.quick()
		relay := w.relay(cfg)
		stop := fixture.RunRelay(w, relay)
		w.publish("old", 1, 50)
		w.await(50)
		// A transaction of another database keeps the checkpoint back as long as it is open.
		fixture.Await(t, "a checkpoint after all events", func() bool {
			return fixture.Count(t, w.service.Pool, "SELECT COUNT(*) FROM outbox_event e, outbox_log l "+
				"WHERE e.xmin::text::bigint >= l.checkpoint::text::bigint") == 0
		})
		stop() // so that no later checkpoint knows of the events below

		open, err := w.service.Pool.BeginTx(t.Context(), nil)
		fixture.NoError(t, err)
		defer open.Rollback()
		for _, text := range []string{
			"CREATE TABLE business (id int)", "SAVEPOINT s", w.insertText("saved"), "RELEASE SAVEPOINT s",
		} {
			_, err := open.ExecContext(t.Context(), text)
			fixture.NoError(t, err)
		}
		relay = w.relay(cfg)
		stop = fixture.RunRelay(w, relay)
		w.publish("a", 1, 3)
		w.await(53)
		w.awaitCheckpoint(relay)
		w.awaitCheckpoint(relay) // the transaction is still open
		stop()
		fixture.NoError(t, open.Commit())
		w.publish("a", 4, 6)
		w.publish("b", 1, 3)
		w.dropSlot()
		w.publish("a", 7, 9)

		never := cfg
		never.Repair = walrelay.RepairNever
		if err := w.relay(never).Run(t.Context()); !errors.Is(err, walrelay.ErrSlotLost) {
			t.Fatalf("Run returns %v", err)
		}
		fixture.RunRelay(w, relay)
		w.publish("a", 10, 12)
		fixture.AwaitIn(t, repairLimit, "all events are there", func() bool {
			return w.last("a") == "12" && w.last("b") == "3" && w.last("saved") == "1"
		})
		w.wantRepeats("a", 12)
		w.wantRepeats("b", 3)
		w.wantRepeats("old", 50)
		if n := len(w.copies("old")); n != 50 {
			t.Errorf("%d copies of 50 events that were published before the checkpoint", n)
		}
		fixture.Await(t, "the repair has ended", func() bool {
			s, err := relay.Status(t.Context())
			fixture.NoError(t, err)
			return !s.Repairing && s.Leading && s.Active && !s.Lost
		})
	})
}

// insertText is an INSERT of an event for the log, as another program writes it.
func (w *world) insertText(key string) string {
	return fmt.Sprintf(`INSERT INTO outbox_event (id, event_id, event_type, topic, partition_key, payload, status,
		claimed_by, available_at, occurred_at, created_at, done_at) VALUES (gen_random_uuid(), '%s',
		'counted', 'counts',
		'%s', '1', 1, 'log', now(), now(), now(), now())`, core.NewEventID(), key)
}

// A row with an infinite time, which another program wrote, becomes dead, and the events behind it
// are published: from the log and in a repair.
func TestInfiniteTimes(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.CheckpointEvery = time.Hour // so that all events are published again
		relay := w.relay(cfg)
		n, dead := 0, 0
		infinite := func() {
			t.Helper()
			for i, column := range []string{"available_at", "occurred_at", "created_at", "done_at"} {
				for _, value := range []string{"infinity", "-infinity"} {
					parts := strings.SplitAfterN(w.insertText("infinite"), "now()", i+2)
					parts[i] = strings.Replace(parts[i], "now()", "'"+value+"'", 1)
					fixture.MustExec(t, w.service.Pool, strings.Join(parts, ""))
					if column == "occurred_at" || column == "created_at" {
						dead++
					}
					n++
					w.publish("a", n, n)
				}
			}
		}
		stop := fixture.RunRelay(w, relay)
		infinite()
		w.awaitLast("a", n)
		fixture.Await(t, "rows that cannot be read are dead", func() bool {
			return w.service.Statuses()[fixture.StatusDead] == dead
		})
		stop()
		w.dropSlot()
		infinite()
		fixture.RunRelay(w, relay)
		w.awaitLast("a", n)
		fixture.Await(t, "rows that cannot be read are dead", func() bool {
			return w.service.Statuses()[fixture.StatusDead] == dead
		})
		w.wantRepeats("a", n)
	})
}

// Keys whose events were refused keep their order in a repair.
func TestRepairSpilled(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.refuse("a", 3)
		cfg := w.config()
		cfg.CheckpointEvery = time.Hour // so that all events are published again
		relay := w.relay(cfg)
		stop := fixture.RunRelay(w, relay)
		w.publish("a", 1, 5)
		fixture.Await(t, "the key is spilled", func() bool { return w.service.Statuses()[fixture.StatusNew] == 2 })
		stop()
		w.publish("a", 6, 7)
		w.dropSlot()
		fixture.RunRelay(w, relay)
		fixture.Await(t, "two more wait in the table", func() bool {
			return w.service.Statuses()[fixture.StatusNew] == 4
		})
		w.pub.FailFor(nil)
		fixture.NoError(t, w.redrive(t.Context(), relay.Outbox()))
		w.publish("a", 8, 8)
		w.awaitLast("a", 8)
		w.wantRepeats("a", 8)
	})
}

// A repair publishes events again that are before a refused one. Nothing of the log is behind that
// one when the relay asks the table about them. A later event waits for it all the same.
func TestRepairBeforeARefusedEvent(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.refuse("a", 3)
		relay := w.relay(w.config())
		stop := fixture.RunRelay(w, relay)
		w.publish("a", 1, 3)
		fixture.Await(t, "the third event is dead", func() bool {
			return w.service.Statuses()[fixture.StatusDead] == 1
		})
		stop()
		fixture.MustExec(t, w.service.Pool, "UPDATE outbox_log SET checkpoint = '0'") // all events are published again
		w.dropSlot()
		fixture.RunRelay(w, relay)
		w.await(4)
		w.publish("a", 4, 5)
		w.publish("b", 1, 1)
		w.awaitLast("b", 1)
		fixture.AwaitIn(t, repairLimit, "the later events wait in the table", func() bool {
			return w.service.Statuses()[fixture.StatusNew] == 2
		})
		w.pub.FailFor(nil)
		fixture.NoError(t, w.redrive(t.Context(), relay.Outbox()))
		w.awaitLast("a", 5)
		w.wantRepeats("a", 5)
	})
}

// The relay notices a slot that a person has made again or has advanced. It repairs the slot only if
// told to.
func TestSlotMoved(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]func(w *world){
		"made again": func(w *world) {
			w.dropSlot()
			fixture.MustExec(w.T, w.service.Pool, "SELECT pg_create_logical_replication_slot('"+w.slot+"', 'pgoutput')")
		},
		"advanced": func(w *world) {
			fixture.MustExec(w.T, w.service.Pool, "SELECT pg_replication_slot_advance('"+w.slot+"', "+
				"pg_current_wal_lsn())")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachWorld(t, func(t *testing.T, w *world) {
				relay := w.relay(w.quick())
				stop := fixture.RunRelay(w, relay)
				w.publish("a", 1, 3)
				w.await(3)
				stop()
				w.publish("a", 4, 6)
				move(w)
				w.publish("a", 7, 9)
				ctx, cancel := context.WithTimeout(t.Context(), repairLimit)
				defer cancel()
				err := relay.Run(ctx)
				fixture.Must(t, errors.Is(err, walrelay.ErrSlotMoved) && strings.Contains(err.Error(), "RepairAlways"),
					"Run returns %v", err)
				cfg := w.quick()
				cfg.Repair = walrelay.RepairAlways
				w.run(cfg)
				w.awaitLast("a", 9)
				w.wantRepeats("a", 9)
			})
		})
	}
}

// The database is a copy on another server, whose transactions and positions have lower numbers.
// The process that repairs the slot ends before it has published anything, and the next one goes
// on. The numbers of the first server say nothing to that one either: every event arrives, and
// later an event that waits in the table.
func TestRepairOfACopyGoesOn(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.quick()
		relay := w.relay(cfg)
		stop := fixture.RunRelay(w, relay)
		w.publish("a", 1, 3)
		w.await(3)
		stop()
		w.publish("a", 4, 6)
		w.dropSlot()
		fixture.MustExec(t, w.service.Pool, "UPDATE outbox_log SET system_id = '1', checkpoint = '1000000000000', "+
			"spilled = 'FFFF/0', confirmed = 'FFFF/0'")

		cfg.Repair = walrelay.RepairAlways
		w.pub.Outage("counts", core.Unavailable(errors.New("away")))
		relay = w.relay(cfg)
		stop = fixture.RunRelay(w, relay)
		fixture.Await(t, "the repair publishes", func() bool {
			s, err := relay.Status(t.Context())
			return err == nil && s.Repairing && s.Leading && len(w.pub.Attempts()) > 3
		})
		stop()
		w.pub.Restore("counts")
		w.refuse("b", 1)
		relay = w.relay(w.quick())
		stop = fixture.RunRelay(w, relay)
		fixture.AwaitIn(t, repairLimit, "all events arrive", func() bool { return w.last("a") == "6" })
		w.wantRepeats("a", 6)
		fixture.Await(t, "the repair has ended", func() bool {
			s, err := relay.Status(t.Context())
			return err == nil && !s.Repairing
		})
		w.awaitCheckpoint(relay)
		w.publish("b", 1, 3)
		fixture.AwaitIn(t, repairLimit, "the key waits in the table", func() bool {
			return w.service.Statuses()[fixture.StatusNew] == 2
		})
		stop()
		w.pub.FailFor(nil)
		relay = w.relay(w.quick())
		fixture.RunRelay(w, relay)
		fixture.NoError(t, w.redrive(t.Context(), relay.Outbox()))
		w.awaitLast("b", 3)
		w.wantRepeats("b", 3)
	})
}

// Run with Create begins with the events that are in the table.
func TestCreate(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		w.publish("a", 1, 3)
		w.run(w.config())
		w.await(3)
		w.publish("a", 4, 6)
		w.await(6)
		w.wantRepeats("a", 6)
	})
}

// A slot with another name begins with all events again. The log says so: the name may be mistyped.
func TestCreateASecondSlot(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		var log bytes.Buffer
		cfg := w.config()
		cfg.Outbox.Logger = slog.New(slog.NewTextHandler(&log, nil))
		stop := w.run(cfg)
		w.publish("a", 1, 3)
		w.await(3)
		stop()
		if strings.Contains(log.String(), "another slot") {
			t.Errorf("the first slot: %s", log.String())
		}
		first := w.slot
		cfg.Slot, cfg.Publication = first+"_2", ""
		stop = w.run(cfg)
		fixture.Await(t, "all events come again", func() bool { return len(w.pub.Accepted()) >= 6 })
		stop()
		if !strings.Contains(log.String(), "another slot") || !strings.Contains(log.String(), "others="+first) {
			t.Errorf("the second slot: %s", log.String())
		}
	})
}

// The server removes log that nobody reads, and then crashes. Nothing is lost.
func TestSlotLost(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	w, server := newPrivateWorld(t)
	w.setUp()
	relay := w.relay(w.quick())
	stop := fixture.RunRelay(w, relay)
	w.publish("a", 1, 3)
	w.await(3)
	stop()
	w.publish("a", 4, 6)
	for _, text := range []string{
		"ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()", "CREATE TABLE noise (t text)",
	} {
		fixture.MustExec(t, w.service.Pool, text)
	}
	fixture.Await(t, "the slot is lost", func() bool {
		fixture.MustExec(t, w.service.Pool, "INSERT INTO noise SELECT repeat(md5(i::text), 30) "+
			"FROM generate_series(1, 5000) i")
		fixture.MustExec(t, w.service.Pool, "SELECT pg_switch_wal()")
		fixture.MustExec(t, w.service.Pool, "CHECKPOINT")
		s, err := relay.Status(t.Context())
		fixture.NoError(t, err)
		return s.Lost && s.WALStatus == "lost"
	})
	if b, err := relay.LogBacklog(t.Context()); err != nil || !b.Lost || b.Active || b.Bounded || b.Kept != 0 {
		t.Errorf("metrics of the lost slot: %+v, %v", b, err)
	}
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM RESET max_slot_wal_keep_size")
	fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
	w.publish("a", 7, 9)
	fixture.RunRelay(w, relay)
	w.awaitLast("a", 9)
	w.publish("b", 1, 20)
	w.awaitLast("b", 20)
	fixture.Await(t, "metrics have a slot again", func() bool {
		b, err := relay.LogBacklog(t.Context())
		return err == nil && b.Known && b.Active && !b.Lost && !b.Repairing
	})
	w.crash(server)
	w.publish("a", 10, 12)
	w.awaitLast("a", 12)
	w.wantRepeats("a", 12)
	w.wantRepeats("b", 20)
}

// PostgreSQL 18 gives up a slot that nobody has read for a time. Nothing is lost, and the log of the
// relay has the reason.
func TestSlotIsIdle(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	_, db := fixture.StartPrivateDatabase(t, "postgres18")
	w, log := newWorld(t, db), &spy{}
	w.setUp()
	cfg := w.quick()
	cfg.Outbox.Logger = slog.New(slog.NewTextHandler(log, nil))
	relay := w.relay(cfg)
	stop := fixture.RunRelay(w, relay)
	w.publish("a", 1, 3)
	w.await(3)
	stop()
	w.publish("a", 4, 6)
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM SET idle_replication_slot_timeout = '1s'")
	fixture.MustExec(t, w.service.Pool, "SELECT pg_reload_conf()")
	fixture.Await(t, "the slot is lost", func() bool {
		fixture.MustExec(t, w.service.Pool, "CHECKPOINT")
		s, err := relay.Status(t.Context())
		fixture.NoError(t, err)
		return s.Lost
	})
	w.publish("a", 7, 9)
	fixture.RunRelay(w, relay)
	w.awaitLast("a", 9)
	w.wantRepeats("a", 9)
	fixture.Check(t, log.count("invalidation_reason idle_timeout") == 1, "the reason is not told: %s", &log.buf)
}
