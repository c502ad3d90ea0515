// Package redisbridge publishes an outbox to Redis streams, in the format of Watermill's Redis
// Pub/Sub.
//
//	options, err := redisbridge.Options("redis://redis:6379/0")
//	publisher, err := redisbridge.NewPublisher(redisbridge.Config{Client: redis.NewClient(options)})
//	outbox, err := core.New(core.Config{Repository: repository, Publisher: publisher})
//
// A topic is a stream, and each event is one XADD, which makes the stream. Entries have the fields
// that watermill-redisstream's subscriber reads: payload, metadata (MessagePack) and
// _watermill_message_uuid.
//
// # The server
//
// A server that evicts streams to make room, or that is a replica, is refused with
// [ErrUnsafeServer] before the first event: the topic waits, and its events spend no attempt.
// [Check] finds that out when a process starts. The settings are read again each minute. Redis
// acknowledges an entry before it is on the disk. If an entry must survive a crash of the server,
// the server needs appendonly yes with appendfsync always. If it must survive the loss of the
// server, it needs replicas, and [Config].Replicas waits for them. A warning is logged if the
// append-only file is off or not synced.
//
// # Trimming
//
// Nothing is trimmed unless [Config].MaxLen is set, because MAXLEN deletes unread entries. Trim a
// stream from the side of its consumers, with XTRIM MINID up to the last entry that every group has
// acknowledged. A stream that is never trimmed fills the memory; then the topic waits until there
// is room.
//
// # Copies
//
// Redis does not recognise a copy: an event whose answer was lost is in the stream twice. Consumers
// deduplicate by event_id, as the inbox does.
//
// # Errors
//
// [Classify] lists them. With watermill-redisstream instead of this publisher, set it as Classifier
// of watermillbridge.Config.
package redisbridge
