package httpbridge

// Errors and functions that the tests know and callers need not.
var (
	ErrUnsafeConfig = errUnsafeConfig
	ErrClosed       = errClosed
	ErrNoEndpoint   = errNoEndpoint
	ErrAddress      = errAddress
)
