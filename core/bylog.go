package core

import (
	"fmt"

	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
)

// LogReader is the value of the column claimed_by in rows that a reader of the database's log
// publishes. See Config.RelayedByLog. A publication of PostgreSQL selects rows by it. No relay has
// this name, because the names of relays end in a random suffix.
const LogReader = "log"

// maxLogPayload leaves room for headers and key below the 1 MiB that Kafka takes by default. A
// reader of the log cannot go past a message that Kafka refuses.
const maxLogPayload = 1<<20 - 128<<10

// checkByLog returns an error for an event that a reader of the log cannot publish as it is.
func checkByLog(e Event) error {
	if e.Delay > 0 {
		return fmt.Errorf("%w: type %q for topic %q has a Delay of %s, and Config.RelayedByLog is set: the program "+
			"that reads the log publishes it at once", ErrInvalidEvent, errtext.Clip(e.Type, 64),
			errtext.Clip(e.Topic, 64), e.Delay)
	}
	return nil
}
