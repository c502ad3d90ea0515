// Package amqpbridge publishes an outbox to RabbitMQ, in the format and the topology of Watermill's
// AMQP Pub/Sub, so that nothing that the outbox calls published is lost.
//
//	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(uri, nil)})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// It publishes by itself, because Watermill's publisher takes a message that no queue wants for
// delivered. Watermill's subscribers read what it sends. Every message is persistent and mandatory
// and waits for the broker's confirm, one message per channel.
//
// # Outcomes
//
// A message that no queue wants is returned by the broker ([ErrUnroutable]). Until the first event
// of the topic was taken that is an outage of the topic: its events wait for the first consumer to
// declare its queue, and Backlog shows their age. After that the event is DEAD. Declare queues
// before publishing, or let the publisher (Config.DeclareQueues). A nack ([ErrNack]) is a refusal
// of this one message. A connection or channel that breaks, an exchange that cannot be declared,
// missing rights, and a broker that blocks publishers ([ErrBlocked]) stop the topic and cost its
// events no attempt; the next publish connects again.
//
// # Queues
//
// Prefer quorum queues: a mirrored classic queue can lose messages that it has confirmed.
// Watermill's subscriber refuses a message that has a header other than text (x-death of a dead
// letter exchange) and gets it again at once, without end: let its Marshaler skip such headers.
//
// # Beside the outbox
//
// [Config].Decorate adds metrics and tracing. The publisher's MessagePublisher is a plain
// message.Publisher of Watermill with the same settings and connection: use it for a poison queue
// and for replies, because Watermill's own waits for no confirm. An event whose payload is larger
// than [Config].MaxMessageBytes is refused when it is recorded.
package amqpbridge
