// Package franzbridge publishes an outbox to Kafka with franz-go, a client that has many messages
// on their way at once. It is a [core.AsyncPublisher]: the relay hands events over and waits for no
// answer. It does not use Watermill, and its messages equal kafkabridge's, so consumers need not
// distinguish the two.
//
//	publisher, err := franzbridge.NewPublisher(franzbridge.Config{Brokers: []string{"kafka-1:9092", "kafka-2:9092"}})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// # Settings
//
// Messages are acknowledged by all replicas in sync, idempotent, and partitioned as Kafka's Java
// client and kafkabridge do it. They are not compressed and do not linger: while a request is on
// its way, the next batch fills. [Config].Options changes settings that do not affect safety, such
// as TLS, SASL and compression. Unsafe settings are refused: the error names each one and the
// remedy.
//
// # Order
//
// The relay hands over one event of a key at a time. So a retry inside the client, a refusal or a
// timeout never changes the order of a key.
//
// # Errors
//
// A message that can never be accepted (too large, an illegal topic name) is permanent. Kafka
// refuses whole batches: franzbridge sends each message of a refused batch again alone before it
// believes that. An outage, throttling, missing rights and a missing topic stop the topic and cost
// its events no attempt. A partition that does not answer while others of its topic do holds up
// only its own keys.
//
// When the context of a publish ends, the client gives the message up. The broker may have it
// nevertheless. The event is then published again, and its consumers see a duplicate.
//
// # Topics
//
// Create topics before you use them, with three replicas and min.insync.replicas=2 where the loss
// of a broker must not lose messages. Keep kgo.ProducerBatchMaxBytes (1 MB) at or below
// max.message.bytes of the topics: this package does not ask the broker for it.
package franzbridge
