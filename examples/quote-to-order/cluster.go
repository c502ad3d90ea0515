package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/broker"
	"github.com/ormoutbox/ormoutbox/watermillbridge/kafkabridge"
)

// cluster looks into Kafka, and sends messages as others would.
type cluster struct {
	broker.Kafka
	client   sarama.Client
	admin    sarama.ClusterAdmin
	consumer sarama.Consumer
	producer sarama.SyncProducer
}

func connect(kafka broker.Kafka) (c *cluster, err error) {
	c = &cluster{Kafka: kafka}
	cfg := kafkabridge.SaramaConfig(0)
	cfg.Consumer.MaxWaitTime = 20 * time.Millisecond // a reader that closes waits for it
	if c.client, err = sarama.NewClient(kafka.Brokers, cfg); err != nil {
		return nil, err
	}
	if c.admin, err = sarama.NewClusterAdminFromClient(c.client); err != nil {
		return nil, err
	}
	if c.consumer, err = sarama.NewConsumerFromClient(c.client); err != nil {
		return nil, err
	}
	c.producer, err = sarama.NewSyncProducerFromClient(c.client)
	return c, err
}

// record is a message in a topic.
type record struct {
	partition int32
	offset    int64
	key       string
	headers   map[string]string
	value     []byte
}

func (r record) place() string { return fmt.Sprint(r.partition, "@", r.offset) }

// read returns all messages of a topic.
func (c *cluster) read(ctx context.Context, name string) (records []record, err error) {
	topic := c.Topic(name)
	partitions, err := c.client.Partitions(topic)
	if err != nil {
		return nil, err
	}
	for _, p := range partitions {
		end, err := c.client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			return nil, err
		}
		if end == 0 {
			continue
		}
		from, err := c.consumer.ConsumePartition(topic, p, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		for range end {
			select {
			case m := <-from.Messages():
				r := record{
					partition: p, offset: m.Offset, key: string(m.Key), value: m.Value, headers: map[string]string{},
				}
				for _, h := range m.Headers {
					r.headers[string(h.Key)] = string(h.Value)
				}
				records = append(records, r)
			case <-ctx.Done():
				return nil, errors.Join(ctx.Err(), from.Close())
			}
		}
		if err := from.Close(); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// find returns the messages of a topic that are about an aggregate.
func (c *cluster) find(ctx context.Context, name, aggregateID string) ([]record, error) {
	all, err := c.read(ctx, name)
	return slices.DeleteFunc(all, func(r record) bool { return r.headers[core.HeaderAggregateID] != aggregateID }), err
}

// send puts a message with the given headers into a topic.
func (c *cluster) send(name, key string, value []byte, headers map[string]string) error {
	m := &sarama.ProducerMessage{Topic: c.Topic(name), Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(value)}
	for k, v := range headers {
		m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(k), Value: []byte(v)})
	}
	_, _, err := c.producer.SendMessage(m)
	return err
}

// committed returns the offset that a group has committed for a partition: that of the message
// which it reads next.
func (c *cluster) committed(group, name string, partition int32) (int64, error) {
	topic := c.Topic(name)
	answer, err := c.admin.ListConsumerGroupOffsets(c.Prefix+group, map[string][]int32{topic: {partition}})
	if err != nil {
		return 0, err
	}
	block := answer.GetBlock(topic, partition)
	if block == nil {
		return 0, nil
	}
	return max(block.Offset, 0), nil
}

// lag returns how many messages of a topic a group has not acknowledged.
func (c *cluster) lag(group, name string) (n int64, err error) {
	partitions, err := c.client.Partitions(c.Topic(name))
	if err != nil {
		return 0, err
	}
	for _, p := range partitions {
		end, err := c.client.GetOffset(c.Topic(name), p, sarama.OffsetNewest)
		if err != nil {
			return 0, err
		}
		at, err := c.committed(group, name, p)
		if err != nil {
			return 0, err
		}
		n += end - at
	}
	return n, nil
}

// remove deletes the topics and groups of the story. groups has the instance that is a member of
// each group, if any.
func (c *cluster) remove(groups map[string]string) (err error) {
	for _, name := range topics {
		err = errors.Join(err, c.admin.DeleteTopic(c.Topic(name)))
	}
	for group, instance := range groups {
		if instance != "" { // such a member does not leave by itself, so that it may come back
			member := c.Prefix + group + "." + instance
			_, left := c.admin.RemoveMemberFromConsumerGroup(c.Prefix+group, []string{member})
			err = errors.Join(err, left)
		}
		gone := c.admin.DeleteConsumerGroup(c.Prefix + group)
		if !errors.Is(gone, sarama.ErrGroupIDNotFound) { // nobody has released anything
			err = errors.Join(err, gone)
		}
	}
	return errors.Join(err, c.producer.Close(), c.consumer.Close(), c.admin.Close())
}

func number(text string) int { n, _ := strconv.Atoi(text); return n }
