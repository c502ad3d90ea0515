package contractoutbox

// Errors and functions that the tests know and callers need not.
var (
	ErrBaseline = errBaseline
	ErrCatalog  = errCatalog
	ErrUnknown  = errUnknown
)
