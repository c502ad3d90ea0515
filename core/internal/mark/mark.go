// Package mark marks the INSERT of Publish for the connections of sqltx.
package mark

import "context"

type key struct{}

// Insert returns a context for the statements of Publish. keep says that a connection should
// prepare them once and keep them: they are long, and the same in most transactions.
func Insert(ctx context.Context, keep bool) context.Context {
	return context.WithValue(ctx, key{}, keep)
}

// IsInsert reports whether ctx was made by Insert.
func IsInsert(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// Keep reports whether ctx was made by Insert with keep.
func Keep(ctx context.Context) bool {
	keep, _ := ctx.Value(key{}).(bool)
	return keep
}
