package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// Figures of this section.
const (
	logWorkers = 128    // how many workers publish through kafkabridge
	rawAtOnce  = 10_000 // how many messages the raw client has at once, its default
)

// logBacklog is a backlog that was inserted for a poller or for a reader of the log.
type logBacklog struct {
	*logSection
	*brokerDrain
}

// competitors returns all competitors for one kind of events.
func (l *logSection) competitors(ctx context.Context, b *brokerBacklog) (all []*logCompetitor, closeAll func() error,
	err error,
) {
	var publishers []brokerPublisher
	closeAll = func() (err error) {
		for _, p := range publishers {
			err = errors.Join(err, p.Close(context.WithoutCancel(ctx)))
		}
		return err
	}
	if err := l.exec(ctx, "CREATE TABLE "+b.prefix+"seed_log AS TABLE "+b.prefix+"seed",
		"UPDATE "+b.prefix+"seed_log SET status = 1, claimed_by = '"+core.LogReader+"', done_at = now()"); err != nil {
		return nil, closeAll, err
	}
	to := func(to broker, workers int) (*logBacklog, error) {
		d := &logBacklog{l, &brokerDrain{brokerBacklog: b, broker: to, workers: workers}}
		if d.publisher, err = to.publisher(workers); err != nil {
			return nil, err
		}
		publishers = append(publishers, d.publisher)
		return d, warmPublisher(ctx, d.publisher, min(workers, 128), b.deliveries)
	}
	kafka, err := to(l.kafka, logWorkers)
	if err != nil {
		return nil, closeAll, err
	}
	const inFlight = 1024 // the default
	franz, err := to(l.franz, inFlight)
	if err != nil {
		return nil, closeAll, err
	}
	add := func(name string, seed func(context.Context) (int64, error), drain drainFunc,
		collect func(context.Context, *ledger) error,
	) *logCompetitor {
		c := &logCompetitor{relay: relay{
			name: b.row(name), drain: drain, collect: collect, events: b.events, ordered: b.ordered,
			patience: brokerPatience,
		}}
		c.seed = func(ctx context.Context) (err error) {
			c.inserted, err = seed(ctx)
			return err
		}
		all = append(all, c)
		return c
	}
	raw, err := newRawClient(l.franz, b)
	if err != nil {
		return nil, closeAll, err
	}
	publishers = append(publishers, raw)
	forget := func(ctx context.Context) (int64, error) { return 0, l.franz.forget(ctx) }
	add(logRaw, forget, raw.drain, franz.collect)
	add(logAlone, forget, franz.alone, franz.collect)
	add(logPollKafka, kafka.seedTable, kafka.drain, kafka.compare)
	add(logPollFranz, franz.seedTable, franz.drain, franz.compare)
	add(logPollNone, franz.seedTable, franz.drainPolled, nil)
	add(logFranz, franz.seedLog, franz.drainLog(nil), franz.compare)
	add(logNone, franz.seedLog, franz.drainLogNowhere, nil)
	if path, err := exec.LookPath("pg_recvlogical"); err == nil {
		r := &received{logBacklog: franz, path: path}
		c := add(logReceived, franz.seedLog, r.drain, r.collect)
		c.process = func() time.Duration { return r.cpu }
	}
	if l.connect != nil {
		d := &debezium{logBacklog: franz}
		c := add(logDebezium, franz.seedLog, d.drain, franz.compare)
		c.process = func() time.Duration { return d.cpu }
	}
	return all, closeAll, nil
}

// seedTable inserts the backlog for a poller.
func (b *logBacklog) seedTable(ctx context.Context) (wal int64, err error) {
	if err := b.dropSlot(ctx); err != nil {
		return 0, err
	}
	return b.insert(ctx, "seed")
}

// seedLog makes the slot and inserts the backlog for a reader of the log.
func (b *logBacklog) seedLog(ctx context.Context) (wal int64, err error) {
	if err := b.dropSlot(ctx); err != nil {
		return 0, err
	}
	if err := b.exec(ctx, "DROP TABLE IF EXISTS "+b.prefix+"log",
		"DROP PUBLICATION IF EXISTS "+b.slot()); err != nil {
		return 0, err
	}
	r, err := b.logRelay(b.publisher, nil)
	if err != nil {
		return 0, err
	}
	if err := r.Setup(ctx); err != nil {
		return 0, err
	}
	return b.insert(ctx, "seed_log")
}

// insert commits each event on its own. It returns how many bytes of log that took.
func (b *logBacklog) insert(ctx context.Context, seed string) (wal int64, err error) {
	table := b.prefix + "event"
	if err := b.exec(ctx, "TRUNCATE "+table+", "+b.prefix+"key"); err != nil {
		return 0, err
	}
	before, err := b.wal(ctx)
	if err != nil {
		return 0, err
	}
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	for _, statement := range []string{
		"SET synchronous_commit = off", // only the drain is measured
		"DO $$ DECLARE at tid; BEGIN FOR at IN SELECT ctid FROM " + b.prefix + seed + " ORDER BY " + numberColumn +
			" LOOP INSERT INTO " + table + " SELECT * FROM " + b.prefix + seed +
			" WHERE ctid = at; COMMIT; END LOOP; END $$",
		"RESET synchronous_commit",
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return 0, err
		}
	}
	after, err := b.wal(ctx)
	if err != nil {
		return 0, err
	}
	return after - before, errors.Join(b.exec(ctx, "INSERT INTO "+b.prefix+"key SELECT * FROM "+b.prefix+
		"seed_key", "ANALYZE "+table+", "+b.prefix+"key"), b.broker.forget(ctx))
}

// drainPolled polls with a publisher that does nothing.
func (b *logBacklog) drainPolled(ctx context.Context, led *ledger, limit time.Duration) (int, time.Duration, error) {
	return b.drainWith(ctx, limit, core.Config{Publisher: nowhere{led}})
}

// nowhere accepts every event at once.
type nowhere struct{ l *ledger }

func (n nowhere) Publish(_ context.Context, d core.Delivery) error {
	n.l.see(payloadNumber(d.Payload))
	return nil
}

func (n nowhere) PublishAsync(_ context.Context, d core.Delivery, done func(string, error)) {
	n.l.see(payloadNumber(d.Payload))
	done("", nil)
}

func (b *logBacklog) logRelay(to core.Publisher, o *core.Observer) (*walrelay.Relay, error) {
	return walrelay.New(walrelay.Config{
		Pool: b.pool, Slot: b.slot(), Tables: sqloutbox.Config{Prefix: b.prefix},
		Outbox: core.Config{Publisher: to, Observer: o},
	})
}

func (b *logBacklog) drainLogNowhere(ctx context.Context, led *ledger, limit time.Duration,
) (int, time.Duration, error) {
	return b.drainLog(nowhere{led})(ctx, led, limit)
}

// drainLog runs the relay of the log. If to is nil, it uses the publisher of b.
func (b *logBacklog) drainLog(to core.Publisher) drainFunc {
	if to == nil {
		to = b.publisher
	}
	return func(ctx context.Context, _ *ledger, limit time.Duration) (finished int, took time.Duration, err error) {
		var acked atomic.Int64
		done := make(chan struct{})
		r, err := b.logRelay(to, &core.Observer{Marked: func(rows int, _ time.Duration, err error) {
			if err == nil && acked.Add(int64(rows)) == int64(b.events) {
				close(done)
			}
		}})
		if err != nil {
			return 0, 0, err
		}
		runCtx, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- r.Run(runCtx) }()
		select {
		case <-done:
		case <-time.After(limit):
		case err := <-ended:
			return 0, 0, errors.Join(errors.New("the relay ended"), err)
		}
		took, finished = time.Since(start), int(acked.Load())
		stop()
		return finished, took, <-ended
	}
}

// rawClient is the client that franzbridge uses, without franzbridge.
type rawClient struct {
	*brokerBacklog

	topic  string
	client *kgo.Client
}

func newRawClient(to franzBroker, b *brokerBacklog) (*rawClient, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(to.address), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(rawAtOnce))
	return &rawClient{b, to.topic, client}, err
}

func (r *rawClient) Publish(context.Context, core.Delivery) error { return errors.ErrUnsupported }

func (r *rawClient) Close(context.Context) error {
	r.client.Close()
	return nil
}

// records makes the messages that franzbridge would send.
func (r *rawClient) records(ctx context.Context) []*kgo.Record {
	all := make([]*kgo.Record, len(r.deliveries))
	for n, d := range r.deliveries {
		m := watermillbridge.NewMessage(ctx, d)
		rec := &kgo.Record{Topic: r.topic, Value: d.Payload}
		if d.Key != "" {
			rec.Key = []byte(d.Key)
		}
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: "_watermill_message_uuid", Value: []byte(m.UUID)})
		for name, value := range m.Metadata {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		all[n] = rec
	}
	return all
}

func (r *rawClient) drain(ctx context.Context, _ *ledger, _ time.Duration) (finished int, took time.Duration,
	err error,
) {
	all := r.records(ctx)
	var acked atomic.Int64
	var failed atomic.Pointer[error]
	var open sync.WaitGroup
	start := time.Now()
	open.Add(len(all))
	for _, rec := range all {
		r.client.Produce(ctx, rec, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			} else {
				acked.Add(1)
			}
			open.Done()
		})
	}
	open.Wait()
	took = time.Since(start)
	if e := failed.Load(); e != nil {
		err = *e
	}
	return int(acked.Load()), took, err
}

// received is pg_recvlogical.
type received struct {
	*logBacklog

	path, file string
	cpu        time.Duration
}

func (r *received) drain(ctx context.Context, _ *ledger, limit time.Duration) (finished int, took time.Duration,
	err error,
) {
	dir, err := os.MkdirTemp("", "outbox_bench")
	if err != nil {
		return 0, 0, err
	}
	r.file = filepath.Join(dir, "log")
	var end string
	if err := r.db.QueryRowContext(ctx, "SELECT pg_current_wal_lsn()").Scan(&end); err != nil {
		return 0, 0, err
	}
	// pg_recvlogical ends when it gets a message after the position at which it has to end.
	for range 2 {
		if _, err := r.db.ExecContext(ctx, "SELECT pg_logical_emit_message(true, 'end', '')"); err != nil {
			return 0, 0, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var errs bytes.Buffer
	cmd := exec.CommandContext(ctx, r.path, "-d", r.dsn, "--slot", r.slot(), "--start", "--no-loop", "--endpos", end,
		"-o", "proto_version=1", "-o", "binary=true", "-o", "publication_names="+r.slot(), "-f", r.file)
	cmd.Stderr = &errs
	start := time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(errs.String()))
	}
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return r.events, time.Since(start), nil
}

func (r *received) collect(_ context.Context, led *ledger) error {
	defer os.RemoveAll(filepath.Dir(r.file))
	text, err := os.ReadFile(r.file)
	if err != nil {
		return err
	}
	for {
		i := bytes.Index(text, []byte(`{"n":"`))
		if i < 0 {
			return nil
		}
		led.see(payloadNumber(text[i:]))
		text = text[i+1:]
	}
}
