// Package migrating_test runs the migrations of docs/migrating.md against real servers.
package migrating_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/relay"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// A service moves from Watermill's Forwarder to the outbox, and back. Messages wait in the table of
// the former solution while its producers are replaced. Each message arrives, and each key keeps
// its order.
func TestForwarderMigration(t *testing.T) {
	t.Parallel()
	migrate(t, func(pool *sql.DB) former { return &forwarding{t, pool} })
}

// A service moves from a hand-written table to the outbox, and back.
func TestHandWrittenTableMigration(t *testing.T) {
	t.Parallel()
	migrate(t, func(pool *sql.DB) former { return &polling{t, pool} })
}

func migrate(t *testing.T, of func(pool *sql.DB) former) {
	t.Helper()
	m := newMigration(t, of)

	// Before: the former solution alone.
	stop := m.former.publish()
	m.produce(40, m.writeFormer)
	m.arrives()
	m.formerIsDone() // it writes that down after the message has arrived
	stop()           // the former solution falls behind
	m.produce(25, m.writeFormer)
	if n := m.former.waiting(); n != 25*keys {
		t.Fatalf("%d messages wait, want %d", n, 25*keys)
	}

	// The outbox has its tables, and all its destinations are paused. The new producers take over.
	m.pause()
	relay := m.relay.Run()
	m.produce(25, m.writeOutbox)
	if got, told := m.handled(), m.toldCount(); got != 40*keys || told != 90*keys {
		t.Errorf("%d of %d messages are handled: the outbox did not wait", got, told)
	}

	// The former solution catches up, then the consumers, then the outbox goes on.
	stop = m.former.publish()
	m.formerIsDone()
	fixture.Await(t, "the consumers have caught up", func() bool { return m.handled() == 65*keys })
	stop()
	m.resume()
	m.produce(25, m.writeOutbox)
	m.arrives()
	m.drained()

	// The service moves back. The outbox still has events when its producers are replaced.
	m.pause()
	m.produce(25, m.writeOutbox)
	m.produce(25, m.writeFormer)
	m.resume()
	m.drained()
	fixture.Await(t, "the consumers have caught up", func() bool { return m.handled() == 140*keys })
	relay()
	stop = m.former.publish()
	m.arrives()
	stop()
	m.compare()
}

func (m *migration) formerIsDone() {
	m.Helper()
	fixture.Await(m.T, "no message waits in the former table", func() bool { return m.former.waiting() == 0 })
}

// keys is how many keys there are. Each has a writer of its own.
const keys = 8

type migration struct {
	*testing.T
	topic  string
	pool   *sql.DB // for the former producers
	relay  *fixture.Process
	outbox *watermillbridge.OutboxPublisher
	former former

	mu    sync.Mutex
	last  [keys]int         // the number of the last committed message, by key
	told  map[string]string // what a message says, by UUID
	wrong []string
}

func newMigration(t *testing.T, of func(pool *sql.DB) former) *migration {
	t.Helper()
	db := testdb.Postgres(t)
	m := &migration{T: t, topic: topics.Kafka(t, "", 3, nil), pool: db.Open(t), told: map[string]string{}}
	m.former = of(m.pool)
	m.former.prepare()
	m.relay = fixture.JoinProcess(
		t,
		db,
		nil,
		core.Config{Publisher: topics.KafkaPublisher(t, kafkabridge.Config{}), Relay: relay.Config{}},
	)
	fixture.NoError(t, m.relay.Repository.Migrate(t.Context()))
	var err error
	m.outbox, err = watermillbridge.NewOutboxPublisher(m.relay.Outbox, watermillbridge.OutboxConfig{})
	fixture.NoError(t, err)
	fixture.MustExec(t, m.pool, "CREATE TABLE business (key int PRIMARY KEY, n int NOT NULL)")
	fixture.MustExec(t, m.pool, "INSERT INTO business SELECT k, 0 FROM generate_series(0, "+strconv.Itoa(keys-1)+") k")
	fixture.MustExec(t, m.pool, `CREATE TABLE handled (place bigserial, uuid text PRIMARY KEY, key int, n int)`)
	m.consume(db)
	return m
}

// consume handles messages as a service with an inbox does. The consumer is the same before and
// after the migration.
func (m *migration) consume(db testdb.DB) {
	m.Helper()
	subscriber, err := kafkabridge.NewSubscriber(kafkabridge.SubscriberConfig{
		Brokers: []string{topics.KafkaAddress(m)}, Group: "g-" + core.NewEventID(),
	})
	fixture.NoError(m.T, err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	fixture.NoError(m.T, err)
	pool := fixture.TrackedPool(m.T, db)
	router.AddMiddleware(inbox.SQL(pool, "billing", inbox.CreateTables()))
	router.AddConsumerHandler("invoice", m.topic, subscriber, m.handle)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	m.Cleanup(func() {
		stop()
		fixture.NoError(m.T, <-ended)
		_ = subscriber.Close()
	})
}

func (m *migration) handle(msg *message.Message) error {
	tx, err := sqltx.FromContext(msg.Context())
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.told[msg.UUID] != string(msg.Payload) || msg.Metadata["origin"] != "business" {
		m.wrong = append(m.wrong, fmt.Sprintf("%s %q %v", msg.UUID, msg.Payload, msg.Metadata))
	}
	if id := msg.Metadata[core.HeaderEventID]; id != "" && id != msg.UUID { // both ways keep the id
		m.wrong = append(m.wrong, "event id "+id+" of "+msg.UUID)
	}
	m.mu.Unlock()
	var key, n int
	if _, err := fmt.Sscanf(string(msg.Payload), `{"key": %d, "n": %d}`, &key, &n); err != nil {
		return err
	}
	_, err = tx.ExecContext(msg.Context(), "INSERT INTO handled (uuid, key, n) VALUES ($1, $2, $3)", msg.UUID, key, n)
	return err
}

// writer writes a message in a transaction of the business, and commits unless the business
// refuses.
type writer func(ctx context.Context, key int, refuse error, say func(n int) *message.Message) error

// produce has each key change several times. Some changes are rolled back.
func (m *migration) produce(changes int, write writer) {
	m.Helper()
	var all sync.WaitGroup
	for key := range keys {
		all.Go(func() {
			for i := range changes {
				if i%5 == 0 {
					refused := errors.New("the business refuses")
					if err := m.change(key, refused, write); !errors.Is(err, refused) {
						m.Error(err)
					}
				}
				if err := m.change(key, nil, write); err != nil {
					m.Error(err)
				}
			}
		})
	}
	all.Wait()
	if m.Failed() {
		m.FailNow()
	}
}

func (m *migration) change(key int, refuse error, write writer) error {
	uuid := watermill.NewUUID()
	return write(m.Context(), key, refuse, func(n int) *message.Message {
		msg := message.NewMessage(uuid, fmt.Appendf(nil, `{"key": %d, "n": %d}`, key, n))
		msg.Metadata.Set(core.HeaderPartitionKey, fmt.Sprintf("account/%d", key))
		msg.Metadata.Set("origin", "business")
		if refuse == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.told[uuid], m.last[key] = string(msg.Payload), n
		}
		return msg
	})
}

const changeBusiness = "UPDATE business SET n = n + 1 WHERE key = $1 RETURNING n"

func (m *migration) writeFormer(ctx context.Context, key int, refuse error, say func(n int) *message.Message) error {
	tx, err := m.pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var n int
	err = tx.QueryRowContext(ctx, changeBusiness, key).Scan(&n)
	if err == nil {
		err = m.former.write(ctx, tx, m.topic, say(n))
	}
	if err = errors.Join(err, refuse); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (m *migration) writeOutbox(ctx context.Context, key int, refuse error, say func(n int) *message.Message) error {
	return m.relay.Tx.RunInTx(ctx, func(ctx context.Context, _ core.Tx) error {
		tx, err := sqltx.FromContext(ctx)
		if err != nil {
			return err
		}
		var n int
		if err := tx.QueryRowContext(ctx, changeBusiness, key).Scan(&n); err != nil {
			return err
		}
		msg := say(n)
		msg.SetContext(ctx)
		return errors.Join(m.outbox.Publish(m.topic, msg), refuse)
	})
}

func (m *migration) pause() {
	m.Helper()
	req := core.PauseRequest{All: true, Actor: "ada", Reason: "moving"}
	fixture.NoError(m.T, m.relay.Outbox.Pause(m.Context(), req))
}

func (m *migration) resume() {
	m.Helper()
	_, err := m.relay.Outbox.Resume(m.Context(), core.ResumeRequest{All: true, Actor: "ada", Reason: "moved"})
	fixture.NoError(m.T, err)
}

// drained waits until the outbox has nothing to send. Nothing may be dead.
func (m *migration) drained() {
	m.Helper()
	fixture.Await(m, "no event waits in the outbox", func() bool {
		b, err := m.relay.Outbox.Backlog(m.Context())
		fixture.NoError(m.T, err)
		if b.Dead > 0 {
			m.Fatalf("backlog %+v", b)
		}
		return b.Pending == 0
	})
}

func (m *migration) toldCount() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.told))
}

// handled counts the messages that had their effect.
func (m *migration) handled() int64 {
	m.Helper()
	return fixture.Count(m.T, m.pool, "SELECT count(*) FROM handled")
}

// arrives waits until each committed message has had its effect. It checks that no other message
// had an effect, and that each key was handled in the order of its changes.
func (m *migration) arrives() {
	m.Helper()
	fixture.Await(m, "every message is handled", func() bool { return m.handled() >= m.toldCount() })
	next := [keys]int{}
	type effect struct {
		uuid   string
		key, n int
	}
	all := fixture.Query(m.T, m.pool, "SELECT uuid, key, n FROM handled ORDER BY place",
		func(r *sql.Rows) (e effect, err error) { return e, r.Scan(&e.uuid, &e.key, &e.n) })
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range all {
		if m.told[e.uuid] == "" {
			m.Errorf("a message arrived whose transaction was rolled back: %+v", e)
		}
		if next[e.key]++; e.n != next[e.key] {
			m.Errorf("key %d: change %d was handled as number %d", e.key, e.n, next[e.key])
		}
	}
	if next != m.last {
		m.Errorf("handled up to %v, changed up to %v", next, m.last)
	}
	if len(m.wrong) > 0 {
		m.Errorf("%d messages are not as they were sent, such as %s", len(m.wrong), m.wrong[0])
	}
	if m.Failed() {
		m.FailNow()
	}
}

// compare compares the table of the outbox with that of the inbox, as the guide does.
func (m *migration) compare() {
	m.Helper()
	text := strings.ReplaceAll(guide(m.T, "SELECT event_id FROM outbox_event WHERE topic = 'orders'"), "'orders'",
		"'"+m.topic+"'")
	for _, want := range []int64{0, 1} {
		if got := fixture.Count(m.T, m.pool, "SELECT count(*) FROM ("+text+") missing"); got != want {
			m.Errorf("%d events are missing, want %d", got, want)
		}
		// Another program has lost a message.
		fixture.MustExec(m.T, m.pool, `DELETE FROM inbox_seen WHERE event_id = (SELECT min(event_id)
			FROM outbox_event)`)
	}
}

// guide returns the statement of the guide that begins with the given text.
func guide(t *testing.T, begin string) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "migrating.md"))
	fixture.NoError(t, err)
	_, rest, found := strings.Cut(string(page), begin)
	if !found {
		t.Fatalf("docs/migrating.md has no %q", begin)
	}
	rest, _, _ = strings.Cut(rest, ";")
	return begin + rest
}
