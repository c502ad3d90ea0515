package franzbridge

// Errors and functions that the tests know and callers need not.
var (
	ErrUnsafeConfig = errUnsafeConfig
	ErrClosed       = errClosed
	ErrNoAnswer     = errNoAnswer
)
