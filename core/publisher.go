package core

import (
	"context"
	"fmt"
	"reflect"
)

// Publisher hands one event to one destination and reports one outcome. A nil error means that the
// destination has accepted the event for good: the row is then marked DONE.
//
// An error can say what it means: see Permanent, Transient, Unavailable and UnavailableForKey.
// Others go to Config.Classifier. Publish must respect the end of ctx, which carries
// Config.PublishTimeout: one that does not return keeps its worker, and the relay goes on without
// it. It is called by many goroutines at once, but never twice at once for events of one lane. It
// must not modify d or keep d.Payload.
type Publisher interface {
	Publish(ctx context.Context, d Delivery) error
}

// ReceiptPublisher is a Publisher that knows where the destination put the event, such as
// "orders/3@1042". The receipt is stored with the row. At most 255 bytes are kept.
type ReceiptPublisher interface {
	Publisher
	PublishWithReceipt(ctx context.Context, d Delivery) (receipt string, err error)
}

// SizeChecker is implemented by publishers that know which events are too large for their
// destination, like those of kafkabridge and amqpbridge, and Router. Outbox.Publish asks it before
// anything is written, and refuses such an event with ErrInvalidEvent; without it the event would
// be DEAD when it is relayed. A publisher that wraps another one should pass the question on.
//
// A process without a Publisher cannot ask: set its Config.MaxPayload below what the relay's
// publisher takes.
type SizeChecker interface {
	// CheckSize returns nil, or an error that names the size, the limit and what to change. e is
	// complete, its Topic included. It is called inside the caller's transaction, by many
	// goroutines at once: it must be quick, do no I/O, and neither modify nor keep e.
	CheckSize(e Event) error
}

// TopicLister is implemented by publishers that serve only certain topics, like Router. A relay
// claims only these. A nil slice means every topic but those of ServedTopicPrefix. The answer must
// not change once the publisher is in use.
type TopicLister interface {
	Topics() []string
}

// TopicNamer is implemented by publishers that serve every topic and name some of them, like a
// Router with HandleOther. What it names is claimed also if it has ServedTopicPrefix. The answer
// must not change once the publisher is in use.
type TopicNamer interface {
	NamedTopics() []string
}

// PublisherFunc makes a Publisher of a function: the way to handle events in the same process.
type PublisherFunc func(ctx context.Context, d Delivery) error

// Publish calls f.
func (f PublisherFunc) Publish(ctx context.Context, d Delivery) error { return f(ctx, d) }

// checkPublisher refuses publishers that would only fail when the first event arrives.
func checkPublisher(p Publisher) error {
	if p == nil {
		return nil
	}
	switch v := reflect.ValueOf(p); v.Kind() {
	case reflect.Func, reflect.Pointer, reflect.Map, reflect.Chan, reflect.Slice, reflect.Interface:
		if v.IsNil() {
			return fmt.Errorf("it is a nil %T: leave it out, or give one that works", p)
		}
	default:
	}
	if r, ok := p.(*Router); ok {
		return r.check()
	}
	return nil
}
