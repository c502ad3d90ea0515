package cli_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/once"
	"github.com/ormoutbox/ormoutbox/core/once/command"
	"github.com/ormoutbox/ormoutbox/core/once/command/sqlcommand"
	"github.com/ormoutbox/ormoutbox/core/once/sqlonce"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// mails is the other side of the effects. It is no part of a backup.
type mails struct {
	mu   sync.Mutex
	sent map[string][]string // the idempotency keys of the mails to somebody
}

func (m *mails) send(_ context.Context, e command.Effect) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent[e.Key] = append(m.sent[e.Key], e.IdempotencyKey())
	return "", nil
}

// restoredService is a process of a service whose database has everything: it publishes events of
// topic orders, consumes topic payments, sends mails, and answers requests once.
type restoredService struct {
	t        *testing.T
	pool     *sql.DB
	tx       core.Transactor
	ob       *core.Outbox
	in       *inbox.Inbox
	queue    *command.Queue
	commands *command.Commands
	read     int // messages of the broker that it has acknowledged
}

// startService starts a process. Its consumer has that name, and processes only what is newer.
func startService(t *testing.T, db testdb.DB, name string, broker *outboxtest.Publisher, post *mails) *restoredService {
	t.Helper()
	s := &restoredService{t: t, pool: sql.OpenDB(sqltx.Connector(db.Connector(t), db.Dialect))}
	t.Cleanup(func() { _ = s.pool.Close() })
	s.tx = sqltx.NewTransactor(s.pool, db.Dialect)
	effects, err := sqlcommand.New(s.pool, sqlcommand.Config{})
	fixture.NoError(t, err)
	worker, err := command.NewWorker(command.WorkerConfig{
		Store: effects, Handlers: map[string]command.Handler{"mail": post.send},
	})
	fixture.NoError(t, err)
	router := core.NewRouter()
	worker.AddTo(router)
	router.HandleOther(broker)
	repository, err := sqloutbox.New(s.pool, sqloutbox.Config{})
	fixture.NoError(t, err)
	s.ob, err = core.New(core.Config{Repository: repository, Publisher: router, Relay: relay.Config{}})
	fixture.NoError(t, err)
	s.queue, err = command.NewQueue(command.QueueConfig{Store: effects, Outbox: s.ob})
	fixture.NoError(t, err)
	keys, err := sqlonce.New(s.pool, sqlonce.Config{})
	fixture.NoError(t, err)
	s.commands, err = command.New(once.Config{Store: keys})
	fixture.NoError(t, err)
	seen, err := sqlinbox.New(s.pool, sqlinbox.Config{})
	fixture.NoError(t, err)
	s.in, err = inbox.New(inbox.Config{
		Consumer: name, Handler: "h", Transactor: s.tx, Store: seen, OnlyNewer: []string{"h"},
	})
	fixture.NoError(t, err)
	return s
}

// publish commits an event, and returns its id.
func (s *restoredService) publish(topic, key string) string {
	s.t.Helper()
	var ids []string
	fixture.NoError(s.t, s.tx.RunInTx(s.t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
		ids, err = s.ob.Publish(ctx, tx, core.Event{Type: "changed", Topic: topic, Key: key, Payload: []byte("{}")})
		return err
	}))
	return ids[0]
}

// drain publishes what waits, and executes effects.
func (s *restoredService) drain() {
	s.t.Helper()
	fixture.NoError(s.t, s.ob.Drain(s.t.Context()))
}

// consume processes the messages of a topic that have come since, and returns the outcome of each.
// With mail each event causes a mail, and an event of topic receipts.
func (s *restoredService) consume(broker *outboxtest.Publisher, topic string, mail bool) (outcomes []string) {
	s.t.Helper()
	all := broker.Accepted()
	for _, d := range all[s.read:] {
		if d.Topic != topic {
			continue
		}
		res := s.in.Process(s.t.Context(), inbox.Message{
			ID: d.ID, Topic: d.Topic, PartitionKey: d.Key, KeySeq: d.KeySeq, Headers: d.Headers, Payload: d.Payload,
		}, func(ctx context.Context, tx core.Tx, msg inbox.Message) error {
			if _, err := tx.Exec(ctx, "INSERT INTO done (id) VALUES ('"+msg.ID+"')"); err != nil || !mail {
				return err
			}
			if _, _, err := s.queue.Enqueue(ctx, nil, command.Effect{Channel: "mail", Key: msg.ID}); err != nil {
				return err
			}
			_, err := s.ob.Publish(ctx, tx, core.Event{Type: "receipt", Topic: "receipts", Payload: []byte("{}")})
			return err
		})
		fixture.NoError(s.t, res.Err)
		outcomes = append(outcomes, res.Outcome)
	}
	s.read = len(all)
	return outcomes
}

// request executes a request with an Idempotency-Key, which publishes an event. A repeated request
// returns the event of its first execution.
func (s *restoredService) request(key string) (event string, repeated bool) {
	s.t.Helper()
	event, repeated, err := command.RunInTx(s.t.Context(), s.commands, s.tx, command.Command{Type: "order", Key: key},
		func(ctx context.Context, tx core.Tx) (string, error) {
			ids, err := s.ob.Publish(ctx, tx,
				core.Event{Type: "changed", Topic: "orders", Key: key, Payload: []byte("{}")})
			if err != nil {
				return "", err
			}
			return ids[0], nil
		})
	fixture.NoError(s.t, err)
	return event, repeated
}

// copies counts the copies of an event at the broker.
func copies(broker *outboxtest.Publisher, id string) (n int) {
	for _, d := range broker.Accepted() {
		if d.ID == id {
			n++
		}
	}
	return n
}

// receipts counts the events that the handler has published for an event, by their ids.
func receipts(broker *outboxtest.Publisher, cause string) int {
	ids := map[string]bool{}
	for _, d := range broker.Accepted() {
		if d.Topic == "receipts" && d.Headers[core.HeaderCausationID] == cause {
			ids[d.ID] = true
		}
	}
	return len(ids)
}

// lastSeq is the number in its key that the newest copy of an event has.
func lastSeq(broker *outboxtest.Publisher, id string) (n int64) {
	for _, d := range broker.Accepted() {
		if d.ID == id {
			n = d.KeySeq
		}
	}
	return n
}

// backup is a dump of a database, by the program of PostgreSQL.
func backup(t *testing.T, db testdb.DB) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "dump")
	postgresTool(t, "pg_dump", "--format=custom", "--file="+file, "--dbname="+db.DSN)
	return file
}

func postgresTool(t *testing.T, name string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%v: it is in the package postgresql-client", err)
	}
	if out, err := exec.CommandContext(t.Context(), path, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// restore makes a database anew from a dump.
func restore(t *testing.T, db testdb.DB, file string) {
	t.Helper()
	u, err := url.Parse(db.DSN)
	fixture.NoError(t, err)
	name := strings.TrimPrefix(u.Path, "/")
	admin, err := sql.Open("pgx", testdb.Server(t, "OUTBOX_TEST_POSTGRES"))
	fixture.NoError(t, err)
	defer admin.Close()
	for _, statement := range []string{"DROP DATABASE " + name + " WITH (FORCE)", "CREATE DATABASE " + name} {
		_, err = admin.ExecContext(t.Context(), statement)
		fixture.NoError(t, err)
	}
	postgresTool(t, "pg_restore", "--exit-on-error", "--dbname="+db.DSN, file)
}

// cli runs the program, which has to succeed.
func cli(t *testing.T, db testdb.DB, args ...string) string {
	t.Helper()
	out, errs, code := outbox(t, db, args...)
	fixture.Must(t, code == 0, "outbox %s: exit code %d\n%s%s", args, code, out, errs)
	return out
}

// newService makes the tables of a service.
func newService(t *testing.T) testdb.DB {
	t.Helper()
	db := testdb.Postgres(t)
	cli(t, db, "migrate", "up", "--tables", "all")
	_, err := db.Open(t).ExecContext(t.Context(), "CREATE TABLE done (id text PRIMARY KEY)")
	fixture.NoError(t, err)
	return db
}

// The shop's database comes back from a backup, with its outbox, inbox, keys and effects. The
// broker, the neighbours and the mail server have moved on. This is the procedure of
// docs/deploy.md, and what the page says of the outcome: what was open in the backup comes twice,
// what came later is lost and can be named, and everything else happens once.
func TestRestoreFromBackup(t *testing.T) {
	t.Parallel()
	broker, post := &outboxtest.Publisher{}, &mails{sent: map[string][]string{}}
	shopDB, payDB, searchDB := newService(t), newService(t), newService(t)
	shop := startService(t, shopDB, "shop", broker, post)
	payments := startService(t, payDB, "payments", broker, post)
	search := startService(t, searchDB, "search", broker, post)

	// Before the backup.
	_, paid := shop.publish("orders", "a"), payments.publish("payments", "p1")
	shop.drain()
	payments.drain()
	search.consume(broker, "orders", false)
	shop.consume(broker, "payments", true)
	shop.drain() // the mail about p1
	shop.request("r1")
	shop.drain()
	mailed := payments.publish("payments", "p2")
	payments.drain()
	shop.consume(broker, "payments", true)       // its mail is not sent yet
	open := shop.publish("orders", "a")          // not published yet
	queued := payments.publish("payments", "p3") // published, and not consumed yet
	payments.drain()
	dump := backup(t, shopDB)

	// After the backup.
	shop.drain()
	ghost := shop.publish("orders", "a")
	later := payments.publish("payments", "p4")
	payments.drain()
	shop.consume(broker, "payments", true)
	answered, _ := shop.request("r2")
	shop.drain()
	search.consume(broker, "orders", false)
	shop.publish("orders", "a") // committed, and published by nobody
	acknowledged := shop.read
	fixture.NoError(t, shop.pool.Close()) // 1. everything that uses the database is stopped
	restore(t, shopDB, dump)
	stale := repeatsNumbers(startService(t, shopDB, "shop", broker, post), search, broker, ghost)
	for key := range post.sent { // that restore is none of the procedure's
		post.sent[key] = slices.Compact(post.sent[key])
	}
	again := copies(broker, open)

	restore(t, shopDB, dump) // 2.
	cli(t, shopDB, "migrate", "up", "--tables", "all")
	cli(t, shopDB, "keys", "reset", "--actor", "ada", "--reason", "restored, INC-7", "--yes") // 3.
	cli(t, shopDB, "status")
	shop = startService(t, shopDB, "shop", broker, post) // 4.
	shop.read = acknowledged
	shop.drain()
	fixture.Check(t, copies(broker, open) == again+1, "the event that was open in the backup does not come again")
	next := shop.publish("orders", "a")
	shop.drain()
	fixture.Check(t, lastSeq(broker, next) > lastSeq(broker, ghost), "the number of the lost event comes again")
	fixture.Check(t, slices.Equal(search.consume(broker, "orders", false), []string{"duplicate", "processed"}),
		"a neighbour does not skip the repetition, or skips the new event")

	// 5. What the shop has consumed since comes again, and only that is processed.
	fixture.Check(t, len(shop.consume(broker, "payments", true)) == 0, "the broker forgets what was acknowledged")
	replay(t, payDB, payments, "payments")
	outcomes := shop.consume(broker, "payments", true)
	slices.Sort(outcomes)
	fixture.Check(t, slices.Equal(outcomes, []string{"duplicate", "duplicate", "processed", "processed"}),
		"the replay has the outcomes %v", outcomes)
	shop.drain()
	for _, id := range []string{paid, mailed, queued, later} {
		fixture.Check(t, fixture.Count(t, shop.pool, "SELECT COUNT(*) FROM done WHERE id = '"+id+"'") == 1,
			"payment %s is not processed once", id)
		want := 2 // the mail is sent again, with the same key
		if id == paid {
			want = 1
		}
		events := 1 // the handler has published again, under another id
		if id == queued || id == later {
			events = 2
		}
		fixture.Check(t, receipts(broker, id) == events, "%d receipts of %s, want %d", receipts(broker, id), id, events)
		got := post.sent[id]
		fixture.Check(t, len(got) == want && len(slices.Compact(slices.Clone(got))) == 1, "mails about %s: %v", id, got)
	}
	_, known := shop.request("r1")
	fresh, done := shop.request("r2")
	fixture.Check(t, known && !done && fresh != answered, "r1 is known: %t; r2 is known: %t", known, done)

	// 6. What was published and is lost.
	lost := lostEvents(t, search.pool, shop.pool)
	want := []string{ghost, answered, stale} // stale is of the restore without a reset
	slices.Sort(want)
	fixture.Check(t, slices.Equal(lost, want), "lost are %v, want %v", lost, want)
}

// repeatsNumbers shows why the procedure has a reset: without it the next event of the key has the
// number of the lost one, and a consumer skips it. It returns that event.
func repeatsNumbers(shop, search *restoredService, broker *outboxtest.Publisher, ghost string) (next string) {
	shop.t.Helper()
	shop.drain()
	next = shop.publish("orders", "a")
	shop.drain()
	fixture.Check(shop.t, lastSeq(broker, next) <= lastSeq(broker, ghost), "without a reset: number %d after %d",
		lastSeq(broker, next), lastSeq(broker, ghost))
	fixture.Check(shop.t, slices.Equal(search.consume(broker, "orders", false), []string{"duplicate", "stale"}),
		"a consumer takes the number that was given twice")
	fixture.NoError(shop.t, shop.pool.Close())
	return next
}

// replay publishes the events of a topic again while the service runs.
func replay(t *testing.T, db testdb.DB, s *restoredService, topic string) {
	t.Helper()
	out := cli(t, db, "replay", "plan", "--topic", topic, "--since", "1h", "--dedup-window", "168h", "--actor", "ada",
		"--reason", "the shop was restored, INC-7")
	plan := regexp.MustCompile(`plan (\w+) is planned`).FindStringSubmatch(out)
	fixture.Must(t, plan != nil, "no plan in %s", out)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.ob.Run(ctx) }()
	cli(t, db, "replay", "apply", plan[1], "--actor", "ada", "--yes")
	stop()
	fixture.NoError(t, <-ended)
}

// lostEvents are the events that a consumer has processed and that their producer does not know any
// more, by the two statements of docs/deploy.md.
func lostEvents(t *testing.T, consumer, producer *sql.DB) []string {
	t.Helper()
	text := func(r *sql.Rows) (id string, err error) { return id, r.Scan(&id) }
	ids := fixture.Query(t, consumer, `SELECT s.event_id FROM inbox_seen s JOIN inbox_handler h USING (handler_id)
		WHERE h.consumer = 'search' AND s.processed_at >= now() - interval '1 hour'`, text)
	return fixture.Query(t, producer, fmt.Sprintf(`SELECT s.id FROM unnest(ARRAY['%s']) AS s(id)
		WHERE NOT EXISTS (SELECT 1 FROM outbox_event e WHERE e.event_id = s.id) ORDER BY s.id`,
		strings.Join(ids, "','")), text)
}
