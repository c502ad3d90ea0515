// Package mark marks contexts of the outbox's statements for the connections of sqltx and for the
// simulation.
package mark

import "context"

type (
	key        struct{}
	publishKey struct{}
)

// Insert returns a context for the statements of Publish. keep: a connection should prepare them
// once and keep them: they are long, and the same in most transactions.
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

// ToPublish returns a context for the renewal of a lease by the worker that is about to publish its
// event.
func ToPublish(ctx context.Context) context.Context {
	return context.WithValue(ctx, publishKey{}, true)
}

// IsToPublish reports whether ctx was made by ToPublish.
func IsToPublish(ctx context.Context) bool { return ctx.Value(publishKey{}) != nil }
