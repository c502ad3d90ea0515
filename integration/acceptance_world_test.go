package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/outboxtest"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
)

// Values of the column status.
const (
	statusNew   = 0
	statusDone  = 1
	statusRetry = 2
	statusDead  = 3
)

// process is one process of a service that uses database/sql: a pool, an outbox, and a destination that it may share.
type process struct {
	t    *testing.T
	db   testdb.DB
	pool *sql.DB
	repo *sqloutbox.Repository
	tx   core.Transactor
	pub  *outboxtest.Publisher
	ob   *core.Outbox

	hot, cold   atomic.Int64 // publishes by their path
	claimed     atomic.Int64 // rows the poller took
	dropped     atomic.Int64 // rows that the fast path had no room for
	breakerOpen atomic.Int64 // times a destination was stopped
}

// newProcess makes the tables, and the table accounts(id, balance) of the business.
func newProcess(t *testing.T, db testdb.DB, cfg core.Config) *process {
	t.Helper()
	p := joinProcess(t, db, &outboxtest.Publisher{}, cfg)
	if err := p.repo.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.pool.ExecContext(t.Context(), "CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return p
}

// joinProcess makes another process on the same tables.
func joinProcess(t *testing.T, db testdb.DB, pub *outboxtest.Publisher, cfg core.Config) *process {
	t.Helper()
	p := &process{t: t, db: db, pub: pub, pool: sql.OpenDB(sqloutbox.Connector(db.Connector(t), db.Dialect))}
	p.pool.SetMaxOpenConns(20)
	t.Cleanup(func() { _ = p.pool.Close() })
	var err error
	if p.repo, err = sqloutbox.New(p.pool, sqloutbox.Config{Dialect: db.Dialect}); err != nil {
		t.Fatal(err)
	}
	p.tx = sqloutbox.NewTransactor(p.pool, db.Dialect)
	cfg.Repository = p.repo
	if cfg.Publisher == nil {
		cfg.Publisher = pub
	}
	cfg.Observer = core.TeeObserver(cfg.Observer, p.observer())
	if p.ob, err = core.New(cfg); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) observer() *core.Observer {
	return &core.Observer{
		Published: func(i core.PublishInfo) {
			if i.Path == core.PathHot {
				p.hot.Add(1)
			} else {
				p.cold.Add(1)
			}
		},
		Claimed: func(i core.ClaimInfo) { p.claimed.Add(int64(i.Rows)) },
		Dropped: func(_ string, reason core.DropReason) {
			if reason == core.DropFull {
				p.dropped.Add(1)
			}
		},
		BreakerChanged: func(_ string, open bool, _ error) {
			if open {
				p.breakerOpen.Add(1)
			}
		},
	}
}

// run starts the relay. It ends with the test, or when stop is called.
func (p *process) run() (stop func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan struct{}), make(chan error, 1)
	go func() { close(started); done <- p.ob.Run(ctx) }()
	<-started
	var once atomic.Bool
	stop = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("Run: %v", err)
		}
	}
	p.t.Cleanup(stop)
	return stop
}

// runHot starts the relay and returns when it gives events a place on the fast path.
func (p *process) runHot() (stop func()) {
	p.t.Helper()
	stop = p.run()
	awaitThat(p.t, "the fast path is open", func() bool {
		p.publish(core.Event{Type: "warm.up"})
		return p.hot.Load() > 0
	})
	awaitThat(p.t, "the relay is at rest", func() bool {
		b, err := p.ob.Backlog(p.t.Context())
		return err == nil && b.Pending == 0
	})
	for _, n := range []*atomic.Int64{&p.hot, &p.cold, &p.claimed, &p.dropped} {
		n.Store(0)
	}
	return stop
}

// publish commits events in a transaction of their own.
func (p *process) publish(events ...core.Event) []string {
	p.t.Helper()
	var ids []string
	err := p.tx.RunInTx(p.t.Context(), func(ctx context.Context, tx core.Tx) (err error) {
		ids, err = p.ob.Publish(ctx, tx, events...)
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return ids
}

// deposit is the business: it changes an account and says so.
func (p *process) deposit(ctx context.Context, tx core.Tx, account int, e core.Event) error {
	if _, err := tx.Exec(ctx, fmt.Sprintf("INSERT INTO accounts (id, balance) VALUES (%d, 1)", account)); err != nil {
		return err
	}
	_, err := p.ob.Publish(ctx, tx, e)
	return err
}

func (p *process) accounts() []int {
	p.t.Helper()
	return query(p.t, p.pool, "SELECT id FROM accounts ORDER BY id", func(r *sql.Rows) (n int, err error) { return n, r.Scan(&n) })
}

// storedRow is what a test looks at in outbox_event.
type storedRow struct {
	EventID, Type, Topic, Key, ErrorCode, Error string
	KeySeq                                      int64
	Status, Attempts, ClaimNo, Lost             int
	Done                                        bool
	Payload                                     []byte
}

// rows returns the table, without the events that only warmed the relay up.
func (p *process) rows() []storedRow {
	p.t.Helper()
	return query(p.t, p.pool, `SELECT event_id, event_type, topic, COALESCE(partition_key, ''), COALESCE(key_seq, 0), status, attempts, claim_no, lost_claims,
		CASE WHEN done_at IS NULL THEN 0 ELSE 1 END, COALESCE(last_error_code, ''), COALESCE(last_error, ''), payload
		FROM outbox_event WHERE event_type <> 'warm.up' ORDER BY id`,
		func(r *sql.Rows) (row storedRow, err error) {
			return row, r.Scan(&row.EventID, &row.Type, &row.Topic, &row.Key, &row.KeySeq, &row.Status, &row.Attempts, &row.ClaimNo, &row.Lost,
				&row.Done, &row.ErrorCode, &row.Error, &row.Payload)
		})
}

// row returns the one row of an event.
func (p *process) row(eventID string) storedRow {
	p.t.Helper()
	for _, r := range p.rows() {
		if r.EventID == eventID {
			return r
		}
	}
	p.t.Fatalf("event %s has no row", eventID)
	return storedRow{}
}

// statuses counts rows by status.
func (p *process) statuses() map[int]int {
	p.t.Helper()
	counts := map[int]int{}
	for _, r := range p.rows() {
		counts[r.Status]++
	}
	return counts
}

// awaitDone waits until n rows are DONE and no row is anything else.
func (p *process) awaitDone(n int) {
	p.t.Helper()
	awaitThat(p.t, fmt.Sprintf("%d rows DONE and no others", n), func() bool {
		counts := p.statuses()
		return counts[statusDone] == n && len(counts) == min(n, 1)
	})
}

// accepted returns the ids that the destination has, copy by copy.
func (p *process) accepted() []string {
	var ids []string
	for _, d := range p.pub.Accepted() {
		if d.Type != "warm.up" {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// onceEach fails the test unless the destination has exactly one copy of each of the events.
func (p *process) onceEach(want []string) {
	p.t.Helper()
	if got := slices.Sorted(slices.Values(p.accepted())); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		p.t.Fatalf("the destination has %d copies, want one each of %d events", len(got), len(want))
	}
}

// query reads rows of a table.
func query[T any](t testing.TB, pool *sql.DB, text string, scan func(*sql.Rows) (T, error)) []T {
	t.Helper()
	rows, err := pool.QueryContext(context.Background(), text)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// awaitThat polls a condition for at most half a minute.
func awaitThat(t testing.TB, what string, ok func() bool) {
	t.Helper()
	awaitThatIn(t, 30*time.Second, what, ok)
}

func awaitThatIn(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

var errBusiness = errors.New("the business changed its mind")
