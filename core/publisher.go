package core

import (
	"context"
)

// Publisher hands one event to one destination and reports one result. A nil error means that the
// destination has accepted the event: the row is then marked DONE.
//
// An error can be marked with its class: see Permanent, Transient, Unavailable, UnavailableFor and
// UnavailableForKey. relay.Config.Classifier judges unmarked errors. Publish must respect the end
// of ctx, which carries relay.Config.PublishTimeout. A call that does not return keeps its worker,
// and the relay goes on without it. Many goroutines call Publish at once, but never two at once for
// events of one key. Publish must not modify d or keep d.Payload.
type Publisher interface {
	Publish(ctx context.Context, d Delivery) error
}

// ReceiptPublisher is a Publisher that returns the place of the event at the destination, such as
// "orders/3@1042". The receipt is saved with the row. At most 255 bytes are kept.
type ReceiptPublisher interface {
	Publisher
	PublishWithReceipt(ctx context.Context, d Delivery) (receipt string, err error)
}

// LatePublisher is a Publisher that cannot end a call, such as watermillbridge's: when the call's
// context ends, it leaves the call behind. The relay then publishes the event again, unless the
// call succeeds before the next attempt. A Router passes the calls on. A publisher that wraps a
// LatePublisher and does more than pass on the call must not be one.
type LatePublisher interface {
	Publisher
	// PublishLate publishes like ReceiptPublisher.PublishWithReceipt. If it leaves the call behind,
	// it calls late once the call has ended. Without an error the event is then marked DONE, and is
	// published no more. An error changes nothing. Any goroutine may call late, and only its first
	// call counts. After the end of Run it does nothing. late may be nil: a late result is ignored.
	PublishLate(ctx context.Context, d Delivery, late func(receipt string, err error)) (receipt string, err error)
}

// AsyncPublisher is a Publisher that takes many events at once and answers for each of them, such
// as franzbridge's. The relay hands events over one after another and waits for no answer. So a few
// workers keep a fast client busy. At most relay.Config.InFlight events are handed over and not
// answered, and never two of one key.
//
// A Router passes the call on. Another publisher that wraps an AsyncPublisher has to do the same,
// or else the relay calls its Publish.
type AsyncPublisher interface {
	Publisher
	// PublishAsync takes over d and returns at once: a call that waits keeps its worker. The
	// publisher calls done once the publish has ended: without an error when the destination has
	// accepted the event, and soon after the end of ctx in any case. ctx carries
	// relay.Config.PublishTimeout, of which up to a 64th may be over, and is not cancelled earlier.
	// The receipt may be empty (see ReceiptPublisher).
	//
	// Any goroutine may call done, also before PublishAsync returns. The first call counts. If it
	// had an error, a later call without one still marks the event DONE: the destination has
	// accepted it after all. A publish that is not answered within twice PublishTimeout is given up
	// as stuck: its event counts as timed out, and is marked DONE if it is accepted after all. Up
	// to relay.Config.InFlight publishes that were given up are replaced by others. Neither
	// PublishAsync nor the code that calls done may modify d.
	PublishAsync(ctx context.Context, d Delivery, done func(receipt string, err error))
}

// SizeChecker is implemented by publishers that can refuse an event beforehand, most of all because
// of its size, such as Router and the publishers of kafkabridge and amqpbridge. Outbox.Publish
// calls it before anything is written, and refuses such an event with ErrInvalidEvent. Without it
// the event would become DEAD when it is relayed. A publisher that wraps another one should pass
// the call on.
//
// A process without a Publisher cannot ask: set its Config.MaxPayload below the limit of the
// relay's publisher.
type SizeChecker interface {
	// CheckSize returns nil, or an error that names the size, the limit and the setting to change,
	// or why e can never be sent. e is complete, its Topic included. Many goroutines call CheckSize
	// at once, inside the caller's transaction. It must be quick, do no I/O, and neither modify nor
	// keep e.
	CheckSize(e Event) error
}

// TopicLister is implemented by publishers that serve only certain topics, such as Router. A relay
// claims only these. A nil slice means every topic outside ServedTopicPrefix. The answer must not
// change once the publisher is in use.
type TopicLister interface {
	Topics() []string
}

// TopicNamer is implemented by publishers that serve every topic and name some of them, such as a
// Router with HandleOther. A named topic is claimed even if it has ServedTopicPrefix. The answer
// must not change once the publisher is in use.
type TopicNamer interface {
	NamedTopics() []string
}

// PublisherFunc makes a Publisher from a function. Use it to handle events in the same process.
type PublisherFunc func(ctx context.Context, d Delivery) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, d Delivery) error { return f(ctx, d) }
