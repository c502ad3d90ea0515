package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ormoutbox/ormoutbox/core"
)

// Figures of this section.
const (
	brokerEvents   = 20_000 // events of a drain at most
	brokerPatience = 5      // times -cap
)

// brokerWorkers has the numbers of events that are published at once.
var brokerWorkers = []int{32, 128}

// Beginnings of the names of rows; the kind of the events follows.
const (
	brokerAlone = "the publisher alone"
	brokerOurs  = "ormoutbox"
)

// brokerFranz is Kafka with a publisher that does not wait for answers.
const brokerFranz = "Kafka, franzbridge"

var brokerColumns = []Column{
	{"events/s", Count},
	{"÷ publisher alone", Ratio},
	{"CPU µs/event", Count},
	{"finished", Percent},
}

// broker is a broker with a topic of its own.
type broker interface {
	// publisher opens the project's bridge, with its safe settings, for so many publishes at once.
	// The bridge publishes all events to the topic.
	publisher(workers int) (brokerPublisher, error)
	// forget makes collect skip the messages that the topic has now.
	forget(ctx context.Context) error
	// collect reads the payloads that the topic has got since forget, each key in its order.
	collect(ctx context.Context, each func(payload []byte)) error
	// close deletes the topic.
	close() error
}

// brokerPublisher is a bridge of the project.
type brokerPublisher interface {
	core.Publisher
	Close(ctx context.Context) error
}

// brokerKinds has the brokers, with the variables of the environment that name their servers.
var brokerKinds = []struct {
	name, variable string
	open           func(ctx context.Context, address, topic string) (broker, error)
}{
	{"Kafka", "OUTBOX_TEST_KAFKA", openKafka},
	{brokerFranz, "OUTBOX_TEST_KAFKA", openFranz},
	{"RabbitMQ", "OUTBOX_TEST_RABBITMQ", openRabbitMQ},
}

// openBroker is a broker with its name.
type openBroker struct {
	broker
	name string
}

// atOnce returns how many events are published at once, for each table.
func (b openBroker) atOnce() []int {
	if b.name == brokerFranz {
		return []int{1024} // the default
	}
	return brokerWorkers
}

func runBrokers(ctx context.Context, e *env, s *Section) (err error) {
	var brokers []openBroker
	defer func() {
		for _, b := range brokers {
			err = errors.Join(err, b.close())
		}
	}()
	for _, kind := range brokerKinds {
		address := os.Getenv(kind.variable)
		if address == "" {
			s.note("%s is left out, because %s names no server.", kind.name, kind.variable)
			continue
		}
		b, err := kind.open(ctx, address, e.name)
		if err != nil {
			return fmt.Errorf("%s: %w (is the server up? `make services-up`)", kind.name, err)
		}
		brokers = append(brokers, openBroker{b, kind.name})
	}
	if len(brokers) == 0 {
		return nil
	}
	events := min(brokerEvents, e.opts.Events)
	s.note("A backlog of %s events, as in section drain, is published to a broker by the relay. It has the default "+
		"configuration but for its workers, and kafkabridge or amqpbridge as they are: all replicas in sync "+
		"acknowledge, or the queue is durable and the broker confirms. The publisher alone is the same one: as many "+
		"goroutines as the relay has workers call it with the same events, without any table. That is what the "+
		"broker and its client can do on this machine, whose processors they share with everything else.",
		thousands(float64(events)))
	s.note("%s: the relay hands over up to 1,024 events and does not wait for answers, and so does the loop of the "+
		"publisher alone, whose messages have the same headers. Everything else is the default.", brokerFranz)
	s.note("Ordered: %s keys. On both sides an event is sent when the one before it in its key is acknowledged.",
		thousands(drainKeys))
	s.note("After each drain the content of the broker is read, and compared with the rows of the table: nothing is " +
		"lost, nothing came twice, and the events of each key are in order. CPU is that of this process and of " +
		"PostgreSQL, without the broker's.")
	var backlogs []*brokerBacklog
	for _, ordered := range []bool{false, true} {
		b, err := newBrokerBacklog(ctx, e, "brokers_", ordered, events)
		if err != nil {
			return err
		}
		backlogs = append(backlogs, b)
	}
	for _, b := range brokers {
		for _, workers := range b.atOnce() {
			if err := e.measureBroker(ctx, s, b, workers, backlogs); err != nil {
				return fmt.Errorf("%s: %w", b.name, err)
			}
		}
	}
	return e.measureBrokerCommits(ctx, s, brokers)
}

func (e *env) measureBroker(ctx context.Context, s *Section, b openBroker, workers int,
	backlogs []*brokerBacklog,
) (err error) {
	p, err := b.publisher(workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	if err := warmPublisher(ctx, p, workers, backlogs[0].deliveries); err != nil {
		return err
	}
	var relays []relay
	for _, backlog := range backlogs {
		d := &brokerDrain{brokerBacklog: backlog, broker: b, publisher: p, workers: workers}
		common := relay{events: backlog.events, ordered: backlog.ordered, patience: brokerPatience}
		alone, ours := common, common
		alone.name, ours.name = backlog.row(brokerAlone), backlog.row(brokerOurs)
		alone.seed, alone.drain, alone.collect = b.forget, d.alone, d.collect
		ours.seed, ours.drain, ours.collect, ours.check = d.seed, d.drain, d.compare, backlog.check
		relays = append(relays, alone, ours)
	}
	t, err := e.measureRelays(ctx, s, fmt.Sprintf("%s, %d at once", b.name, workers), relays, brokerColumns)
	if err != nil {
		return err
	}
	t.divide("÷ publisher alone", "events/s", func(r *Row) *Row {
		_, kind, _ := strings.Cut(r.Name, ", ")
		return t.find(brokerAlone + ", " + kind)
	})
	t.summarize()
	for _, backlog := range backlogs {
		aim := 0.9
		if b.name == brokerFranz {
			aim = 0.7
		}
		s.atLeast(t.value(backlog.row(brokerOurs), "÷ publisher alone"), aim,
			"%s, %d at once, %s: at least %.2f × the publisher alone", b.name, workers, backlog.kind, aim)
	}
	return nil
}

// brokerBacklog is a backlog with the same events for a publisher without a table.
type brokerBacklog struct {
	*outboxBacklog

	kind       string
	ordered    bool
	deliveries []core.Delivery
}

func newBrokerBacklog(ctx context.Context, e *env, prefix string, ordered bool, events int) (*brokerBacklog, error) {
	kind := "unordered"
	if ordered {
		kind = "ordered"
	}
	b := &brokerBacklog{kind: kind, ordered: ordered, deliveries: make([]core.Delivery, events)}
	for n := range b.deliveries {
		ev := backlogEvent(n, ordered)
		ev.ID = core.NewEventID()
		row, err := core.NewRowID(ev.ID, ev.Topic)
		if err != nil {
			return nil, err
		}
		b.deliveries[n] = core.Delivery{Event: ev, RowID: row, Attempt: 1}
		if ordered {
			b.deliveries[n].KeySeq = int64(n/drainKeys + 1)
		}
	}
	var err error
	b.outboxBacklog, err = newOutboxBacklogOf(ctx, e, prefix+kind+"_", ordered, events)
	return b, err
}

// row returns the name of a row for this backlog.
func (b *brokerBacklog) row(who string) string { return who + ", " + b.kind }

// brokerDrain publishes a backlog to a broker.
type brokerDrain struct {
	*brokerBacklog

	broker    broker
	publisher brokerPublisher
	workers   int
}

func (d *brokerDrain) seed(ctx context.Context) error {
	if err := d.brokerBacklog.seed(ctx); err != nil {
		return err
	}
	return d.broker.forget(ctx)
}

// drain runs the relay.
func (d *brokerDrain) drain(ctx context.Context, _ *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	if _, ok := d.publisher.(core.AsyncPublisher); ok {
		return d.drainWith(ctx, limit, core.Config{Publisher: d.publisher, InFlight: d.workers})
	}
	return d.drainWith(ctx, limit, core.Config{Publisher: d.publisher, Workers: d.workers})
}

// alone calls the publisher from as many goroutines as the relay has workers. One goroutine
// publishes all events of a key.
func (d *brokerDrain) alone(ctx context.Context, _ *ledger,
	limit time.Duration,
) (finished int, took time.Duration, err error) {
	if p, ok := d.publisher.(core.AsyncPublisher); ok {
		return d.aloneAsync(ctx, p)
	}
	shares := make([][]core.Delivery, d.workers)
	for n := range d.deliveries {
		share := n % d.workers
		if d.ordered {
			share = n % drainKeys % d.workers
		}
		shares[share] = append(shares[share], d.deliveries[n])
	}
	var acked atomic.Int64
	start := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, share := range shares {
		g.Go(func() error {
			for _, delivery := range share {
				if time.Since(start) >= limit {
					return nil
				}
				if err := d.publisher.Publish(ctx, delivery); err != nil {
					return err
				}
				acked.Add(1)
			}
			return nil
		})
	}
	err = g.Wait()
	return int(acked.Load()), time.Since(start), err
}

// collect enters the messages of the broker into the ledger.
func (d *brokerDrain) collect(ctx context.Context, l *ledger) error {
	return d.broker.collect(ctx, func(payload []byte) { l.see(payloadNumber(payload)) })
}

// compare calls collect. It returns an error unless the broker has exactly the events whose rows
// are DONE.
func (d *brokerDrain) compare(ctx context.Context, l *ledger) error {
	if err := d.collect(ctx, l); err != nil {
		return err
	}
	rows, err := d.e.db.QueryContext(ctx, "SELECT "+numberColumn+" FROM "+d.prefix+"event WHERE status = 1")
	if err != nil {
		return err
	}
	defer rows.Close()
	done := int64(0)
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			return err
		}
		if done++; !l.has(n) {
			return fmt.Errorf("event %d is DONE, and the broker does not have it", n)
		}
	}
	if p := l.published.Load(); rows.Err() == nil && p != done {
		return fmt.Errorf("the broker has %d events, and %d rows are DONE", p, done)
	}
	return rows.Err()
}

// warmPublisher makes the client open the connections that it needs for so many publishes at once.
func warmPublisher(ctx context.Context, p core.Publisher, workers int, all []core.Delivery) error {
	if err := p.Publish(ctx, all[0]); err != nil {
		return err
	}
	const each = 10
	g, ctx := errgroup.WithContext(ctx)
	for i := range workers {
		g.Go(func() error {
			for n := range each {
				if err := p.Publish(ctx, all[(i+n*workers)%len(all)]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
