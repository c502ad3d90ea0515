// Package watermillbridge joins an outbox and Watermill.
//
// A [Publisher] lets a relay publish through any Watermill publisher. It sends one message per
// call, so that every event has a result of its own, and it bounds calls that do not return. An
// [OutboxPublisher] goes the other way: Watermill code (a CQRS bus, a handler, a former user of a
// Forwarder) writes to the outbox in the transaction of its context. [EventFromMessage] reads the
// event on the consumer's side.
//
//	kafka, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: brokers})  // or any message.Publisher:
//	nats, err := watermillbridge.NewPublisher(natsPublisher, watermillbridge.Config{})
//
// # Which id is which
//
// The message's UUID and metadata event_id are the identity of the event, by which consumers
// deduplicate. They are the same for every attempt, every destination and every replay. A message
// that came through an OutboxPublisher keeps its UUID. Metadata outbox_row_id is the row id. It is
// the same for every attempt, and another one for each destination and for a replay. So a broker
// that deduplicates must use the row id.
//
// # Requirements on the broker's publisher
//
// Publish must return nil only if the broker has stored the message. [NewPublisher] refuses the
// publishers of watermill-kafka, watermill-amqp and watermill-nats whose settings do not wait for
// that, or wait without end after a connection was lost ([ErrUnconfirmed]). It cannot see how other
// publishers are configured, so the caller must configure them:
//
//   - Kafka: use kafkabridge. watermill-kafka alone waits for the leader only, is not idempotent,
//     and keeps five requests open. Topics should have at least three replicas and
//     min.insync.replicas=2.
//   - RabbitMQ: use amqpbridge. watermill-amqp alone does not wait for confirms, and the broker
//     confirms even a message that no queue takes. Never set Publish.Transactional: it hides
//     errors. Prefer quorum queues.
//   - NATS: use natsbridge. watermill-nats alone loses messages if JetStream is disabled. Its
//     TrackMsgId uses the UUID, and of an event with two destinations in one stream only the first
//     would be stored.
//   - Redis streams: use redisbridge. watermill-redisstream alone deletes entries, read or not, if
//     Maxlens or DefaultMaxlen is set, and does not look at the server.
//   - Go channels (gochannel): they lose messages. A topic without a subscriber discards messages,
//     and Publish returns before a handler has run. Even with BlockPublishUntilSubscriberAck,
//     Publish returns nil while the Pub/Sub closes. They are fine for tests. For handlers in the
//     same process give core.Router a function: its event is done when the function has returned
//     nil.
//   - HTTP: use httpbridge, which is a core.Publisher of its own.
//   - SQL, io and others: find out which acknowledgement their Publish waits for.
//
// # Timeouts
//
// Publish of Watermill takes no context and can wait for minutes. Each call has a goroutine of its
// own. If the relay's timeout ends first, the call is left behind, and the event is due again. If
// the call succeeds later, the event is marked as published. If it was published again before that,
// its consumers see it twice. At most [Config].MaxStuck calls to a topic are left behind. Configure
// the broker's publisher so that its own timeouts are shorter than relay.Config.PublishTimeout.
// Then calls are rarely left behind.
package watermillbridge
