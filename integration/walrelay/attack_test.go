package walrelay_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
)

// wantOnce requires that the destination has each event of the table once.
func (w *world) wantOnce() {
	w.Helper()
	want := fixture.Query(w.T, w.service.Pool, "SELECT event_id FROM outbox_event ORDER BY event_id COLLATE \"C\"",
		func(r *sql.Rows) (id string, err error) { return id, r.Scan(&id) })
	w.await(len(want))
	var got []string
	for _, d := range w.pub.Accepted() {
		got = append(got, d.ID)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		w.Errorf("%d copies of %d committed events", len(got), len(want))
	}
}

// The table is changed while its log is read, by migrations, by maintenance and by people.
func TestTableChanges(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		stop := w.run(w.config())
		n := 0
		for _, change := range []string{
			"ALTER TABLE outbox_event ADD COLUMN note text",
			"ALTER TABLE outbox_event ADD COLUMN much text NOT NULL DEFAULT repeat('x', 10)",
			"ALTER TABLE outbox_event DROP COLUMN note",
			"VACUUM FULL outbox_event",
			"CLUSTER outbox_event USING outbox_event_pkey",
			"REINDEX TABLE outbox_event",
			"ALTER TABLE outbox_event SET (fillfactor = 70)",
			"ALTER TABLE outbox_event REPLICA IDENTITY FULL",
			"CREATE TABLE other (a int)",
			"ALTER PUBLICATION " + w.slot + " ADD TABLE other",
			"INSERT INTO other SELECT generate_series(1, 100)",
			"ALTER PUBLICATION " + w.slot + " DROP TABLE other",
			"ALTER TABLE outbox_event ALTER COLUMN event_type TYPE varchar(500)",
			"ALTER PUBLICATION " + w.slot + " SET (publish = 'insert, update, delete, truncate')",
			"UPDATE outbox_event SET attempts = attempts",
		} {
			fixture.MustExec(t, w.service.Pool, change)
			w.publish("a", n+1, n+3)
			n += 3
			// Events are inserted in the transaction of the change too.
			if strings.HasPrefix(change, "ALTER TABLE") {
				fixture.NoError(t, w.service.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
					for _, text := range []string{"", "ALTER TABLE outbox_event ADD COLUMN inside int", ""} {
						if text != "" {
							if _, err := tx.Exec(ctx, text); err != nil {
								return err
							}
							continue
						}
						n++
						if _, err := w.service.Outbox.Publish(ctx, tx, event("a", n)); err != nil {
							return err
						}
					}
					return nil
				}))
				fixture.MustExec(t, w.service.Pool, "ALTER TABLE outbox_event DROP COLUMN inside")
			}
		}
		w.await(n)
		stop()
		w.wantRepeats("a", n)
		w.wantOnce()
		w.run(w.config())
		fixture.MustExec(t, w.service.Pool, "TRUNCATE outbox_event")
		w.publish("a", n+1, n+3)
		w.await(n + 3)
		w.wantRepeats("a", n+3)
	})
}

// Savepoints, exceptions and two-phase commits decide what is published.
func TestTransactions(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	w, server := newPrivateWorld(t)
	fixture.MustExec(t, w.service.Pool, "ALTER SYSTEM SET max_prepared_transactions = 10")
	w.crash(server)
	w.setUp()
	w.run(w.config())
	insert := func(ctx context.Context, tx core.Tx, from, to int) error {
		for i := from; i <= to; i++ {
			if _, err := w.service.Outbox.Publish(ctx, tx, event("a", i)); err != nil {
				return err
			}
		}
		return nil
	}
	exec := func(ctx context.Context, tx core.Tx, text string) {
		if _, err := tx.Exec(ctx, text); err != nil {
			t.Error(text, err)
		}
	}
	n := 0
	for range 20 { // savepoints
		fixture.NoError(t, w.service.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			n++
			if err := insert(ctx, tx, n, n); err != nil {
				return err
			}
			for range 5 {
				exec(ctx, tx, "SAVEPOINT s")
				if err := insert(ctx, tx, n+1, n+3); err != nil {
					return err
				}
				if rand.N(2) == 0 {
					exec(ctx, tx, "ROLLBACK TO s")
					continue
				}
				exec(ctx, tx, "RELEASE s")
				n += 3
			}
			return nil
		}))
	}
	w.await(n)
	w.wantOnce()
	// two-phase commit, with commits of other keys between
	conn, err := pgx.Connect(t.Context(), w.db.DSN)
	fixture.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	row := func(no int) string {
		return fmt.Sprintf(`INSERT INTO outbox_event (id, event_id, event_type, topic, payload, status, claimed_by,
  done_at, schema_version, occurred_at, created_at, available_at, attempts)
VALUES (gen_random_uuid(), 'two-%d', 't', 'counts', 'x', 1, 'log', now(), 1, now(), now(), now(), 0)`, no)
	}
	for i := range 4 {
		for _, text := range []string{"BEGIN", row(i), fmt.Sprintf("PREPARE TRANSACTION 'p%d'", i)} {
			_, err := conn.Exec(t.Context(), text)
			fixture.NoError(t, err)
		}
		w.publish("a", n+1, n+1)
		n++
	}
	w.crash(server)
	for i, end := range []string{"COMMIT", "ROLLBACK", "COMMIT", "ROLLBACK"} {
		fixture.MustExec(t, w.service.Pool, fmt.Sprintf("%s PREPARED 'p%d'", end, i))
	}
	w.publish("a", n+1, n+1)
	n++
	there := func(id string) bool {
		return slices.ContainsFunc(w.pub.Accepted(), func(d core.Delivery) bool { return d.ID == id })
	}
	fixture.Await(t, "both arrived", func() bool { return there("two-0") && there("two-2") })
	w.awaitLast("a", n)
	fixture.Check(t, !there("two-1") && !there("two-3"), "an event that was rolled back was published")
	w.wantRepeats("a", n)
}

// Payloads that are larger than the window, and than any buffer, arrive.
func TestLargePayloads(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		w := newWorld(t, db)
		w.service = fixture.JoinProcess(t, db, nil, core.Config{
			RelayedByLog: true, Relay: relay.Config{DisableJanitor: true}, MaxPayload: 32 << 20,
		})
		w.setUp()
		cfg := w.config()
		cfg.WindowBytes = 1 << 20
		cfg.Outbox.MaxPayload = 32 << 20
		w.run(cfg)
		random := rand.NewChaCha8([32]byte{})
		var want [][]byte
		for i := range 6 {
			payload := make([]byte, []int{3 << 20, 5, 130_000, 1 << 20, 3<<20 + 1, 64 << 10}[i])
			_, _ = random.Read(payload)
			want = append(want, payload)
			w.service.Publish(core.Event{Type: "large", Topic: "counts", Key: "a", Payload: payload})
		}
		w.await(len(want))
		for i, d := range w.pub.Accepted() {
			if !bytes.Equal(d.Payload, want[i]) {
				t.Errorf("event %d: %d bytes, want %d", i, len(d.Payload), len(want[i]))
			}
		}
	})
}

// The destination is slow and the window is full, for longer than the server waits for an answer.
// The connection is not lost, unless this process gets no CPU time for that long.
func TestSlowDestination(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		replication, err := pgx.ParseConfig(w.db.DSN)
		fixture.NoError(t, err)
		replication.RuntimeParams["wal_sender_timeout"] = "2500ms"
		cfg.Replication, cfg.Window = replication, 50
		fixture.ChangeRelay(&cfg.Outbox, func(c *relay.Config) {
			c.HotLease, c.ClaimLease, c.PublishTimeout = 5*time.Minute, 5*time.Minute, 3*time.Minute
		})
		w.pub.Block()
		w.run(cfg)
		fixture.NoError(t, w.service.Tx.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			for i := range 2000 {
				if _, err := w.service.Outbox.Publish(ctx, tx, event(fmt.Sprint(i%100), i/100+1)); err != nil {
					return err
				}
			}
			return nil
		}))
		fixture.Await(t, "events are on their way", func() bool { return w.pub.InFlight() > 0 })
		pid, since := 0, time.Now()
		fixture.Await(t, "one connection lasts for more than twice the server's timeout", func() bool {
			if got := w.reader(); got != pid || got == 0 {
				pid, since = got, time.Now()
			}
			return time.Since(since) > 6*time.Second
		})
		w.pub.Unblock()
		w.await(2000)
		w.wantOnce()
	})
}

// reader returns the id of the server's process that sends the log.
func (w *world) reader() (pid int) {
	w.Helper()
	fixture.NoError(w.T, w.service.Pool.QueryRowContext(w.Context(),
		"SELECT COALESCE(max(active_pid), 0) FROM pg_replication_slots WHERE slot_name = $1", w.slot).Scan(&pid))
	return pid
}

// While the publication is missing, the server cannot send events that commit, and does not send
// them later. The relay makes the publication again, and no event is lost.
func TestPublicationDropped(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		w.run(cfg)
		w.publish("a", 1, 3)
		w.await(3)
		fixture.MustExec(t, w.service.Pool, "DROP PUBLICATION "+w.slot)
		w.publish("a", 4, 6)
		w.awaitLast("a", 6)
		w.publish("a", 7, 9)
		w.awaitLast("a", 9)
		w.wantRepeats("a", 9)
	})
}

// If Run may not make the publication again, it ends. Events that have committed meanwhile are
// published when the publication exists again.
func TestPublicationMadeAgain(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		cfg := w.config()
		cfg.Create = false
		relay := w.relay(cfg)
		ended := make(chan error, 1)
		go func() { ended <- relay.Run(t.Context()) }()
		w.publish("a", 1, 3)
		w.await(3)
		fixture.MustExec(t, w.service.Pool, "DROP PUBLICATION "+w.slot)
		w.publish("a", 4, 6)
		if err := <-ended; !errors.Is(err, walrelay.ErrNotSetUp) {
			t.Fatal(err)
		}
		w.setUp()
		w.publish("a", 7, 9)
		w.run(cfg)
		w.awaitLast("a", 9)
		w.wantRepeats("a", 9)
	})
}

// A person changes the publication so that events are missing in it. Run ends. The events that the
// server has skipped are published when the publication is right again.
func TestPublicationChanged(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		for i, change := range []struct{ wrong, right string }{
			{"SET (publish = 'update')", "SET (publish = 'insert')"},
			{"SET TABLE accounts", "SET TABLE outbox_event WHERE (claimed_by = 'log')"},
			{"SET TABLE outbox_event WHERE (claimed_by = 'nobody')", "SET TABLE outbox_event"},
		} {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, db.Another(t))
				w.setUp()
				cfg := w.config()
				cfg.CheckpointEvery = 100 * time.Millisecond
				relay := w.relay(cfg)
				ended := make(chan error, 1)
				go func() { ended <- relay.Run(t.Context()) }()
				w.publish("a", 1, 3)
				w.await(3)
				fixture.MustExec(t, w.service.Pool, "ALTER PUBLICATION "+w.slot+" "+change.wrong)
				w.publish("a", 4, 6)
				if err := <-ended; !errors.Is(err, walrelay.ErrSlotTaken) {
					t.Fatal(err)
				}
				w.publish("a", 7, 9)
				fixture.MustExec(t, w.service.Pool, "ALTER PUBLICATION "+w.slot+" "+change.right)
				w.publish("a", 10, 12)
				w.run(cfg)
				w.awaitLast("a", 12)
				w.wantRepeats("a", 12)
			})
		}
	})
}

// The table has partitions, and gets one more while its log is read.
func TestPartitions(t *testing.T) {
	t.Parallel()
	testdb.EachPostgres(t, func(t *testing.T, db testdb.DB) {
		pool := db.Open(t)
		fixture.NewRepository(t, pool, sqloutbox.Config{Dialect: core.Postgres, PartitionEvery: 24 * time.Hour})
		w := newWorld(t, db)
		var kind string
		fixture.NoError(t, pool.QueryRowContext(t.Context(), "SELECT relkind FROM pg_class WHERE oid = "+
			"'outbox_event'::regclass").Scan(&kind))
		fixture.Must(t, kind == "p", "the table is of kind %q", kind)
		w.setUp()
		cfg := w.config()
		cfg.Tables.PartitionEvery = 24 * time.Hour
		w.refuse("b", 2)
		relay := w.relay(cfg)
		fixture.RunRelay(w, relay)
		w.publish("a", 1, 5)
		w.publish("b", 1, 5)
		// A partition for ids of the far future is added.
		fixture.MustExec(t, pool, "BEGIN; CREATE TABLE later (LIKE outbox_event INCLUDING ALL); "+
			"ALTER TABLE outbox_event ATTACH PARTITION later FOR VALUES "+
			"FROM ('ff000000-0000-0000-0000-000000000000') TO "+
			"('ffff0000-0000-0000-0000-000000000000'); COMMIT")
		w.publish("a", 6, 9)
		w.await(9 + 1)
		fixture.Await(t, "the later ones are in the table", func() bool {
			return w.service.Statuses()[fixture.StatusDead] == 1 && w.service.Statuses()[fixture.StatusNew] == 3
		})
		w.pub.FailFor(nil)
		fixture.NoError(t, w.redrive(t.Context(), relay.Outbox()))
		w.await(9 + 5)
		w.wantRepeats("a", 9)
		w.wantRepeats("b", 5)
		w.wantOnce()
	})
}

// Many troubles at once, on a server that crashes: two relays, walsenders that are ended, events
// that are refused for some time, people who redrive them, and producers that go on meanwhile.
func TestChaos(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	w, server := newPrivateWorld(t)
	w.setUp()
	const keys = 12
	var healed atomic.Bool
	w.pub.FailFor(func(d core.Delivery) error {
		if healed.Load() {
			return nil
		}
		switch rand.N(60) {
		case 0:
			return errRefused
		case 1, 2:
			return core.Unavailable(errRefusedFor)
		case 3, 4:
			return errRefusedFor
		}
		return nil
	})
	var relays []*walrelay.Relay
	for range 2 {
		cfg := w.config()
		cfg.Pool, cfg.Window = w.open(), 100
		cfg.CheckpointEvery, cfg.StallLimit = 200*time.Millisecond, 100*time.Millisecond
		r := w.relay(cfg)
		relays = append(relays, r)
		fixture.RunRelay(w, r)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var committed [keys]atomic.Int64
	var unordered sync.Map
	var wg sync.WaitGroup
	for k := range keys {
		wg.Go(func() {
			key := fmt.Sprint("k", k)
			for ctx.Err() == nil {
				n := int(committed[k].Load())
				more := 1 + rand.N(3)
				err := w.service.Tx.RunInTx(ctx, func(ctx context.Context, tx core.Tx) error {
					for i := range more {
						if _, err := w.service.Outbox.Publish(ctx, tx, event(key, n+1+i), event("", n)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil { // the table knows whether it committed
					for {
						var last int64
						if w.service.Pool.QueryRowContext(context.Background(), "SELECT count(*) "+
							"FROM outbox_event WHERE "+
							"partition_key = $1", key).Scan(&last) == nil {
							committed[k].Store(last)
							break
						}
						time.Sleep(50 * time.Millisecond) // the server is down, or starts
					}
					continue
				}
				committed[k].Add(int64(more))
				time.Sleep(rand.N(20 * time.Millisecond)) // the pace of a producer
			}
		})
	}
	for ctx.Err() == nil { // troubles come at random times, so the sleeps are random
		time.Sleep(rand.N(800 * time.Millisecond))
		switch rand.N(6) {
		case 0:
			server.Kill(t)
			time.Sleep(rand.N(300 * time.Millisecond))
			server.Up(t)
		case 1, 2:
			_, _ = w.service.Pool.ExecContext(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE "+
				"backend_type = 'walsender' OR random() < 0.1 AND pid <> pg_backend_pid()")
		default:
			_ = w.redrive(ctx, relays[rand.N(2)].Outbox()) // the server may be away
		}
	}
	wg.Wait()
	healed.Store(true)
	end := "" // before this position an event may be read, and repeated, again
	fixture.AwaitIn(t, 2*time.Minute, "nothing is open, and repeats are over", func() bool {
		pool := w.service.Pool
		if end == "" && pool.QueryRowContext(t.Context(), "SELECT pg_current_wal_lsn()::text").Scan(&end) != nil {
			return false
		}
		_ = w.redrive(t.Context(), relays[0].Outbox())
		var done bool
		err := pool.QueryRowContext(t.Context(), `SELECT NOT l.repairing AND s.confirmed_flush_lsn >= $2::pg_lsn
  AND NOT EXISTS (SELECT FROM outbox_event WHERE status IN (0, 2, 3))
FROM pg_replication_slots s JOIN outbox_log l ON l.slot = s.slot_name WHERE s.slot_name = $1`, w.slot, end).Scan(&done)
		return err == nil && done
	})
	fixture.Await(t, "each key is at its end", func() bool {
		for k := range keys { // a commit that its producer has given up may have landed late
			var last int64
			key := fmt.Sprint("k", k)
			if err := w.service.Pool.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_event "+
				"WHERE partition_key = $1", key).Scan(&last); err != nil {
				return false
			}
			committed[k].Store(last)
			if w.last(key) != fmt.Sprint(last) {
				return false
			}
		}
		return true
	})
	total := 0
	for k := range keys {
		total += int(committed[k].Load())
		w.wantFirstInOrder(fmt.Sprint("k", k), int(committed[k].Load()))
	}
	for _, d := range w.pub.Accepted() {
		unordered.Store(d.ID, true)
	}
	n := 0
	unordered.Range(func(any, any) bool { n++; return true })
	var rows int
	fixture.NoError(t, w.service.Pool.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox_event").Scan(&rows))
	fixture.Check(t, n == rows && rows == 2*total, "%d of %d committed events arrived (%d of keys)", n, rows, total)
	t.Logf("%d events, %d copies", rows, len(w.pub.Accepted()))
}

// wantFirstInOrder requires that the first copies of a key are 1 to n in order, and that the last
// copy is that of n. An earlier reader may repeat what it had claimed, late.
func (w *world) wantFirstInOrder(key string, n int) {
	w.Helper()
	most := 0
	for _, text := range w.copies(key) {
		var i int
		_, _ = fmt.Sscan(text, &i)
		if i > most+1 {
			w.Errorf("key %q: %d after %d: %v", key, i, most, w.copies(key))
		}
		most = max(most, i)
	}
	if most != n || w.last(key) != fmt.Sprint(n) {
		w.Errorf("key %q ends with %s, and has events up to %d, want %d: %v", key, w.last(key), most, n, w.copies(key))
	}
}

var errRefusedFor = fmt.Errorf("refused for now")

// Another program wrote rows that Publish would never write. They do not stop the other rows.
func TestStrangeRows(t *testing.T) {
	t.Parallel()
	eachWorld(t, func(t *testing.T, w *world) {
		w.run(w.config())
		row := func(id, columns, values string) {
			fixture.MustExec(t, w.service.Pool, fmt.Sprintf(`INSERT INTO outbox_event (id, event_id, event_type, topic,
  payload, status, claimed_by, done_at, schema_version, occurred_at, created_at, available_at, attempts%s)
VALUES (gen_random_uuid(), '%s', 't', 'counts', 'x', 1, 'log', now(), 1, now(), now(), now(), 0%s)`,
				columns, id, values))
		}
		for i, c := range []struct{ columns, values string }{
			{", headers", `, '{"a": {"b": 1}}'`},
			{", headers", `, '[1, 2]'`},
			{", headers", `, 'null'`},
			{", headers", `, '{"a": 1.50, "b": true, "c": null, "d": "\u00fc \" \\"}'`},
			{", lane", `, '\x01'`},
			{", lane, key_seq", `, '\x0102030405060708090a0b0c0d0e0f10', 5`},
			{", partition_key", `, 'a'`},
			{", partition_key, lane", `, 'a', '\x0102030405060708090a0b0c0d0e0f11'`},
			{", partition_key, lane, key_seq", `, 'b', '\x0102030405060708090a0b0c0d0e0f12', -3`},
		} {
			row(fmt.Sprint("strange-", i), c.columns, c.values)
			w.publish("a", i+1, i+1)
		}
		fixture.Await(t, "the events of key a arrive in order", func() bool {
			// A strange row with this key and no lane has no order. It may come last.
			published := slices.DeleteFunc(w.copies("a"), func(payload string) bool { return payload == "x" })
			return slices.Equal(published, strings.Fields("1 2 3 4 5 6 7 8 9"))
		})
		fixture.Await(t, "each strange event has arrived or is dead", func() bool {
			there := map[string]bool{}
			for _, d := range w.pub.Accepted() {
				there[d.ID] = true
			}
			for _, r := range w.service.Rows() {
				there[r.EventID] = there[r.EventID] || r.Status == fixture.StatusDead
			}
			for i := range 9 {
				if !there[fmt.Sprint("strange-", i)] {
					return false
				}
			}
			return true
		})
		for _, d := range w.pub.Accepted() {
			if d.ID == "strange-3" && (d.Headers["a"] != "1.50" || d.Headers["b"] != "true" || d.Headers["c"] != "" ||
				d.Headers["d"] != `ü " \`) {
				t.Errorf("headers: %v", d.Headers)
			}
		}
	})
}
