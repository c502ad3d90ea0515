package contract

import "errors"

// Errors of Decode and of Handlers.Handle. Each is marked with a class for a relay or an inbox.
// Another mark around it wins: core.Permanent(err).
var (
	// ErrUnknownType: the message's type is not the EventType's, or has no Handler. Marked
	// core.Permanent, unless HandlersConfig.UnknownType is set otherwise.
	ErrUnknownType = errors.New("contract: unknown event type")

	// ErrNewerVersion: the data has a newer version than this program can read. Deploy the
	// consumer. Marked core.UnavailableForKey, unless HandlersConfig.NewerVersion is set otherwise:
	// the message waits and spends no attempt.
	ErrNewerVersion = errors.New("contract: newer version of the data")

	// ErrOlderVersion: the data has an older version than the first in Spec.Older. Marked
	// core.Permanent. Declare that version again, deploy, and redrive the event.
	ErrOlderVersion = errors.New("contract: version is no longer declared")

	// ErrInvalidData: the data does not match the declaration of its version: it is not JSON, a
	// required field is missing, or Validate of the data refused it. Marked core.Permanent.
	ErrInvalidData = errors.New("contract: invalid data")

	// errDeclaration: an EventType, Catalog or Handlers was declared wrongly. The text names every
	// problem.
	errDeclaration = errors.New("contract: invalid declaration")
)
