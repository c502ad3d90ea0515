package contract

// Errors and functions that the tests know and callers need not.
var (
	ErrDeclaration = errDeclaration
)
