// Package kafkabridge publishes an outbox to Kafka through Watermill's Kafka publisher. Its
// configuration does not lose messages, double them by retries, or reorder them within a key.
// [NewSubscriber] is for consumers: Watermill's Kafka subscriber with settings that skip no
// message.
//
//	publisher, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: []string{"kafka-1:9092", "kafka-2:9092"}})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// # Keys and partitions
//
// The message's key is the event's key (metadata partition_key). [NewPartitioner] puts it on the
// partition that Kafka's Java client would choose. So the relay, Debezium and Java producers can
// take turns on one topic without moving a key. Events without a key are spread over the
// partitions, in no order. Adding partitions to a topic moves keys for every producer. If the order
// matters to consumers, stop the relay and let them catch up first.
//
// # Errors
//
// A message that can never be accepted (too large, an illegal topic name) is permanent. Kafka
// refuses a batch because of a single message, or because the batch is too large, so each message
// is sent again alone before it is judged. An outage, throttling, missing rights and a missing
// topic stop the topic and cost its events no attempt. A partition without a leader holds up only
// its own keys. After three failures Sarama's own circuit breaker refuses everything for ten
// seconds, even if the broker is back. So recovery can take that long.
//
// An event that is too large for Producer.MaxMessageBytes, key and headers included, is refused
// when it is recorded. Keep that setting at or below max.message.bytes of the topics: this package
// does not ask the broker for it.
//
// # Beside the outbox
//
// [Config].Decorate adds metrics and tracing. The publisher's MessagePublisher is a plain
// message.Publisher of Watermill with the same settings and connection. Use it for a poison queue
// and for replies, because Watermill's own configuration waits for the leader only. The key of such
// a message is its metadata partition_key.
//
// # Sarama
//
// Idempotence is on by default and may be switched off: see [Config].Sarama. Do not replace Sarama by
// one below 1.48, which loses messages when leaders change.
//
// # Topics
//
// Create topics before you use them. A topic that the broker auto-creates has the broker's default
// number of partitions and replicas, and its first publish needs a retry. For topics that must
// survive the loss of a broker, use three replicas and min.insync.replicas=2.
package kafkabridge
