package inbox_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
	"github.com/ormoutbox/ormoutbox/core/inbox/sqlinbox"
	"github.com/ormoutbox/ormoutbox/core/sqltx"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture"
	"github.com/ormoutbox/ormoutbox/integration/internal/fixture/topics"
	"github.com/ormoutbox/ormoutbox/integration/internal/testdb"
	"github.com/ormoutbox/ormoutbox/watermillbridge/amqpbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/natsbridge"
)

// hospital is a consumer of a broker, with its poison queue.
type hospital struct {
	queueBroker
	t       *testing.T
	in      *coreinbox.Inbox
	broken  atomic.Bool
	mu      sync.Mutex
	handled []string
	dead    func() []coreinbox.DeadEvent
	effects func() int
	url     string // of the database
}

func newHospital(t *testing.T, b queueBroker) *hospital {
	t.Helper()
	db := testdb.Postgres(t)
	pool := fixture.TrackedPool(t, db)
	fixture.MustExec(t, pool, "CREATE TABLE effects (event_id text PRIMARY KEY)")
	store, err := sqlinbox.On(sqltx.NewTransactor(pool, ""), sqlinbox.Config{AutoCreate: true})
	fixture.NoError(t, err)
	h := &hospital{queueBroker: b, t: t, url: db.DSN}
	h.in, err = coreinbox.New(coreinbox.Config{
		Consumer: "billing", Handler: "invoice", Store: store, Logger: slog.New(slog.DiscardHandler),
	})
	fixture.NoError(t, err)
	h.dead = func() []coreinbox.DeadEvent {
		list, err := h.in.ListDead(t.Context(), coreinbox.DeadQuery{})
		fixture.NoError(t, err)
		return list
	}
	h.effects = func() int { return int(fixture.Count(t, pool, "SELECT count(*) FROM effects")) }
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			h.consume(ctx)
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	return h
}

// consume handles what the topic has now.
func (h *hospital) consume(ctx context.Context) {
	q, err := h.open(h.topic, "invoice")
	if err != nil {
		return // nothing was published yet
	}
	defer func() { _ = q.Close() }()
	for ctx.Err() == nil {
		msg, err := q.Next(ctx)
		if err != nil {
			return
		}
		msg.Topic = h.topic
		res := h.in.Process(ctx, msg, h.handle)
		if res.Action == coreinbox.Dead {
			if err := h.parkMessage(msg, res.Err); err != nil {
				h.t.Error(err)
				return
			}
		}
		if res.Action != coreinbox.Retry {
			if err := q.Ack(ctx, msg); err != nil && ctx.Err() == nil {
				h.t.Error(err)
			}
		}
	}
}

func (h *hospital) handle(ctx context.Context, tx core.Tx, msg coreinbox.Message) error {
	id := msg.Headers[core.HeaderEventID]
	if msg.Headers["trace"] != "of "+id || string(msg.Payload) != `{"id":"`+id+`"}` && string(msg.Payload) != "edited" {
		h.t.Errorf("%s has headers %v and payload %q", id, msg.Headers, msg.Payload)
	}
	for name := range msg.Headers {
		if strings.Contains(name, "poisoned") {
			h.t.Errorf("%s still has header %s", id, name)
		}
	}
	if h.broken.Load() {
		return core.Permanent(errors.New("no price"))
	}
	h.mu.Lock()
	h.handled = append(h.handled, id)
	h.mu.Unlock()
	sqlTx, err := sqltx.FromContext(ctx)
	if err != nil {
		return err
	}
	_, err = sqlTx.ExecContext(ctx, "INSERT INTO effects VALUES ($1)", id)
	return err
}

func (h *hospital) parkMessage(msg coreinbox.Message, why error) error {
	parked := message.NewMessage(msg.UUID, msg.Payload)
	parked.Metadata = maps.Clone(msg.Headers)
	maps.Copy(parked.Metadata, map[string]string{
		coreinbox.HeaderParkedReason: why.Error(), coreinbox.HeaderParkedTopic: h.topic,
		coreinbox.HeaderParkedHandler: "invoice", coreinbox.HeaderParkedConsumer: "billing",
		coreinbox.HeaderParkedAt: "2026-11-29T20:00:00Z",
	})
	return h.park.Publish(h.poison, parked)
}

// fill has events parked: n of each key.
func (h *hospital) fill(keys, n int) {
	h.t.Helper()
	h.broken.Store(true)
	for i := range n {
		for key := range keys {
			id := fmt.Sprintf("%d-%02d", key, i)
			fixture.NoError(h.t, h.to.Send(h.t.Context(), h.topic, coreinbox.Message{
				UUID: id, Payload: []byte(`{"id":"` + id + `"}`), Headers: map[string]string{
					core.HeaderEventID: id, core.HeaderPartitionKey: fmt.Sprint(key),
					core.HeaderEventType: "order.placed", "trace": "of " + id,
				},
			}))
		}
	}
	fixture.Await(h.t, "every event is parked", func() bool { return len(h.dead()) == keys*n })
	fixture.Await(h.t, "every message is parked", func() bool {
		if h.count != nil {
			return h.count() == keys*n
		}
		return len(h.lying()) == keys*n
	})
}

// lying returns the events in the poison queue, by key and then in the order of the queue.
func (h *hospital) lying() (ids []string) {
	h.t.Helper()
	q, err := h.open(h.poison, "release")
	fixture.NoError(h.t, err)
	defer func() { fixture.NoError(h.t, q.Close()) }()
	for {
		msg, err := q.Next(h.t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		fixture.NoError(h.t, err)
		ids = append(ids, msg.Headers[core.HeaderEventID])
	}
	slices.SortStableFunc(ids, func(a, b string) int { return strings.Compare(a[:1], b[:1]) })
	return ids
}

func (h *hospital) wantLying(want ...string) {
	h.t.Helper()
	// RabbitMQ gives back what a connection had only after that has ended.
	fixture.Await(h.t, fmt.Sprintf("in the poison queue are %v", want), func() bool {
		return slices.Equal(h.lying(), want)
	})
}

func (h *hospital) release(ctx context.Context, change func(*coreinbox.ReleaseRequest)) (coreinbox.Released, error) {
	h.t.Helper()
	q, err := h.open(h.poison, "release")
	fixture.NoError(h.t, err)
	defer func() { fixture.NoError(h.t, q.Close()) }()
	req := coreinbox.ReleaseRequest{From: q, To: h.to, Actor: "ada", Reason: "prices are there"}
	if change != nil {
		change(&req)
	}
	return h.in.Release(ctx, req)
}

func idsOf(key, from, to int) (ids []string) {
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprintf("%d-%02d", key, i))
	}
	return ids
}

// wantOrder says that each key was handled in its order. Those of last came behind the others of
// their keys.
func (h *hospital) wantOrder(keys, each int, last ...string) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range keys {
		want := idsOf(key, 0, each)
		for _, id := range last {
			if i := slices.Index(want, id); i >= 0 {
				want = append(slices.Delete(want, i, i+1), id)
			}
		}
		var got []string
		for _, id := range h.handled {
			if strings.HasPrefix(id, fmt.Sprint(key)) {
				got = append(got, id)
			}
		}
		fixture.Check(h.t, slices.Equal(got, want), "key %d: %v, want %v", key, got, want)
	}
}

func eachQueueBroker(t *testing.T, fn func(t *testing.T, h *hospital)) {
	t.Helper()
	t.Parallel()
	for name, open := range queueBrokers {
		if strings.HasSuffix(name, "quorum") && t.Name() == "TestPoisonQueueRelease" {
			continue // it looks at the queue too often: TestPoisonQueueIsNotLookedAtTooOften
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, newHospital(t, open(t)))
		})
	}
}

// A dry run leaves the queue as it is. What is not selected keeps its place. A consumer that is
// still broken costs one message a second round. In the end each event was handled once.
func TestPoisonQueueRelease(t *testing.T) {
	eachQueueBroker(t, func(t *testing.T, h *hospital) {
		const keys, each = 3, 5
		h.fill(keys, each)
		all := slices.Concat(idsOf(0, 0, each), idsOf(1, 0, each), idsOf(2, 0, each))
		h.wantLying(all...)
		for range 2 {
			got, err := h.release(t.Context(), func(req *coreinbox.ReleaseRequest) {
				*req = coreinbox.ReleaseRequest{From: req.From, DryRun: true}
			})
			fixture.Check(t, err == nil && got.Sent == keys*each && len(got.Groups) == 1 &&
				got.Groups[0].Messages == keys*each, "dry run: %+v, %v", got, err)
		}
		h.wantLying(all...)
		fixture.Check(t, len(h.dead()) == keys*each, "%d are dead", len(h.dead()))

		got, err := h.release(t.Context(), nil)
		fixture.Check(t, errors.Is(err, coreinbox.ErrParkedAgain) && got.Sent == 1 &&
			strings.Contains(err.Error(), "no price"), "a broken consumer: %+v, %v", got, err)
		h.broken.Store(false)
		fixture.Await(t, "the message is parked again", func() bool { return len(h.lying()) == keys*each })
		again := "" // the one that was released to the broken consumer
		for key := range keys {
			first, second := fmt.Sprintf("%d-00", key), fmt.Sprintf("%d-01", key)
			if ids := h.lying(); slices.Index(ids, first) > slices.Index(ids, second) {
				again = first
			}
		}
		left := slices.DeleteFunc(h.lying(), func(id string) bool { return id[0] != again[0] || id == again })
		notNow := func(req *coreinbox.ReleaseRequest) {
			req.Select = func(p coreinbox.Parked) bool { return p.Key.EventID != left[0] }
		}
		got, err = h.release(t.Context(), notNow)
		fixture.Check(t, err == nil && got.Sent == (keys-1)*each && got.Processed == got.Sent && got.Kept == each,
			"without a key: %+v, %v", got, err)
		h.wantLying(append(left, again)...)
		got, err = h.release(t.Context(), notNow)
		fixture.Check(t, err == nil && got.Sent+got.Done == 0 && got.Kept == each, "again: %+v, %v", got, err)

		got, err = h.release(t.Context(), func(req *coreinbox.ReleaseRequest) {
			req.Limit = 1
			req.Edit = func(coreinbox.Parked) ([]byte, error) { return []byte("edited"), nil }
		})
		fixture.Check(t, err == nil && got.Sent == 1 && got.Processed == 1, "one: %+v, %v", got, err)
		h.wantLying(append(left[1:], again)...)
		got, err = h.release(t.Context(), nil)
		fixture.Check(t, err == nil && got.Processed == each-1, "the rest: %+v, %v", got, err)
		h.wantLying()
		h.wantOrder(keys, each, again)
		fixture.Check(t, h.effects() == keys*each && len(h.dead()) == 0, "%d effects", h.effects())
	})
}

// cut is a queue whose connection is cut when the nth message is sent and not acknowledged.
type cut struct {
	closingQueue
	n int
}

var errCut = errors.New("killed")

func (c *cut) Ack(ctx context.Context, msg coreinbox.Message) error {
	if c.n--; c.n == 0 {
		return errCut
	}
	return c.closingQueue.Ack(ctx, msg)
}

// A release that ends between a message and its acknowledgement loses nothing, and nothing is
// handled twice.
func TestPoisonQueueReleaseIsKilled(t *testing.T) {
	eachQueueBroker(t, func(t *testing.T, h *hospital) {
		const keys, each = 2, 6
		h.fill(keys, each)
		h.broken.Store(false)
		for n := 1; n <= 3; n++ {
			got, err := h.release(t.Context(), func(req *coreinbox.ReleaseRequest) {
				req.From = &cut{req.From.(closingQueue), n}
			})
			fixture.Check(t, errors.Is(err, errCut), "%+v, %v", got, err)
		}
		fixture.Await(t, "the rest is released", func() bool { // what was given back may come late
			_, err := h.release(t.Context(), nil)
			fixture.NoError(t, err)
			return h.effects() == keys*each && len(h.lying()) == 0
		})
		h.wantOrder(keys, each)
	})
}

// A command that is killed again and again loses nothing, and nothing is handled twice.
func TestPoisonQueueCommandIsKilled(t *testing.T) {
	program := filepath.Join(t.TempDir(), "outbox")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "outbox")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, open := range queueBrokers {
		if strings.HasSuffix(name, "quorum") {
			continue // an old one does not keep the order when a process dies
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHospital(t, open(t))
			const keys, each = 4, 20
			h.fill(keys, each)
			h.broken.Store(false)
			command := func() *exec.Cmd {
				cmd := exec.Command(program, "inbox", "release", "--consumer", "billing", "--from", h.from, "--reason",
					"repaired", "--yes", "--group", cmp.Or(h.group, "unused"))
				cmd.Env = append(os.Environ(), "DATABASE_URL="+h.url)
				return cmd
			}
			kills := 0
			for upTo := 1; upTo < keys*each; upTo += 13 {
				cmd := command()
				fixture.NoError(t, cmd.Start())
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				fixture.Await(t, "some messages are handled", func() bool {
					return h.effects() >= upTo || len(ended) > 0
				})
				_ = cmd.Process.Kill()
				if err := <-ended; err != nil && strings.Contains(err.Error(), "killed") {
					kills++
				}
			}
			fixture.Await(t, "everything is released", func() bool {
				out, err := command().CombinedOutput()
				fixture.Check(t, err == nil, "%v\n%s", err, out)
				return h.effects() == keys*each && len(h.lying()) == 0
			})
			fixture.Check(t, kills > 1, "%d kills", kills)
			h.wantOrder(keys, each)
		})
	}
}

// Releases at once send the messages twice, or the second one waits or is refused. Each event is
// handled once, in its order.
func TestPoisonQueueReleasesAtOnce(t *testing.T) {
	eachQueueBroker(t, func(t *testing.T, h *hospital) {
		const keys, each = 3, 10
		h.fill(keys, each)
		h.broken.Store(false)
		var running sync.WaitGroup
		for range 2 {
			running.Go(func() {
				q, err := h.open(h.poison, "release")
				if errors.Is(err, amqpbridge.ErrQueueInUse) {
					return
				}
				fixture.NoError(t, err)
				defer func() { fixture.NoError(t, q.Close()) }()
				got, err := h.in.Release(t.Context(), coreinbox.ReleaseRequest{
					From: q, To: h.to, Actor: "ada", Reason: "prices are there",
				})
				if err != nil {
					t.Errorf("%+v, %v", got, err)
				}
			})
		}
		running.Wait()
		fixture.Check(t, h.effects() == keys*each && len(h.dead()) == 0, "%d effects", h.effects())
		_, err := h.release(t.Context(), nil)
		fixture.NoError(t, err)
		h.wantLying()
		h.wantOrder(keys, each)
	})
}

// While a release has a queue of RabbitMQ, no other one can take a message of a key before the release
// has sent the one before it.
func TestPoisonQueueIsOpenOnce(t *testing.T) {
	t.Parallel()
	h := newHospital(t, rabbitQueues(t, nil))
	h.fill(1, 2)
	first, err := h.open(h.poison, "release")
	fixture.NoError(t, err)
	_, err = first.Next(t.Context())
	fixture.NoError(t, err)
	second, err := h.open(h.poison, "release")
	if !errors.Is(err, amqpbridge.ErrQueueInUse) {
		t.Errorf("the second one: %v", err)
	}
	if err == nil {
		fixture.NoError(t, second.Close())
	}
	fixture.NoError(t, first.Close())
	h.wantLying("0-00", "0-01")
}

// A name that the broker does not know is an error, and so is a stream that keeps everything.
func TestPoisonQueueThatIsNotThere(t *testing.T) {
	t.Parallel()
	for name, open := range queueBrokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, err := open(t).open("it-nowhere", "release")
			if err == nil {
				t.Errorf("opened: %v", q.Close())
			}
		})
	}
	subject := topics.NATS(t, func(c *jetstream.StreamConfig) { c.DenyDelete = true })
	_, err := natsbridge.OpenPoisonQueue(t.Context(), natsbridge.Config{URL: topics.NATSURL(t)}, subject)
	fixture.Check(t, err != nil && strings.Contains(err.Error(), "denies deletes"), "deny_delete: %v", err)
}

// The offsets of a group are those of its consumers.
func TestPoisonQueueOfAGroupInUse(t *testing.T) {
	t.Parallel()
	topic, group := topics.Kafka(t, "", 1, nil), core.NewEventID()
	consumer, err := kgo.NewClient(kgo.SeedBrokers(topics.KafkaAddress(t)), kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic))
	fixture.NoError(t, err)
	defer consumer.Close()
	go consumer.PollFetches(t.Context())
	fixture.Await(t, "the group is in use", func() bool {
		q, err := franzbridge.OpenPoisonQueue(t.Context(), franzbridge.Config{
			Brokers: []string{topics.KafkaAddress(t)},
		}, topic, group)
		if err == nil {
			fixture.NoError(t, q.Close())
		}
		return errors.Is(err, franzbridge.ErrGroupInUse)
	})
}

// A group cannot remember any number of gaps. Nothing is lost when it has too many.
func TestPoisonQueueWithTooManyGaps(t *testing.T) {
	t.Parallel()
	const n = 4000
	topic, group := topics.Kafka(t, "", 1, nil), core.NewEventID()
	p := topics.FranzPublisher(t, franzbridge.Config{})
	var sending sync.WaitGroup
	for i := range n {
		sending.Add(1)
		p.PublishAsync(t.Context(), core.Delivery{Event: core.Event{
			ID: fmt.Sprint(i), Type: "t", Topic: topic, Key: "k", Payload: []byte("{}"),
		}}, func(_ string, err error) {
			fixture.NoError(t, err)
			sending.Done()
		})
	}
	sending.Wait()
	// read acknowledges what it is told to, and returns what it read.
	read := func(ack func(i int) bool) (ids []string, err error) {
		q, err := franzbridge.OpenPoisonQueue(t.Context(), franzbridge.Config{
			Brokers: []string{topics.KafkaAddress(t)},
		}, topic, group)
		fixture.NoError(t, err)
		defer func() { fixture.NoError(t, q.Close()) }()
		for {
			msg, err := q.Next(t.Context())
			if err != nil {
				return ids, err
			}
			if ack(len(ids)) {
				fixture.NoError(t, q.Ack(t.Context(), msg))
			}
			ids = append(ids, msg.Headers[core.HeaderEventID])
		}
	}
	first, err := read(func(i int) bool { return i%2 == 1 })
	fixture.Check(t, errors.Is(err, franzbridge.ErrManyKept) && len(first) > 2000, "%d read, %v", len(first), err)
	var want []string
	for i := range n {
		if i >= len(first) || i%2 == 0 {
			want = append(want, fmt.Sprint(i))
		}
	}
	rest, err := read(func(i int) bool { return i < 100 })
	fixture.Check(t, errors.Is(err, io.EOF) && slices.Equal(rest, want), "%d read, %v; want %d", len(rest), err,
		len(want))
	rest, err = read(func(int) bool { return false })
	fixture.Check(t, errors.Is(err, io.EOF) && slices.Equal(rest, want[100:]), "%d read, %v", len(rest), err)
}

// A quorum queue of RabbitMQ 4 drops a message that was given back 20 times.
func TestPoisonQueueIsNotLookedAtTooOften(t *testing.T) {
	t.Parallel()
	h := newHospital(t, rabbitQueues(t, quorum))
	h.broken.Store(true)
	h.fill(1, 2)
	look := func(req *coreinbox.ReleaseRequest) { req.DryRun = true }
	fixture.Await(t, "the messages were given back too often", func() bool {
		_, err := h.release(t.Context(), look)
		return errors.Is(err, amqpbridge.ErrDeliveryLimit)
	})
	h.broken.Store(false)
	fixture.Await(t, "the messages are released", func() bool {
		_, err := h.release(t.Context(), nil)
		fixture.NoError(t, err)
		return h.effects() == 2
	})
}
