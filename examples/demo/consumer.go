package main

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/ormoutbox/ormoutbox/watermillbridge"
)

// consume writes each message to the ledger and acknowledges it after that. It returns when the
// channel closes, or when it could not write: then that message and all further ones stay
// unacknowledged.
func consume(messages <-chan *message.Message, book *ledger, report reporter) error {
	for msg := range messages {
		event, err := watermillbridge.EventFromMessage(msg)
		if err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		var placed OrderPlaced
		if err := json.Unmarshal(event.Payload, &placed); err != nil {
			return fmt.Errorf("consume: event %s: %w", event.ID, err)
		}
		e := entry{EventID: event.ID, sale: sale{
			OrderID: placed.OrderID, Customer: placed.Customer,
			Number: placed.Number,
		}}
		if err := book.write(e); err != nil {
			return fmt.Errorf("consume: event %s: %w", event.ID, err)
		}
		report.say(sayDelivered)
		msg.Ack()
	}
	return nil
}
