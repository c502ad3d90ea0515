package orders

import (
	"encoding/json"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// quoteEvent handles the events of quotes. The inbox has opened the transaction in which it works.
func (s *Service) quoteEvent(newest int) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		event, err := watermillbridge.EventFromMessage(msg)
		if err != nil {
			return core.Permanent(err)
		}
		if event.Type != (contract.QuoteAccepted{}).EventType() {
			return nil // of no interest to orders
		}
		accepted, err := contract.ReadQuoteAccepted(event.Payload, event.SchemaVersion, newest)
		if err != nil {
			return core.Permanent(err) // no attempt can help: a person has to look at it
		}
		_, _, err = s.Capture(msg.Context(), event.TenantID, event.ID, accepted)
		return err
	}
}

// fulfilmentEvent handles the events of the fulfilment system. It has no outbox: its messages have
// only an event_id, a tenant_id and a document.
func (s *Service) fulfilmentEvent(msg *message.Message) error {
	var done contract.FulfilmentCompleted
	if err := json.Unmarshal(msg.Payload, &done); err != nil {
		return core.Permanent(err)
	}
	err := s.Fulfilled(msg.Context(), msg.Metadata.Get(core.HeaderTenantID), done)
	if errors.Is(err, ErrNoLine) {
		return core.Permanent(err)
	}
	return err
}
