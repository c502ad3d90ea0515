// Package natsbridge publishes an outbox to NATS JetStream, and has a subscriber for consumers. A
// message that it reports as published is stored in a stream.
//
//	publisher, err := natsbridge.NewPublisher(natsbridge.Config{URL: "nats://nats-1:4222,nats://nats-2:4222"})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// A topic is a subject. The package has a publisher of its own, which waits for the acknowledgement
// of the stream. Any client reads its messages: the payload is the data of the message, and its
// metadata are headers.
//
// [Subscriber] is a message.Subscriber that loses no message when its process stops, is killed or
// loses the server. watermill-nats with NATSMarshaler reads the same messages; docs/nats.md lists
// the necessary settings.
//
// # Streams
//
// A stream must have the subject before events are published. Otherwise the topic waits with
// [ErrNoStream], which names the command that makes one, and its events spend no attempt. [Check]
// finds that out when a process starts. A stream that would lose messages is refused with
// [ErrUnsafeStream]. Each message names the stream that it expects, so a subject that moves to
// another stream is noticed.
//
// # Copies
//
// The row id becomes Nats-Msg-Id. A stream stores an id once within its duplicate window (two
// minutes by default), and acknowledges the copy. So an event whose acknowledgement was lost is
// stored once. An event that goes to two subjects of one stream has two rows, and a replay has a
// row of its own: neither is taken for a copy.
//
// # Errors
//
// [Classify] lists them. A message that is too large or has no valid subject is permanent. An
// outage, missing rights, and a stream that is missing or full stop the topic and cost its events
// no attempt. The connection is opened by the first publish and reconnects without end. Nothing is
// buffered meanwhile.
//
// # Watermill
//
// With watermill-nats instead of this publisher, set Classifier and RowIDMetadata of
// watermillbridge.Config, use JetStream, and leave TrackMsgId false.
package natsbridge
