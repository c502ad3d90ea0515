package quotes

import (
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/examples/quote-to-order/contract"
	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// orderEvent handles the events of orders. The inbox has opened the transaction in which it works.
func (s *Service) orderEvent(msg *message.Message) error {
	event, err := watermillbridge.EventFromMessage(msg)
	if err != nil {
		return core.Permanent(err)
	}
	if event.Type != (contract.OrderCaptured{}).EventType() {
		return nil // of no interest to quotes
	}
	var captured contract.OrderCaptured
	if err := json.Unmarshal(event.Payload, &captured); err != nil {
		return core.Permanent(err) // no attempt can help: a person has to look at it
	}
	return s.Ordered(msg.Context(), event.TenantID, captured.QuoteID, captured.OrderID)
}
