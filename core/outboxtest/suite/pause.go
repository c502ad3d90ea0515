package suite

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/outboxtest/internal/pause"
)

// ContextWithPause returns a context in which Pause calls fn. Tests use it to run code between two
// statements of a call.
func ContextWithPause(ctx context.Context, fn func() error) context.Context {
	return pause.Context(ctx, fn)
}

// Pause is called before each statement, with the context of the statement, by
// outboxtest.Repository and by the drivers of backends that run TestRepository. It does nothing
// without ContextWithPause. If Pause returns an error, the statement must fail with it. Pause may
// block, so a backend in memory must hold no lock meanwhile.
func Pause(ctx context.Context) error {
	return pause.Now(ctx)
}
