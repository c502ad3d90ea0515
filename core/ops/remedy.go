package ops

import "fmt"

// remedy is the next step for a failure with that code, as a sentence without its stop.
func remedy(code string) string {
	switch code {
	case "permanent":
		return "The destination refuses this event itself: correct what its error names, as a schema or a limit, or " +
			"edit the event"
	case "unroutable":
		return "No consumer takes events of this topic: create its queue and binding, or correct the topic"
	case "undecodable":
		return "The row cannot be read: repair or discard it"
	case "lost_claims":
		return "Processes ended while they published it: look into their logs for a crash or a lack of memory"
	case "panic", "goexit":
		return "The publisher panics on it: the log of the relay has the stack; repair the publisher"
	case "stuck":
		return "The publisher does not return from it: take a goroutine dump of the relay, and repair the publisher"
	case "timeout":
		return "The destination does not answer in time: see whether it is well, or give it more (PublishTimeout)"
	}
	return "Remove the cause that the error names"
}

// redriveOrDiscard describes the ways to end a dead event.
func redriveOrDiscard(e *Event) string {
	return fmt.Sprintf("%[2]s. Then Redrive %[1]s: `outbox redrive %[1]s --reason WHY`. Or Discard "+
		"%[1]s: `outbox discard %[1]s --reason WHY`.", e.ID, remedy(e.ErrorCode))
}
