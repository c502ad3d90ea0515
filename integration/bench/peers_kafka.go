package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/sqloutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox"
	"github.com/ormoutbox/ormoutbox/pgxoutbox/walrelay"
	"github.com/ormoutbox/ormoutbox/watermillbridge/franzbridge"
)

// Competitors on the way into Kafka.
const (
	pollName     = "ormoutbox, polling"
	logName      = "ormoutbox, log"
	debeziumName = "Debezium"
)

// kafka has what the competitors share. Each measurement has a topic of its own.
type kafka struct {
	*env

	pool    *pgxpool.Pool
	client  *kgo.Client
	topics  []string
	connect *connect // nil: Debezium takes no part
}

// openKafka opens what the competitors share. The caller closes it, also after an error.
func (e *env) openKafka(ctx context.Context, pool *pgxpool.Pool) (k *kafka, err error) {
	k = &kafka{env: e, pool: pool}
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(e.opts.kafka)); err != nil {
		return nil, err
	}
	if err := k.client.Ping(ctx); err != nil {
		return k, fmt.Errorf("kafka: %w (is the server up? `make services-up`)", err)
	}
	if e.opts.debezium != "" && e.opts.only.MatchString(debeziumName) {
		k.connect, err = startConnect(ctx, e, e.opts.kafka)
	}
	return k, err
}

func (k *kafka) close(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	if k.connect != nil {
		err = k.connect.close()
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10_000
	for _, topic := range k.topics {
		req.TopicNames = append(req.TopicNames, topic)
		req.Topics = append(req.Topics, kmsg.DeleteTopicsRequestTopic{Topic: &topic})
	}
	_, failed := req.RequestWith(ctx, k.client)
	k.client.Close()
	return errors.Join(err, failed, k.dropSlot(ctx))
}

// newTopic creates a topic.
func (k *kafka) newTopic(ctx context.Context) (string, error) {
	name := fmt.Sprintf("%s_%d", k.name, len(k.topics))
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 12, 1
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics, req.TimeoutMillis = append(req.Topics, topic), 10_000
	resp, err := req.RequestWith(ctx, k.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		return "", err
	}
	k.topics = append(k.topics, name)
	ok, err := await(ctx, time.Minute, 20*time.Millisecond, func() (bool, error) {
		_, err := k.stored(ctx, name)
		return err == nil, nil
	})
	if err == nil && !ok {
		err = errors.New("the partitions of a new topic have no leaders")
	}
	return name, err
}

// stored returns how many messages a topic has.
func (k *kafka) stored(ctx context.Context, topic string) (n int, err error) {
	asked := kmsg.NewListOffsetsRequestTopic()
	asked.Topic = topic
	for p := range int32(12) {
		part := kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = p, -1 // the end
		asked.Partitions = append(asked.Partitions, part)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, asked)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return 0, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return 0, err
			}
			n += int(p.Offset)
		}
	}
	return n, nil
}

// consume calls see for the messages of a topic until stop is called.
func (k *kafka) consume(topic string, see func(n int)) (stop func(), err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(k.opts.kafka), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { see(payloadNumber(r.Value)) })
		}
	}()
	return func() { client.Close(); <-ended }, nil
}

// publisher returns a publisher of a topic.
func (k *kafka) publisher(topic string) (*toTopic, error) {
	p, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{k.opts.kafka}})
	return &toTopic{p, topic}, err
}

// toTopic publishes all events to one topic.
type toTopic struct {
	*franzbridge.Publisher
	topic string
}

func (t *toTopic) Publish(ctx context.Context, d core.Delivery) error {
	d.Topic = t.topic
	return t.Publisher.Publish(ctx, d)
}

func (t *toTopic) PublishWithReceipt(ctx context.Context, d core.Delivery) (string, error) {
	d.Topic = t.topic
	return t.Publisher.PublishWithReceipt(ctx, d)
}

func (t *toTopic) PublishAsync(ctx context.Context, d core.Delivery, done func(string, error)) {
	d.Topic = t.topic
	t.Publisher.PublishAsync(ctx, d, done)
}

// slot returns the name of the slot and of the publication, which competitors use in turns.
func (k *kafka) slot() string { return k.name + "_log" }

// dropSlot deletes the slot as soon as no process reads it.
func (k *kafka) dropSlot(ctx context.Context) error {
	ok, err := await(ctx, 20*time.Second, 20*time.Millisecond, func() (bool, error) {
		_, _ = k.db.ExecContext(ctx, "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "+
			"WHERE slot_name = $1 AND NOT active", k.slot()) // the slot may be in use again
		n, err := k.count(ctx, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = $1", k.slot())
		return n == 0, err
	})
	if err == nil && !ok {
		err = fmt.Errorf("slot %s is in use", k.slot())
	}
	return err
}

// newSlot makes the slot and the publication anew for the tables with the prefix.
func (k *kafka) newSlot(ctx context.Context, prefix string) error {
	if err := k.dropSlot(ctx); err != nil {
		return err
	}
	if err := k.exec(ctx, "DROP TABLE IF EXISTS "+prefix+"log", "DROP PUBLICATION IF EXISTS "+k.slot()); err != nil {
		return err
	}
	r, err := k.logRelay(prefix, core.Config{Publisher: nowhere(&ledger{})})
	if err != nil {
		return err
	}
	return r.Setup(ctx)
}

func (k *kafka) logRelay(prefix string, cfg core.Config) (*walrelay.Relay, error) {
	return walrelay.New(walrelay.Config{
		Pool: k.pool, Slot: k.slot(), Tables: sqloutbox.Config{Prefix: prefix}, Outbox: cfg,
	})
}

// latency measures the time from a commit until a consumer of Kafka has the event.
func (k *kafka) latency(ctx context.Context,
	open func(ctx context.Context, topic string) (*wakeSide, func() error, error),
) (f figures, err error) {
	topic, err := k.newTopic(ctx)
	if err != nil {
		return nil, err
	}
	w := newStopwatch()
	stop, err := k.consume(topic, w.published)
	if err != nil {
		return nil, err
	}
	defer stop()
	producer, end, err := open(ctx, topic)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end(), producer.pool.Close()) }()
	return k.timeOrders(ctx, producer, w)
}

// relayTo opens a publisher of the topic and a producer. run makes a relay with that publisher. If
// it is nil, the producer's own outbox relays.
func (k *kafka) relayTo(ctx context.Context, topic, prefix string, producing core.Config,
	run func(to core.Publisher) (func(context.Context) error, error),
) (*wakeSide, func() error, error) {
	to, err := k.publisher(topic)
	if err != nil {
		return nil, nil, err
	}
	if run == nil {
		producing.Publisher = to
	}
	producer, err := k.wakePostgres().join(ctx, prefix, producing)
	if err != nil {
		return nil, nil, errors.Join(err, to.Close(ctx))
	}
	relay := producer.ob.Run
	if run != nil {
		if relay, err = run(to); err != nil {
			return nil, nil, errors.Join(err, producer.pool.Close(), to.Close(ctx))
		}
	}
	stop := inBackground(ctx, relay)
	return producer, func() error { return errors.Join(stop(), to.Close(context.WithoutCancel(ctx))) }, nil
}

func (k *kafka) inService(ctx context.Context, topic string) (*wakeSide, func() error, error) {
	return k.relayTo(ctx, topic, "fast_", core.Config{}, nil)
}

func (k *kafka) woken(ctx context.Context, topic string) (*wakeSide, func() error, error) {
	const prefix = "apart_"
	return k.relayTo(ctx, topic, prefix, core.Config{}, func(to core.Publisher) (func(context.Context) error, error) {
		side, err := k.wakePostgres().join(ctx, prefix, core.Config{
			Publisher: to, Wake: core.WakePolicy{Listen: pgxoutbox.Listen(k.config, sqloutbox.WakeChannel(prefix))},
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return errors.Join(side.ob.Run(ctx), side.pool.Close()) }, nil
	})
}

func (k *kafka) byLog(ctx context.Context, topic string) (*wakeSide, func() error, error) {
	const prefix = "bylog_"
	return k.relayTo(ctx, topic, prefix, core.Config{RelayedByLog: true},
		func(to core.Publisher) (func(context.Context) error, error) {
			if err := k.newSlot(ctx, prefix); err != nil {
				return nil, err
			}
			r, err := k.logRelay(prefix, core.Config{Publisher: to})
			if err != nil {
				return nil, err
			}
			return r.Run, nil
		})
}

func (k *kafka) byDebezium(ctx context.Context, topic string) (*wakeSide, func() error, error) {
	const prefix = "bydebezium_"
	producer, err := k.wakePostgres().join(ctx, prefix, core.Config{RelayedByLog: true})
	if err != nil {
		return nil, nil, err
	}
	err = k.newSlot(ctx, prefix)
	var end func() error
	if err == nil {
		end, err = k.connect.add(ctx, prefix, k.slot(), topic)
	}
	if err != nil {
		return nil, nil, errors.Join(err, producer.pool.Close())
	}
	return producer, end, nil
}
