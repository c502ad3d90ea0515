package inbox_test

import (
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/inbox"
)

// The identity of an event is in the headers of its message.
func ExampleEventID() {
	for _, headers := range []map[string]string{
		{"event_id": "0192-7"},
		{"ce_id": "42", "ce_source": "/orders"}, // a CloudEvent from Kafka
		{"content-type": "application/json"},
	} {
		id, err := inbox.EventID(headers)
		fmt.Printf("%q %t\n", id, errors.Is(err, inbox.ErrInvalidMessage))
	}
	// Output:
	// "0192-7" false
	// "/orders 42" false
	// "" true
}

// A consumer loop of its own asks Final whether another delivery of a message can help.
func ExampleFinal() {
	fmt.Println(inbox.Final(errors.New("the printer is on fire")))
	fmt.Println(inbox.Final(core.Permanent(errors.New("unknown currency"))))
	// Output:
	// false
	// true
}
