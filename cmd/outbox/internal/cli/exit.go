package cli

import (
	"errors"
	"fmt"
)

// Exit codes of the program.
const (
	ExitOK        = 0 // done
	ExitFailed    = 1 // the command could not do its work
	ExitUsage     = 2 // unknown or missing command, flag or argument
	ExitUnhealthy = 3 // the command worked, and found something unhealthy
	ExitPartial   = 4 // a part of the work was done, and stays
	ExitRefused   = 5 // nothing was done, because nobody confirmed it
)

// exitError is an error with the exit code that it means.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exit(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error   { return exit(ExitUsage, format, args...) }
func refused(format string, args ...any) error { return exit(ExitRefused, format, args...) }

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if err == nil {
		return ExitOK
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return e.code
	}
	return ExitFailed
}
