package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// producer publishes the messages that handlers return.
type producer struct {
	publisher message.Publisher // nil: a handler that returns messages fails
	observer  *Observer
}

// arrival is a message with what the observer is told of it.
type arrival struct {
	msg  engine.Message
	came time.Time
	info Info
}

// arrived identifies a message that has just come. The engine does not ask for the identity again.
func arrived(msg engine.Message, identify func(engine.Message) (Event, error)) arrival {
	a := arrival{msg: msg, came: time.Now()}
	event, err := identify(msg)
	if err != nil {
		return a // the engine refuses it with the same error
	}
	a.msg.ID, a.info.Event, a.info.OccurredAt = event.EventID, event, engine.OccurredAt(msg)
	return a
}

// correlationID is the metadata key of Watermill's CorrelationID.
const correlationID = "correlation_id"

// publish writes the messages that a handler returned to the outbox. It also sets the correlation
// id, because the middleware CorrelationID does not see these messages if it is outside of the
// inbox.
func (o producer) publish(ctx context.Context, a arrival, consumed *message.Message,
	produced []*message.Message,
) error {
	if len(produced) == 0 {
		return nil
	}
	topic := message.PublishTopicFromCtx(ctx)
	switch {
	case o.publisher == nil:
		return ErrProducedNeedsOutbox
	case topic == "":
		return errors.New("inbox: the handler returned messages, and has no topic to publish to: add it with " +
			"AddHandler of the Router")
	}
	for _, p := range produced {
		if p == nil {
			return errors.New("inbox: the handler returned a nil message")
		}
		p.SetContext(ctx)
		if id := consumed.Metadata[correlationID]; id != "" && p.Metadata[correlationID] == "" {
			if p.Metadata == nil {
				p.Metadata = message.Metadata{}
			}
			p.Metadata[correlationID] = id
		}
	}
	if err := o.publisher.Publish(topic, produced...); err != nil {
		return fmt.Errorf("inbox: write produced messages to the outbox: %w", err)
	}
	if o.observer != nil && o.observer.Produced != nil {
		info := a.info
		info.Duration = time.Since(a.came)
		o.observer.Produced(info, len(produced))
	}
	return nil
}
