package kafkabridge

// Errors and functions that the tests know and callers need not.
var (
	ErrUnsafeConfig = errUnsafeConfig
)

// Unmarshaler is what NewSubscriber sets.
type Unmarshaler = unmarshaler
