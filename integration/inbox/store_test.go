package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// named sets the name of the handler, which messages outside of a Router do not have.
func named(c *coreinbox.Config) { c.Handler = "h" }

// Ids that a collation would call equal are different events, one by one and in a batch.
func TestInboxComparesBytes(t *testing.T) {
	t.Parallel()
	ids := []string{
		"e", "E", "e ", " e", "é", "e\u0301", "ss", "ß", `a"b`, `a\b`, "{a,b}", "NULL", "'", "ａ", "a",
		strings.Repeat("x", 255), strings.Repeat("x", 254),
	}
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		single, batch := 0, 0
		var msgs []*message.Message
		for _, tenant := range []string{"", "a", "A", "a "} {
			for _, id := range ids {
				msgs = append(msgs, inboxMessage(id, "tenant_id", tenant))
			}
		}
		other := w.another(named, func(c *coreinbox.Config) { c.Consumer = "other" })
		for range 2 {
			for _, msg := range msgs {
				_, err := w.in.Middleware(func(*message.Message) ([]*message.Message, error) {
					single++
					return nil, nil
				})(msg)
				fixture.NoError(t, err)
			}
			for _, err := range other.ProcessBatch(t.Context(), msgs,
				func(_ context.Context, fresh []*message.Message) error {
					batch += len(fresh)
					return nil
				}) {
				fixture.NoError(t, err)
			}
		}
		fixture.Check(t, single == len(msgs) && batch == len(msgs),
			"%d one by one and %d in batches, want %d each", single, batch, len(msgs))
	}, named)
}

// A text that only describes an event is cut. It never keeps the event from being processed.
func TestInboxDescriptionsAreCut(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named, func(c *coreinbox.Config) {
			c.MaxAttempts = 1
		})
		long := strings.Repeat("ü", 500)
		msg := func(id string) coreinbox.Message {
			m := inbox.MessageOf(inboxMessage(id, "event_type", long, "aggregate_type", long+"\x00",
				"aggregate_id", "\xff",
				"partition_key", long, "key_seq", "9223372036854775807", "schema_version", "7"))
			m.Topic, m.Partition, m.Offset, m.Located = strings.Repeat("t", 300), 1<<31-1, 1<<63-1, true
			return m
		}
		works := func(context.Context, core.Tx, coreinbox.Message) error { return nil }
		if res := in.Process(t.Context(), msg("one"), works); res.Err != nil {
			t.Error(res.Err)
		}
		for _, res := range in.Inbox.ProcessBatch(t.Context(), []coreinbox.Message{msg("two"), msg("three")},
			func(context.Context, core.Tx, []coreinbox.Message) error { return nil }) {
			if res.Err != nil {
				t.Error(res.Err)
			}
		}
		fails := func(context.Context, core.Tx, coreinbox.Message) error {
			return errors.New("\x00\xff password=hunter2 " + strings.Repeat("ü", 5000))
		}
		if res := in.Process(t.Context(), msg("four"), fails); !errors.Is(res.Err, coreinbox.ErrDead) {
			t.Error(res.Err)
		}
		list, err := in.ListDead(t.Context(), coreinbox.DeadQuery{})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		p := list[0]
		if !p.Located || p.Offset != 1<<63-1 || p.Partition != 1<<31-1 || len(p.Topic) != 249 || p.Version != 7 ||
			len(p.Text) > 2048 || strings.Contains(p.Text, "hunter2") || p.KeySeq != 1<<63-1 ||
			time.Since(p.ReceivedAt).Abs() > time.Hour || time.Since(p.FailedAt).Abs() > time.Hour {
			t.Errorf("%+v", p)
		}
	})
}

// The batch is larger than a chunk. Half of its messages were processed before, one is dead, and
// one has failed.
func TestInboxLargeBatch(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named)
		var msgs []*message.Message
		for n := range 1201 {
			msgs = append(msgs, inboxMessage(fmt.Sprint(n)))
		}
		park := func(*message.Message) ([]*message.Message, error) { return nil, core.Permanent(errOnce) }
		fail := func(*message.Message) ([]*message.Message, error) { return nil, errOnce }
		_, _ = in.Middleware(park)(msgs[7])
		_, _ = in.Middleware(fail)(msgs[8])
		run := func(msgs []*message.Message) (fresh int, errs []error) {
			errs = in.ProcessBatch(t.Context(), msgs,
				func(_ context.Context, f []*message.Message) error { fresh = len(f); return nil })
			return fresh, errs
		}
		var half []*message.Message
		for n := 0; n < len(msgs); n += 2 {
			half = append(half, msgs[n])
		}
		if fresh, errs := run(half); fresh != 601 || errors.Join(errs...) != nil {
			t.Fatalf("%d fresh, %v", fresh, errors.Join(errs...))
		}
		fresh, errs := run(msgs)
		if fresh != 599 || !errors.Is(errs[7], coreinbox.ErrDead) || errors.Join(slices.Delete(errs, 7, 8)...) != nil {
			t.Errorf("%d fresh, %v", fresh, errors.Join(errs...))
		}
		if status, attempts := w.status("8"); status != 2 || attempts != 2 {
			t.Errorf("the message that had failed: status %d after %d attempts", status, attempts)
		}
		if fresh, _ := run(msgs); fresh != 0 {
			t.Errorf("%d fresh the third time", fresh)
		}
	})
}

func TestInboxOnlyNewer(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named, func(c *coreinbox.Config) { c.OnlyNewer = []string{"h"} })
		msg := func(id, seq string) *message.Message { return inboxMessage(id, "key_seq", seq, "partition_key", "k") }
		deliver := func(m *message.Message) {
			t.Helper()
			_, err := in.Middleware(w.handler)(m)
			fixture.NoError(t, err)
		}
		deliver(msg("five", "5"))
		deliver(msg("four", "4"))
		deliver(msg("four", "4"))
		deliver(msg("five again", "5"))
		deliver(msg("six", "6"))
		deliver(inboxMessage("lower case", "key_seq", "1", "partition_key", "K"))
		// Any program may have written these keys. Some are too long, some are not plain text, and
		// some are no text. They are told from each other, and delay no message.
		long := strings.Repeat("k", 300)
		deliver(inboxMessage("long", "key_seq", "7", "partition_key", long))
		deliver(inboxMessage("longer", "key_seq", "1", "partition_key", long+"k"))
		deliver(inboxMessage("long again", "key_seq", "6", "partition_key", long))
		deliver(inboxMessage("binary", "key_seq", "1", "partition_key", "k\x00\xff"))
		deliver(inboxMessage("tenant", "key_seq", "1", "partition_key", "k", "tenant_id", "t"))
		fn := func(_ context.Context, fresh []*message.Message) error {
			for _, m := range fresh {
				if err := w.apply(m, "handled"); err != nil {
					return err
				}
			}
			return nil
		}
		for _, err := range in.ProcessBatch(t.Context(),
			[]*message.Message{msg("seven", "7"), msg("three", "3"), msg("eight", "8")}, fn) {
			fixture.NoError(t, err)
		}
		w.wantEffects(map[string]int{
			"five handled": 1, "six handled": 1, "lower case handled": 1, "long handled": 1,
			"longer handled": 1, "binary handled": 1, "tenant handled": 1, "seven handled": 1, "eight handled": 1,
		})
		w.hears("stale", 4)
		w.hears("duplicate", 1)
	})
}

// A row with the status PROCESSING holds other deliveries back for a while, and then no longer.
func TestInboxInProgress(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named)
		fail := func(*message.Message) ([]*message.Message, error) { return nil, errOnce }
		_, _ = in.Middleware(fail)(inboxMessage("e"))
		fixture.MustExec(t, w.pool, "UPDATE inbox_failure SET status = 1")
		if _, err := in.Middleware(w.handler)(inboxMessage("e")); !errors.Is(err, coreinbox.ErrInProgress) {
			t.Errorf("%v", err)
		}
		w.hears("in progress", 1)
		fixture.MustExec(t, w.pool, "UPDATE inbox_failure SET updated_at = "+map[core.Dialect]string{
			core.Postgres: "now() - interval '16 minutes'", core.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 16 MINUTE",
			core.SQLite: "updated_at - 960000000",
		}[w.db.Dialect])
		_, err := in.Middleware(w.handler)(inboxMessage("e"))
		fixture.NoError(t, err)
		w.wantEffects(map[string]int{"e handled": 1})
	})
}

func TestInboxDeadAreListedInPages(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named)
		for n := range 25 {
			park(t, in, errOnce, fmt.Sprintf("e%02d", n))
		}
		reason := errors.New("because of the tenant")
		park(t, in, reason, "e03", "tenant_id", "acme")
		// The error of a redelivery names the earlier failure and what to do about it.
		for tenant, want := range map[string]string{"": errOnce.Error(), "acme": reason.Error()} {
			_, err := in.Middleware(w.handler)(inboxMessage("e03", "tenant_id", tenant))
			if !errors.Is(err, coreinbox.ErrDead) || !strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "Redrive") {
				t.Errorf("tenant %q: %v", tenant, err)
			}
		}
		fixture.MustExec(t, w.pool, "DELETE FROM inbox_failure WHERE event_id = 'e03' AND tenant_id = 'acme'")
		var ids []string
		q := coreinbox.DeadQuery{Limit: 10}
		for {
			page, err := in.ListDead(t.Context(), q)
			fixture.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, p := range page {
				ids = append(ids, p.EventID)
			}
			q.After = &page[len(page)-1]
		}
		fixture.Check(t, len(ids) == 25 && slices.IsSorted(ids), "%d: %v", len(ids), ids)
		if list, err := in.ListDead(t.Context(), coreinbox.DeadQuery{Handler: "other"}); err != nil || len(list) != 0 {
			t.Errorf("of another handler: %v, %v", list, err)
		}
		n, err := in.Redrive(t.Context(), []coreinbox.Key{
			{Consumer: "billing", Handler: "h", EventID: "e03"},
			{Consumer: "billing", Handler: "h", EventID: "nobody"},
		}, "ada", "fixed")
		fixture.Check(t, n == 1 && err == nil, "released %d, %v", n, err)
	})
}

func TestInboxCleanup(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		in := w.another(named, func(c *coreinbox.Config) {
			c.Retention, c.BrokerRetention, c.OnlyNewer = 2*time.Hour, time.Hour, []string{"h"}
		})
		other := w.another(named, func(c *coreinbox.Config) { c.Consumer = "other" })
		for n := range 5 {
			msg := inboxMessage(fmt.Sprint(n), "key_seq", "1", "partition_key", fmt.Sprint(n))
			for _, each := range []*wired{in, other} {
				_, err := each.Middleware(w.handler)(msg)
				fixture.NoError(t, err)
			}
		}
		park(t, in, errOnce, "parked")
		if n, err := in.Cleanup(t.Context()); n != 0 || err != nil {
			t.Errorf("young ones: deleted %d, %v", n, err)
		}
		ago := map[core.Dialect]string{
			core.Postgres: "now() - interval '3 hours'", core.MySQL: "UTC_TIMESTAMP(6) - INTERVAL 3 HOUR",
			core.SQLite: "(unixepoch() - 10800) * 1000000",
		}[w.db.Dialect]
		fixture.MustExec(t, w.pool, "UPDATE inbox_seen SET processed_at = "+ago+
			" WHERE processed_at IS NOT NULL AND event_id <> '4'")
		fixture.MustExec(t, w.pool, "UPDATE inbox_failure SET received_at = "+ago+", updated_at = "+ago)
		fixture.MustExec(t, w.pool, "UPDATE inbox_key SET updated_at = "+ago+" WHERE partition_key <> '4'")
		if n, err := in.Cleanup(t.Context()); n != 8 || err != nil { // four events, and a row for the key of each
			t.Errorf("old ones: deleted %d, %v", n, err)
		}
		const of = "SELECT COUNT(*) FROM inbox_seen s JOIN inbox_handler h ON h.handler_id = s.handler_id " +
			"WHERE h.consumer = "
		var left int
		fixture.NoError(t, w.pool.QueryRowContext(t.Context(), of+"'billing'").Scan(&left))
		if left != 2 { // number 4 and the dead event
			t.Errorf("%d are left", left)
		}
		fixture.NoError(t, w.pool.QueryRowContext(t.Context(), of+"'other'").Scan(&left))
		fixture.Check(t, left == 5, "%d are left of the other consumer", left)
	})
}

// The inbox writes nothing in a transaction that a deadlock has ended, because MariaDB would write
// the row outside of it.
func TestInboxBeginInADeadTransaction(t *testing.T) {
	t.Parallel()
	eachInbox(t, func(t *testing.T, w *inboxWorld) {
		store, err := sqlinbox.New(w.pool, sqlinbox.Config{Dialect: w.db.Dialect})
		fixture.NoError(t, err)
		e := coreinbox.Event{Key: coreinbox.Key{Consumer: "c", Handler: "h", EventID: "e"}}
		err = w.orm.transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
			if _, err := tx.Exec(ctx, "ROLLBACK"); err != nil {
				return err
			}
			_, _, err := store.Begin(ctx, tx, e)
			return err
		})
		fixture.Check(t, errors.Is(err, core.ErrTxAborted), "%v", err)
		if status, _ := w.status("e"); status != -1 {
			t.Errorf("the row was written: status %d", status)
		}
	})
}

// Another program has written infinite times, which only PostgreSQL has. They fail no list and no
// batch of the archive, and hold up no event.
func TestInboxOfInfiniteTimes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		if db.Dialect != core.Postgres {
			t.Log("no other database has infinite times")
			return
		}
		pool := db.Open(t)
		s, transactor := fixture.NewInboxStore(t, pool, sqlinbox.Config{}), sqltx.NewTransactor(pool, db.Dialect)
		event := func(id string) coreinbox.Event {
			return coreinbox.Event{Key: coreinbox.Key{Consumer: "c", Handler: "h", EventID: id}}
		}
		_, err := s.Register(t.Context(), coreinbox.Registration{Consumer: "c", Handler: "h"})
		fixture.NoError(t, err)
		begin := func(id string) {
			t.Helper()
			fixture.NoError(t, transactor.RunInTx(t.Context(), func(ctx context.Context, tx core.Tx) error {
				state, _, err := s.Begin(ctx, tx, event(id))
				fixture.Check(t, state == coreinbox.StateFresh, "%s is %v, %v", id, state, err)
				return err
			}))
		}
		for _, id := range []string{"early", "late", "dead", "dead 2", "dead 3"} {
			_, _, err := s.Fail(t.Context(), coreinbox.Failure{Event: event(id), Code: "x", Dead: id[0] == 'd'})
			fixture.NoError(t, err)
		}
		begin("done")
		fixture.MustExec(t, pool, "UPDATE inbox_seen SET processed_at = '-infinity' WHERE event_id = 'done'")
		fixture.MustExec(t, pool, "UPDATE inbox_failure SET received_at = 'infinity', failed_at = '-infinity' WHERE "+
			"event_id IN ('dead 2', 'dead 3')")
		const processing = "UPDATE inbox_failure SET status = 1, updated_at = "
		fixture.MustExec(t, pool, processing+"'-infinity' WHERE event_id = 'early'")
		fixture.MustExec(t, pool, processing+"'infinity' WHERE event_id = 'late'")
		begin("early")
		begin("late")

		q := coreinbox.DeadQuery{Consumer: "c", Limit: 1}
		for _, want := range []string{"dead", "dead 2", "dead 3"} {
			list, err := s.ListDead(t.Context(), q)
			if err != nil || len(list) != 1 || list[0].EventID != want {
				t.Fatalf("dead are %+v, %v, want %q", list, err, want)
			}
			q.After = &list[0]
		}
		n, err := s.Archive(t.Context(), "c", time.Minute, 10, func(_ context.Context,
			events []coreinbox.ArchivedEvent,
		) error {
			_, err := json.Marshal(events)
			return err
		})
		if n != 1 || err != nil {
			t.Errorf("%d events archived, %v", n, err)
		}
	})
}
