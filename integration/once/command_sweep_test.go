package once_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/sqlrecord"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Two relays share one table. The publisher of the first names no topics, like that of a bridge.
// The second relay executes effects, and its mail server fails once. Every mail is sent once, no
// effect stays pending, and the bridge gets no event of an effect.
func TestEffectsBesideAPlainBridge(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		const mails = 60
		var bridged, foreign atomic.Int64
		bridge := core.PublisherFunc(func(_ context.Context, d core.Delivery) error {
			bridged.Add(1)
			if strings.HasPrefix(d.Topic, core.ServedTopicPrefix) {
				foreign.Add(1)
			}
			return nil
		})
		// No process dies here. The leases are long, so that a process on a busy machine is not
		// taken for dead.
		patient := core.Config{
			Relay: relay.Config{PublishTimeout: time.Minute, HotLease: 2 * time.Minute, ClaimLease: 2 * time.Minute},
		}
		ofBridge, ofWorker := patient, patient
		ofBridge.Publisher = bridge
		plain := w.runRelay(ofBridge)
		var mu sync.Mutex
		sentMails, failures := map[string]int{}, 0
		worker := w.worker(func(_ context.Context, e command.Effect) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(sentMails) == 5 && failures == 0 {
				failures++
				return "", core.Unavailable(errors.New("421 4.3.2 Service not available, closing transmission channel"))
			}
			sentMails[e.Key]++
			return "ref-" + e.Key, nil
		}, func(c *command.WorkerConfig) { c.Lease, c.StoreTimeout = 2*time.Minute, time.Minute })
		router := core.NewRouter()
		worker.AddTo(router)
		ofWorker.Publisher = router
		w.runRelay(ofWorker)
		// The process with the bridge writes the effects, so its own relay hears of each commit.
		queue, err := command.NewQueue(command.QueueConfig{Store: w.store, Outbox: plain})
		fixture.NoError(t, err)
		for i := range mails {
			fixture.NoError(t, w.inTx(func(ctx context.Context, tx core.Tx) error {
				_, _, err1 := queue.Enqueue(ctx, nil, mail(fmt.Sprint(i)))
				_, err2 := plain.Publish(ctx, tx, core.Event{Type: "order.placed", Unordered: true})
				return errors.Join(err1, err2)
			}))
		}
		for i := range mails {
			w.await(mail(fmt.Sprint(i)), command.StatusCompleted)
		}
		w.eventually("the bridge has every other event", func() bool { return bridged.Load() >= mails })
		w.eventually("nothing is pending", func() bool {
			b, err := plain.Backlog(t.Context())
			fixture.NoError(t, err)
			effects, err := queue.Backlog(t.Context())
			fixture.NoError(t, err)
			return b.Pending == 0 && b.Dead == 0 && len(effects) == 0
		})
		mu.Lock()
		defer mu.Unlock()
		for i := range mails {
			if n := sentMails[fmt.Sprint(i)]; n != 1 {
				t.Errorf("mail %d was sent %d times", i, n)
			}
		}
		if foreign.Load() != 0 || bridged.Load() != mails || failures != 1 {
			t.Errorf("the bridge got %d effects and %d events, %d failures", foreign.Load(), bridged.Load(), failures)
		}
	})
}

// Effects can lose their events, for example to a publisher that took them for its own. Run
// executes such effects without the help of a person, each in one of the processes.
func TestEffectsWithoutEventsAreFound(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		const mails = 30
		for i := range mails {
			w.mustEnqueue(mail(fmt.Sprint(i)))
		}
		router := core.NewRouter()
		router.HandleFunc(command.Topic("mail"), func(context.Context, core.Delivery) error { return nil })
		taker := w.runRelay(core.Config{Publisher: router, Relay: relay.Config{}})
		w.eventually("the events are taken", func() bool {
			b, err := taker.Backlog(t.Context())
			fixture.NoError(t, err)
			return b.Pending == 0
		})
		soon := func(c *command.WorkerConfig) {
			c.OverdueAfter, c.SweepInterval, c.SweepTimeout = 50*time.Millisecond, 50*time.Millisecond, 30*time.Second
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			worker := w.worker(sent, soon)
			wg.Go(func() {
				if err := worker.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for i := range mails {
			if rec := w.await(mail(fmt.Sprint(i)), command.StatusCompleted); rec.ExternalRef != refs(i) {
				t.Errorf("%+v", rec)
			}
		}
		cancel()
		wg.Wait()
		if n := len(w.called()); n != mails {
			t.Errorf("%d calls for %d mails", n, mails)
		}
		if list, err := w.queue.Backlog(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	})
}

// An overdue effect belongs to the channel, has been due for long enough, has not ended and has no
// holder. The backlog counts it.
func TestEffectOverdueAndBacklog(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		store := w.store
		later := mail("later")
		later.Delay = time.Hour
		fax := mail("fax")
		fax.Channel = "fax"
		for _, e := range []command.Effect{mail("pending"), mail("older"), mail("new"), later, fax} {
			w.mustEnqueue(e)
		}
		claim := func(key string) command.Claim {
			rec := w.mustEnqueue(mail(key))
			got, err := store.Claim(t.Context(), rec.ID, "o-"+key, time.Hour)
			if err != nil || !got.Fresh {
				t.Fatal(got, err)
			}
			return command.Claim{ID: rec.ID, Owner: "o-" + key, Fence: got.Fence}
		}
		claim("held")
		claim("abandoned")
		claim("just abandoned")
		fixture.NoError(t, store.Fail(t.Context(), claim("failed"), command.Failure{Code: "transient"}))
		fixture.NoError(t, store.Fail(t.Context(), claim("dead"), command.Failure{Dead: true}))
		fixture.NoError(t, store.Complete(t.Context(), claim("completed"), "ref"))
		w.ago("available_at", 20*time.Minute, "pending", "held", "abandoned", "just abandoned", "dead", "completed",
			"failed", "fax")
		w.ago("available_at", 30*time.Minute, "older")
		w.ago("created_at", 3*time.Hour, "older", "failed", "fax")
		w.ago("lease_until", 15*time.Minute, "abandoned")
		w.ago("lease_until", 5*time.Minute, "just abandoned")

		keys := func(channel string, limit int) string {
			t.Helper()
			list, err := store.Overdue(t.Context(), channel, 10*time.Minute, limit)
			fixture.NoError(t, err)
			var keys []string
			for _, r := range list {
				keys = append(keys, r.Key)
			}
			return strings.Join(keys, ",")
		}
		// Effects that became due at the same instant come in the order of their ids. Ids follow
		// the time only from one millisecond to the next.
		got := keys("mail", 100)
		if !strings.HasPrefix(got, "older,") || len(strings.Split(got, ",")) != 4 ||
			!strings.Contains(got, "pending") || !strings.Contains(got, ",abandoned") ||
			!strings.Contains(got, "failed") {
			t.Errorf("overdue: %s", got)
		}
		if got := keys("mail", 1); got != "older" {
			t.Errorf("the first: %s", got)
		}
		if got := keys("fax", 10) + keys("nothing", 10) + keys("fax", 0); got != "fax" {
			t.Errorf("other channels: %s", got)
		}
		if _, err := store.Overdue(t.Context(), "mail", -1, 1); !errors.Is(err, once.ErrInvalidRequest) {
			t.Errorf("negative grace: %v", err)
		}

		list, err := w.queue.Backlog(t.Context())
		if err != nil || len(list) != 2 || list[0].Channel != "fax" || list[0].Pending != 1 || list[0].Dead != 0 ||
			list[1].Channel != "mail" ||
			list[1].Pending != 8 || list[1].Dead != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		// The age of "older" counts from the end of its delay, the age of "failed" from its
		// enqueueing.
		if d := list[1].OldestAge; d < 3*time.Hour || d > 4*time.Hour {
			t.Errorf("mail: the oldest has waited for %s", d)
		}
		if d := list[0].OldestAge; d < 20*time.Minute || d > time.Hour {
			t.Errorf("fax: the oldest has waited for %s", d)
		}
		fixture.MustExec(t, w.pool, "DELETE FROM side_effect_command WHERE idempotency_key NOT IN ('older', "+
			"'later', 'dead')")
		list, err = store.Backlog(t.Context(), 1)
		if err != nil || len(list) != 1 || list[0].Pending != 1 || list[0].Dead != 1 || list[0].Limit != 1 ||
			list[0].OldestAge < 30*time.Minute || list[0].OldestAge > time.Hour {
			t.Errorf("%+v, %v", list, err)
		}
		fixture.MustExec(t, w.pool, "DELETE FROM side_effect_command WHERE idempotency_key = 'older'")
		if list, err = store.Backlog(t.Context(), 10); err != nil || len(list) != 1 || list[0].OldestAge != 0 ||
			list[0].Pending != 1 {
			t.Errorf("an effect that is not due yet has an age: %+v, %v", list, err)
		}
		fixture.MustExec(t, w.pool, "DELETE FROM side_effect_command WHERE idempotency_key = 'later'")
		if list, err = store.Backlog(t.Context(), 10); err != nil || len(list) != 1 || list[0].Dead != 1 ||
			list[0].Pending != 0 {
			t.Errorf("dead alone: %+v, %v", list, err)
		}
		if _, err := store.Backlog(t.Context(), 0); !errors.Is(err, once.ErrInvalidRequest) {
			t.Errorf("no limit: %v", err)
		}
	})
}

// A person has made an effect due for all time. PostgreSQL has a time for that, and what is asked
// about all effects is answered nevertheless.
func TestEffectsOfInfiniteTimes(t *testing.T) {
	t.Parallel()
	eachEffectWorld(t, func(t *testing.T, w *effectWorld) {
		if w.store.Dialect() != core.Postgres {
			t.Log("no other database has infinite times")
			return
		}
		for _, key := range []string{"forced", "older", "done", "ended"} {
			w.mustEnqueue(mail(key))
		}
		w.ago("available_at", 30*time.Minute, "older")
		w.ago("created_at", 40*time.Minute, "older")
		set := func(change, key string) {
			fixture.MustExec(t, w.pool, "UPDATE side_effect_command SET "+change+" WHERE idempotency_key = '"+key+"'")
		}
		set("available_at = '-infinity'", "forced")
		set("status = 2, done_at = '-infinity', created_at = '-infinity', updated_at = 'infinity'", "done")
		set("status = 2, done_at = now() - interval '1 hour', created_at = '200000-01-01', updated_at = '-infinity'",
			"ended")
		list, err := w.queue.Backlog(t.Context())
		if err != nil || len(list) != 1 || list[0].Pending != 2 || list[0].OldestAge < 30*time.Minute ||
			list[0].OldestAge > time.Hour {
			t.Errorf("%+v, %v", list, err)
		}
		overdue, err := w.store.Overdue(t.Context(), "mail", 10*time.Minute, 10)
		if err != nil || len(overdue) != 2 || overdue[0].Key != "forced" {
			t.Errorf("overdue %+v, %v", overdue, err)
		}
		ended, err := w.store.List(t.Context(), command.Query{Status: command.StatusCompleted})
		if err != nil || len(ended) != 2 {
			t.Errorf("completed are %+v, %v", ended, err)
		}
		n, err := w.store.Archive(t.Context(), time.Minute, 10, func(_ context.Context, list []command.Record) error {
			_, err := json.Marshal(list)
			return err
		})
		if n != 2 || err != nil {
			t.Errorf("%d archived, %v", n, err)
		}
	})
}

// Neither the search for overdue effects nor the backlog reads 15,000 completed effects and 5,000
// of other channels.
func TestEffectPlans(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		pool, rec := fixture.OpenRecorded(t, db)
		store := fixture.NewEffectStore(t, pool, sqlcommand.Config{Dialect: db.Dialect})
		fillEffects(t, db.Dialect, pool)
		for _, statistics := range []string{"no", "new"} {
			if statistics == "new" {
				fixture.MustExec(t, pool, map[core.Dialect]string{
					core.Postgres: "ANALYZE side_effect_command", core.MySQL: "ANALYZE TABLE side_effect_command",
					core.SQLite: "ANALYZE side_effect_command",
				}[db.Dialect])
			}
			for name, run := range map[string]func(ctx context.Context) error{
				"overdue": func(ctx context.Context) error {
					list, err := store.Overdue(ctx, "mail", time.Minute, 100)
					if err == nil && len(list) != 100 {
						err = fmt.Errorf("%d are overdue", len(list))
					}
					return err
				},
				"backlog": func(ctx context.Context) error {
					list, err := store.Backlog(ctx, 50)
					if err == nil && (len(list) != 2 || list[0].Pending != 50 || list[1].Dead != 0) {
						err = fmt.Errorf("%+v", list)
					}
					return err
				},
			} {
				t.Run(name+" with "+statistics+" statistics", func(t *testing.T) {
					rec.Start()
					err := run(t.Context())
					calls := rec.Stop()
					if err != nil || len(calls) == 0 {
						t.Fatal(len(calls), err)
					}
					for _, c := range calls {
						if strings.Contains(c.Query, "side_effect_command") {
							effectPlan(t, db.Dialect, pool, c)
						}
					}
				})
			}
		}
	})
}

// fillEffects writes 15,000 completed effects, 5,000 pending ones of the channel webhook and 200 of
// the channel mail.
func fillEffects(t *testing.T, d core.Dialect, pool *sql.DB) {
	t.Helper()
	const columns = "INSERT INTO side_effect_command (id, tenant_id, channel, idempotency_key, payload, status, " +
		"available_at, created_at, updated_at, done_at) "
	fixture.MustExec(t, pool, map[core.Dialect]string{
		core.Postgres: columns + "SELECT 'e-' || n, '', CASE WHEN n > 20000 THEN 'mail' ELSE 'webhook' END, 'k-' || " +
			"n, '', CASE WHEN n <= 15000 THEN 2 ELSE 0 END, at, at, at, at " +
			"FROM (SELECT n, now() - interval '1 hour' AS at FROM generate_series(1, 20200) AS s(n)) x",
		core.MySQL: columns + "SELECT CONCAT('e-', n), '', IF(n > 20000, 'mail', 'webhook'), CONCAT('k-', n), '', " +
			"IF(n <= 15000, 2, 0), at, at, at, at " +
			"FROM (SELECT n, UTC_TIMESTAMP(6) - INTERVAL 1 HOUR AS at FROM " + fixture.Numbers(20200) + ") x",
		core.SQLite: "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 20200), x AS (SELECT " +
			"n, (unixepoch() - 3600) * 1000000 AS at FROM s) " + columns +
			"SELECT 'e-' || n, '', CASE WHEN n > 20000 THEN 'mail' ELSE 'webhook' END, 'k-' || n, '', CASE WHEN n " +
			"<= 15000 THEN 2 ELSE 0 END, at, at, at, at FROM x",
	}[d])
}

// effectPlan refuses a plan that walks through the table or sorts.
func effectPlan(t *testing.T, d core.Dialect, pool *sql.DB, c sqlrecord.Call) {
	t.Helper()
	plan := fixture.Explain(t, d, pool, c, true)
	for _, walk := range map[core.Dialect][]string{
		core.Postgres: {"Seq Scan", "Sort Key: available_at", "Sort Key: side_effect_command.available_at"},
		core.MySQL:    {"side_effect_command|ALL|", "side_effect_command|index|"},
		core.SQLite:   {"SCAN side_effect_command|", "SCAN side_effect_command\n", "USE TEMP B-TREE FOR ORDER BY"},
	}[d] {
		if strings.Contains(plan.String(), walk) {
			t.Errorf("%s in the plan of\n%.400s\n%.2000s", walk, c.Query, plan.String())
		}
	}
}
