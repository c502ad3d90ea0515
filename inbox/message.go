package inbox

import (
	"context"
	"strconv"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	coreinbox "github.com/ormoutbox/ormoutbox/core/inbox"
)

// MessageOf returns msg as a message of package core/inbox, whose functions get it as Raw.
//
// Handler and topic are the Router's. Partition and offset come from metadata outbox_source
// (core.HeaderSource), as topic/partition/offset. The subscriber of kafkabridge sets them; for
// another subscriber, a middleware outside of the inbox can do so. Without an event id in the
// metadata or in a CloudEvent, the UUID of msg is the event id. Some subscribers make up a UUID for
// a message that has none, and then each delivery counts as a new event: set EventID of the inbox
// for these.
func MessageOf(msg *message.Message) coreinbox.Message {
	if msg == nil {
		return coreinbox.Message{}
	}
	m := coreinbox.Message{
		UUID: msg.UUID, Handler: handlerOf(msg.Context()), Topic: message.SubscribeTopicFromCtx(msg.Context()),
		Acked: msg.Acked(), Headers: msg.Metadata, Payload: msg.Payload, Raw: msg,
	}
	// A message that was forwarded may still have its place in the topic from which it was read
	// before.
	place, ok := strings.CutPrefix(msg.Metadata[core.HeaderSource], m.Topic+"/")
	partition, offset, _ := strings.Cut(place, "/")
	p, err := strconv.ParseInt(partition, 10, 32)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if ok && err == nil && err2 == nil {
		m.Partition, m.Offset, m.Located = int32(p), o, true
	}
	return m
}

// handlerName is the key of the name that a function of CQRS has put into a context.
type handlerName struct{}

// handlerOf returns the name of the handler of a message: by CQRS, else by the Router.
func handlerOf(ctx context.Context) string {
	if name, ok := ctx.Value(handlerName{}).(string); ok {
		return name
	}
	return message.HandlerNameFromCtx(ctx)
}

// ProcessBatch runs fn once, in one transaction, with the messages that were not processed before,
// in their order: see ProcessBatch of in. The contexts of the messages and ctx carry the
// transaction. Outside of a Router, Handler of the inbox must name the handler.
//
// errs has an entry for each message. Acknowledge the messages whose entry is nil. Put the messages
// for whose entry coreinbox.Final is true into a poison queue, and then acknowledge them.
// Acknowledge no other. After a failure ProcessBatch pauses before it returns.
func ProcessBatch(ctx context.Context, in *coreinbox.Inbox, msgs []*message.Message,
	fn func(ctx context.Context, fresh []*message.Message) error,
) (errs []error) {
	list := make([]coreinbox.Message, len(msgs))
	for n, msg := range msgs {
		list[n] = MessageOf(msg)
	}
	results := in.ProcessBatch(ctx, list, func(ctx context.Context, _ core.Tx, fresh []coreinbox.Message) error {
		raw := make([]*message.Message, len(fresh))
		for n, m := range fresh {
			msg, _ := m.Raw.(*message.Message)
			defer msg.SetContext(msg.Context())
			msg.SetContext(ctx)
			raw[n] = msg
		}
		return fn(ctx, raw)
	})
	errs = make([]error, len(results))
	var longest coreinbox.Result
	for n, r := range results {
		errs[n] = r.Err
		longest.After = max(longest.After, r.After)
	}
	longest.Wait(ctx)
	return errs
}
