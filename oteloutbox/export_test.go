package oteloutbox

// Errors and functions that the tests know and callers need not.
var (
	OutcomeKey = outcomeKey
)
