package cloudevents

// Errors and functions that the tests know and callers need not.
var (
	ErrVersion            = errVersion
	ErrFormat             = errFormat
	StructuredContentType = structuredContentType
)
