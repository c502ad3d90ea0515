package natsbridge

// Errors and functions that the tests know and callers need not.
var (
	ErrUnsafeConfig = errUnsafeConfig
)
