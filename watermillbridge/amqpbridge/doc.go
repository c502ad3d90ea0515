// Package amqpbridge publishes an outbox to RabbitMQ, in the format and the topology of Watermill's
// AMQP Pub/Sub. A message that it reports as published is not lost.
//
//	publisher, err := amqpbridge.NewPublisher(amqpbridge.Config{AMQP: amqpbridge.PubSubConfig(uri, nil)})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// The package has a publisher of its own, because Watermill's publisher counts a message as
// delivered even if no queue is bound for it. Watermill's subscribers read its messages. Every
// message is persistent and mandatory, and waits for the broker's confirm, one message per channel.
//
// # Errors
//
// The broker returns a message for which no queue is bound ([ErrUnroutable]). Until the broker has
// accepted the first event of the topic, that is an outage of the topic: its events wait for the
// first consumer to declare its queue, and Backlog shows their age. After that the event is DEAD.
// Declare queues before publishing, or let the publisher declare them (Config.DeclareQueues). A
// nack ([ErrNack]), a broken connection or channel, an exchange that cannot be declared, missing
// rights, and a broker that blocks publishers ([ErrBlocked]) stop the topic and cost its events no
// attempt. The next publish connects again.
//
// # Queues
//
// Prefer quorum queues: a mirrored classic queue can lose confirmed messages. With the default
// marshaler Watermill's subscriber refuses a message with a header that is not text (x-death of a
// dead letter exchange) and gets it again at once, without end. [Marshaler] takes it; the
// configurations of this package have it.
//
// # Beside the outbox
//
// [Config].Decorate adds metrics and tracing. The publisher's MessagePublisher is a plain
// message.Publisher of Watermill with the same settings and connection. Use it for a poison queue
// and for replies, because Watermill's own publisher waits for no confirm. An event whose payload
// is larger than [Config].MaxMessageBytes is refused when it is recorded.
package amqpbridge
