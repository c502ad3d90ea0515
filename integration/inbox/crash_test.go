package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/inbox"
	"github.com/ormoutbox/ormoutbox/integration/internal/crash"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/longtest"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// The points at which a consumer dies. At the last one, the parent kills the consumer at any
// moment.
const (
	dieBefore      = "before the transaction"
	dieInHandler   = "in the handler"
	dieAfterCommit = "after the commit, before the acknowledgement"
	dieAnywhere    = "anywhere"
)

// Mistakes that a consumer makes on purpose, to show that the proof would notice them.
const (
	noInbox   = "no inbox"
	markFirst = "mark first" // the row is committed before the handler works
)

// inboxDelivery is a message on its way to a consumer process, and inboxReply the answer.
type (
	inboxDelivery struct{ ID, Die string }
	inboxReply    struct{ Ack bool }
)

// inboxChild tells a consumer process what to do.
type inboxChild struct {
	Dialect           core.Dialect
	DSN, Addr, Mutant string
}

const inboxChildVariable = "OUTBOX_INBOX_CHILD"

// The test binary runs again as a consumer.
func init() {
	text, ok := os.LookupEnv(inboxChildVariable)
	if !ok {
		return
	}
	var c inboxChild
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		err = c.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(3)
	}
	os.Exit(0)
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// run consumes with a Router until the parent closes the connection.
func (c inboxChild) run() error {
	pool, err := crash.Open(c.Dialect, c.DSN)
	if err != nil {
		return err
	}
	store, err := sqlinbox.New(pool, sqlinbox.Config{Dialect: c.Dialect})
	if err != nil {
		return err
	}
	repo, err := sqloutbox.New(pool, sqloutbox.Config{Dialect: c.Dialect})
	if err != nil {
		return err
	}
	ob, err := core.New(core.Config{Repository: repo})
	if err != nil {
		return err
	}
	outbox, err := watermillbridge.NewOutboxPublisher(ob, watermillbridge.OutboxConfig{})
	if err != nil {
		return err
	}
	transactor := sqltx.NewTransactor(pool, c.Dialect)
	in, err := coreinbox.New(coreinbox.Config{
		Consumer: "billing", Transactor: transactor, Store: store,
	})
	if err != nil {
		return err
	}
	sub := &inboxSubscriber{addr: c.Addr}
	r, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	around := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			if msg.Metadata.Get("die") == dieBefore {
				die()
			}
			out, err := h(msg)
			if err == nil && msg.Metadata.Get("die") == dieAfterCommit {
				die()
			}
			return out, err
		}
	}
	r.AddMiddleware(around, c.deduplicate(inbox.Wrap(in, inbox.Publisher(outbox), inbox.ReturnDead()), transactor))
	r.AddHandler("handler", "orders", sub, "invoices", outbox, consumeOnce)
	go func() {
		<-sub.ended()
		_ = r.Close()
	}()
	return r.Run(context.Background())
}

func (c inboxChild) deduplicate(in message.HandlerMiddleware, t core.Transactor) message.HandlerMiddleware {
	plain := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			return nil, t.RunInTx(msg.Context(), func(ctx context.Context, _ core.Tx) error {
				msg.SetContext(ctx)
				_, err := h(msg)
				return err
			})
		}
	}
	switch c.Mutant {
	case noInbox:
		return plain
	case markFirst:
		return func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				fresh := false
				_, err := in(func(*message.Message) ([]*message.Message, error) {
					fresh = true
					return nil, nil
				})(msg)
				if err != nil || !fresh {
					return nil, err
				}
				return plain(h)(msg)
			}
		}
	}
	return in
}

// consumeOnce has two effects: a row, and an event of the outbox.
func consumeOnce(msg *message.Message) ([]*message.Message, error) {
	id := msg.Metadata.Get(core.HeaderEventID)
	tx, ok := core.TxFromContext(msg.Context())
	if !ok {
		return nil, core.ErrNoTransaction
	}
	if _, err := tx.Exec(msg.Context(), "INSERT INTO effects VALUES ('"+id+"', 'handled')"); err != nil {
		return nil, err
	}
	if msg.Metadata.Get("die") == dieInHandler {
		die()
	}
	out := message.NewMessage(watermill.NewUUID(), nil)
	out.Metadata.Set(core.HeaderAggregateID, id)
	return message.Messages{out}, nil
}

// inboxSubscriber reads messages from the parent, one at a time.
type inboxSubscriber struct {
	addr string
	once sync.Once
	end  chan struct{}
}

func (s *inboxSubscriber) ended() chan struct{} {
	s.once.Do(func() { s.end = make(chan struct{}) })
	return s.end
}

func (s *inboxSubscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.addr)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(s.ended())
		defer close(out)
		from, to := json.NewDecoder(conn), json.NewEncoder(conn)
		for {
			var d inboxDelivery
			if from.Decode(&d) != nil {
				return
			}
			msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), nil)
			msg.Metadata.Set(core.HeaderEventID, d.ID)
			msg.Metadata.Set("die", d.Die)
			out <- msg
			var r inboxReply
			select {
			case <-msg.Acked():
				r.Ack = true
			case <-msg.Nacked():
			}
			if to.Encode(r) != nil {
				return
			}
		}
	}()
	return out, nil
}

func (*inboxSubscriber) Close() error { return nil }

// inboxBroker is the parent: it delivers each message 1 to 5 times, and again whenever it was not
// acknowledged.
type inboxBroker struct {
	mu     sync.Mutex
	queue  []inboxDelivery
	flying int
	wake   *sync.Cond

	delivered, nacked, lost atomic.Int64
}

func newInboxBroker(messages, killEvery int, r *rand.Rand) *inboxBroker {
	b := &inboxBroker{}
	b.wake = sync.NewCond(&b.mu)
	points := []string{dieBefore, dieInHandler, dieAfterCommit, dieAnywhere}
	var late []inboxDelivery
	for n := range messages {
		d := inboxDelivery{ID: fmt.Sprintf("e%d", n)}
		for copies := 1 + r.IntN(5); copies > 0; copies-- {
			if next := d; r.IntN(2) == 0 {
				b.queue = append(b.queue, next) // at about the same time as the first copy
			} else {
				late = append(late, next) // long after the other copies
			}
		}
	}
	r.Shuffle(len(late), func(i, j int) { late[i], late[j] = late[j], late[i] })
	b.queue = append(b.queue, late...)
	doomed := map[string]bool{}
	for _, n := range r.Perm(messages)[:messages/killEvery] {
		doomed[fmt.Sprintf("e%d", n)] = true
	}
	for n := range b.queue { // the first copy of some messages kills its consumer
		if id := b.queue[n].ID; doomed[id] {
			b.queue[n].Die = points[len(doomed)%len(points)]
			delete(doomed, id)
		}
	}
	return b
}

// next returns a delivery, or false when all were acknowledged.
func (b *inboxBroker) next() (inboxDelivery, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.queue) == 0 {
		if b.flying == 0 {
			return inboxDelivery{}, false
		}
		b.wake.Wait()
	}
	d := b.queue[0]
	b.queue = b.queue[1:]
	b.flying++
	return d, true
}

// answered puts a delivery that was not acknowledged back into the queue.
func (b *inboxBroker) answered(d inboxDelivery, ack bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !ack {
		b.queue = append(b.queue, inboxDelivery{ID: d.ID}) // without Die: a message kills one consumer only
	}
	b.flying--
	b.wake.Broadcast()
}

// serve delivers to one process until every delivery was acknowledged or the process is gone. It
// reports whether every delivery was acknowledged.
func (b *inboxBroker) serve(conn net.Conn, kill func()) (done bool) {
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	for {
		d, ok := b.next()
		if !ok {
			return true
		}
		b.delivered.Add(1)
		var r inboxReply
		err := out.Encode(d)
		if d.Die == dieAnywhere {
			time.AfterFunc(rand.N(6*time.Millisecond), kill)
		}
		if err == nil {
			err = in.Decode(&r)
		}
		switch {
		case err != nil:
			b.lost.Add(1)
		case !r.Ack:
			b.nacked.Add(1)
		}
		b.answered(d, err == nil && r.Ack)
		if err != nil {
			return false
		}
	}
}

// slot keeps one process running until every delivery was acknowledged. Each process is the only
// one that connects to the listener of its slot.
func (b *inboxBroker) slot(c inboxChild) (kills int, err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	c.Addr = l.Addr().String()
	text, err := json.Marshal(c)
	if err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	for {
		var output strings.Builder
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), inboxChildVariable+"="+string(text))
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			return kills, err
		}
		_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(60 * time.Second))
		conn, err := l.Accept()
		if err != nil {
			_ = cmd.Process.Kill()
			return kills, errors.Join(err, cmd.Wait(), errors.New(output.String()))
		}
		done := b.serve(conn, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		var exit *exec.ExitError
		killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
		if killed {
			kills++
		} else if err != nil {
			return kills, fmt.Errorf("%w\n%s", err, output.String())
		}
		if strings.Contains(output.String(), "DATA RACE") {
			return kills, errors.New(output.String())
		}
		if done {
			return kills, nil
		}
	}
}

// consumeAll runs 8 consumers until every delivery was acknowledged, and returns how often each
// effect happened.
func consumeAll(t *testing.T, db testdb.DB, mutant string, messages, killEvery int) (w *inboxWorld, kills int64) {
	t.Helper()
	w = newInboxWorld(t, db, inboxSQL(db.Open(t), db.Dialect))
	fixture.NewOutbox(t, db, core.Config{})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	b := newInboxBroker(messages, killEvery, rand.New(rand.NewPCG(seed, 0)))
	var wg sync.WaitGroup
	var total atomic.Int64
	for range 8 {
		wg.Go(func() {
			n, err := b.slot(inboxChild{Dialect: db.Dialect, DSN: db.DSN, Mutant: mutant})
			if err != nil {
				t.Error(err)
			}
			total.Add(int64(n))
		})
	}
	wg.Wait()
	t.Logf("%d messages, %d deliveries, %d kills, %d not answered, %d refused", messages, b.delivered.Load(),
		total.Load(), b.lost.Load(), b.nacked.Load())
	if mutant == "" {
		t.Logf("\ncount: %d kills\ncount: %d deliveries", total.Load(), b.delivered.Load())
	}
	return w, total.Load()
}

// Eight processes consume messages, each of which is delivered one to five times. One process is
// killed at every tenth message. Every effect happens exactly once.
func TestInboxCrash(t *testing.T) {
	longtest.Mark(t)
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db testdb.DB) {
		const messages = 300
		w, kills := consumeAll(t, db, "", messages, 10)
		if kills < messages/10*3/4 { // a process may end before it is killed at a random moment
			t.Errorf("only %d processes were killed", kills)
		}
		got := w.effects()
		for n := range messages {
			if id := fmt.Sprintf("e%d", n); got[id+" handled"] != 1 {
				t.Errorf("%s: %d effects", id, got[id+" handled"])
			}
		}
		for what, query := range map[string]string{
			"events of the outbox":    "SELECT COUNT(*) FROM outbox_event",
			"with a cause of its own": "SELECT COUNT(DISTINCT aggregate_id) FROM outbox_event",
			"processed":               "SELECT COUNT(*) FROM inbox_seen WHERE processed_at IS NOT NULL",
			"rows of the inbox":       "SELECT COUNT(*) FROM inbox_seen",
		} {
			var n int
			fixture.NoError(t, w.pool.QueryRowContext(t.Context(), query).Scan(&n))
			fixture.Check(t, n == messages, "%d %s, want %d", n, what, messages)
		}
	})
}

// The proof notices consumers that make mistakes.
func TestInboxCrashNotices(t *testing.T) {
	t.Parallel()
	for mutant, wrong := range map[string]func(n int) bool{
		noInbox:   func(n int) bool { return n > 1 },
		markFirst: func(n int) bool { return n == 0 },
	} {
		t.Run(mutant, func(t *testing.T) {
			const messages = 30
			w, _ := consumeAll(t, testdb.SQLite(t), mutant, messages, 2)
			got, found := w.effects(), 0
			for n := range messages {
				if wrong(got[fmt.Sprintf("e%d handled", n)]) {
					found++
				}
			}
			fixture.Check(t, found != 0, "the mistake was not noticed")
		})
	}
}
