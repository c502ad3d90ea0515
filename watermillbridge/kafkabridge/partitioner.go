package kafkabridge

import (
	"encoding/binary"

	"github.com/IBM/sarama"
)

// NewPartitioner returns the partitioner that Publishers use, for
// sarama.Config.Producer.Partitioner. A message with a key goes to the partition that Kafka's Java
// client chooses: murmur2 of the key. So a key stays on one partition, whether this relay, Debezium
// or a Java application sends it. Sarama's own partitioners choose other partitions. Messages
// without a key take turns over the partitions that have a leader.
func NewPartitioner(topic string) sarama.Partitioner {
	return &partitioner{turns: sarama.NewRoundRobinPartitioner(topic)}
}

type partitioner struct{ turns sarama.Partitioner }

// Partition implements sarama.Partitioner.
func (p *partitioner) Partition(msg *sarama.ProducerMessage, n int32) (int32, error) {
	if s, ok := msg.Metadata.(*sent); ok {
		s.partitioned = true
	}
	if msg.Key == nil {
		return p.turns.Partition(msg, n)
	}
	key, err := msg.Key.Encode()
	if err != nil {
		return -1, err
	}
	return int32(murmur2(key)&0x7fffffff) % n, nil
}

// RequiresConsistency implements sarama.Partitioner.
func (p *partitioner) RequiresConsistency() bool { return true }

// MessageRequiresConsistency implements sarama.DynamicConsistencyPartitioner: a key must not move
// to another partition while its own has no leader.
func (p *partitioner) MessageRequiresConsistency(msg *sarama.ProducerMessage) bool {
	return msg.Key != nil
}

// murmur2 is the 32-bit MurmurHash2 of Kafka's Java client
// (org.apache.kafka.common.utils.Utils.murmur2), which fixes the seed.
func murmur2(data []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}
