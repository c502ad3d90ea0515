// Package watermillbridge joins an outbox and Watermill.
//
// A [Publisher] lets a relay publish through any Watermill publisher. It sends one message per
// call, so that every event has an outcome of its own, and it bounds calls that do not return. An
// [OutboxPublisher] goes the other way: Watermill code (a CQRS bus, a handler, what used to publish
// through a Forwarder) writes to the outbox in the transaction of its context. [EventFromMessage]
// reads the event on the consumer's side.
//
//	kafka, err := kafkabridge.NewPublisher(kafkabridge.Config{Brokers: brokers})  // or any message.Publisher:
//	nats, err := watermillbridge.NewPublisher(natsPublisher, watermillbridge.Config{})
//
// # Which id is which
//
// The message's UUID and metadata event_id are the event's identity, by which consumers
// deduplicate: the same for every attempt, every destination and every replay. A message that came
// through an OutboxPublisher keeps the UUID it had. Metadata outbox_row_id is the row id: the same
// for every attempt, another for each destination and for a replay, and so the id for a broker that
// deduplicates.
//
// # What the broker's publisher must do
//
// Publish may return nil only when the broker has the message for good. A Publisher cannot see how
// the publisher below it is configured, so this is the caller's part:
//
//   - Kafka: use kafkabridge. By itself watermill-kafka waits for the leader only, is not
//     idempotent, and keeps five requests open. Topics should have at least three replicas and
//     min.insync.replicas=2.
//   - RabbitMQ: use amqpbridge. By itself watermill-amqp does not wait for confirms, and a message
//     that no queue takes is confirmed all the same. Never set Publish.Transactional: it hides
//     errors. Prefer quorum queues.
//   - NATS: only JetStream, with a stream for the subject. Set [Config].RowIDMetadata to
//     "Nats-Msg-Id" and leave JetStream.TrackMsgId false: an event that is published twice within
//     the stream's window is stored once. TrackMsgId would take the UUID, and of an event with two
//     destinations in one stream only the first would be stored. Core NATS (JetStream.Disabled)
//     answers nil with nobody listening. Set Config.Classifier to natsbridge.Classify. The server
//     syncs its disk every two minutes unless sync_interval is "always": use three replicas.
//   - Redis streams: XADD is synchronous. PublisherConfig.Maxlens and DefaultMaxlen delete entries,
//     read or not: leave them 0 or far above the lag of the slowest consumer. The server needs
//     maxmemory-policy noeviction, and appendfsync always to keep everything it has acknowledged.
//     Set Config.Classifier to redisbridge.Classify.
//   - Go channels (gochannel): lossy. A topic without a subscriber discards messages, Publish
//     returns before anybody has handled them, and even with BlockPublishUntilSubscriberAck it
//     returns nil while the Pub/Sub closes. Fine for tests. For handlers in the same process give
//     core.Router a function: its event is done when the function has returned nil.
//   - HTTP: give the client a timeout, and set Config.Classifier to httpbridge.Classify.
//   - SQL, io and others: see what their Publish waits for.
//
// # Timeouts
//
// Publish of Watermill takes no context and can wait for minutes. Each call has a goroutine of its
// own; when the relay's timeout ends first, the call is left behind and its outcome is unknown: the
// event is published again, and its consumers may see it twice. At most [Config].MaxStuck calls to
// a topic are left behind. Configure the broker's publisher so that its own timeouts are shorter
// than core.Config.PublishTimeout; then calls rarely are.
package watermillbridge
