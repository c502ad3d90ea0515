// Package pause lets a test run code before a statement. The table in memory and the suites share
// it.
package pause

import "context"

type key struct{}

// Context returns a context in which Now calls fn.
func Context(ctx context.Context, fn func() error) context.Context {
	return context.WithValue(ctx, key{}, fn)
}

// Now calls the function that a test put into ctx, if there is one, and returns its error.
func Now(ctx context.Context) error {
	if fn, ok := ctx.Value(key{}).(func() error); ok {
		return fn()
	}
	return nil
}
