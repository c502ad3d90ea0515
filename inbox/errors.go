package inbox

import (
	"errors"

	engine "github.com/ormoutbox/ormoutbox/core/inbox"
)

// Errors that only this package has, and that callers branch on with errors.Is.
var (
	// ErrProducedNeedsOutbox: the handler returned messages, and there is neither Config.Publisher
	// nor the option Publisher. The Router would publish them after the commit, and lose them if
	// that fails. Everything was rolled back.
	ErrProducedNeedsOutbox error = &codedError{"produced_needs_outbox", "inbox: the handler returned messages and " +
		"nobody takes them: give Middleware the option inbox.Publisher, " +
		"or set Config.Publisher, which writes them to the outbox"}

	// ErrPoisonInside: a poison queue inside of the inbox took the message and hid the handler's
	// error. Everything was rolled back. Put the poison queue outside: see Chain.
	ErrPoisonInside error = &codedError{"poison_inside", "inbox: a poison queue inside of the inbox hid the " +
		"handler's error: build the chain with inbox.Chain"}
)

// codedError is an error with a code for the table.
type codedError struct{ code, text string }

func (e *codedError) Error() string { return e.text }

// InboxCode returns the code that the table keeps.
func (e *codedError) InboxCode() string { return e.code }

func isDead(err error) bool { return errors.Is(err, engine.ErrDead) }
