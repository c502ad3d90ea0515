package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// kafkaPartitions is how many partitions the topic has.
const kafkaPartitions = 12

// collectLimit is how long it may take to read the messages of a broker.
const collectLimit = 2 * time.Minute

type kafkaBroker struct {
	address, topic string
	client         sarama.Client
	admin          sarama.ClusterAdmin
	from           []int64 // the first offset to collect, by partition
}

func openKafka(ctx context.Context, address, topic string) (broker, error) {
	cfg := kafkabridge.SaramaConfig(0)
	cfg.Consumer.MaxWaitTime = 10 * time.Millisecond // the last fetch of a partition waits in vain
	client, err := sarama.NewClient([]string{address}, cfg)
	if err != nil {
		return nil, err
	}
	b := &kafkaBroker{address: address, topic: topic, client: client}
	if b.admin, err = sarama.NewClusterAdminFromClient(client); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	detail := &sarama.TopicDetail{NumPartitions: kafkaPartitions, ReplicationFactor: 1}
	if err := b.admin.CreateTopic(topic, detail, false); err != nil {
		return nil, errors.Join(err, b.admin.Close())
	}
	ok, err := await(ctx, time.Minute, 50*time.Millisecond, func() (bool, error) { return b.forget(ctx) == nil, nil })
	if err == nil && !ok {
		err = errors.New("the partitions of a new topic have no leaders")
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *kafkaBroker) publisher(int) (brokerPublisher, error) {
	return kafkabridge.NewPublisher(kafkabridge.Config{
		Brokers: []string{b.address},
		Bridge:  watermillbridge.Config{Topic: func(core.Delivery) string { return b.topic }},
	})
}

// ends returns the end of each partition.
func (b *kafkaBroker) ends() ([]int64, error) {
	ends := make([]int64, kafkaPartitions)
	for p := range ends {
		var err error
		if ends[p], err = b.client.GetOffset(b.topic, int32(p), sarama.OffsetNewest); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

func (b *kafkaBroker) forget(context.Context) (err error) {
	b.from, err = b.ends()
	return err
}

func (b *kafkaBroker) collect(ctx context.Context, each func(payload []byte)) error {
	ctx, cancel := context.WithTimeout(ctx, collectLimit)
	defer cancel()
	ends, err := b.ends()
	if err != nil {
		return err
	}
	consumer, err := sarama.NewConsumerFromClient(b.client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for p := range ends {
		if err := b.read(ctx, consumer, int32(p), ends[p], each); err != nil {
			return err
		}
	}
	return nil
}

// read reads a partition up to its end.
func (b *kafkaBroker) read(ctx context.Context, consumer sarama.Consumer, partition int32, end int64,
	each func(payload []byte),
) error {
	from := b.from[partition]
	if from >= end {
		return nil
	}
	part, err := consumer.ConsumePartition(b.topic, partition, from)
	if err != nil {
		return err
	}
	defer part.AsyncClose()
	for from < end {
		select {
		case m, ok := <-part.Messages():
			if !ok {
				return fmt.Errorf("partition %d cannot be read any more", partition)
			}
			each(m.Value)
			from = m.Offset + 1
		case <-ctx.Done():
			return fmt.Errorf("partition %d at offset %d of %d: %w", partition, from, end, ctx.Err())
		}
	}
	return nil
}

func (b *kafkaBroker) close() error {
	return errors.Join(b.admin.DeleteTopic(b.topic), b.admin.Close()) // Close closes the client too
}
