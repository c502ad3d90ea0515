package suite

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/outboxtest/internal/pause"
)

// ContextWithPause returns a context in which Pause calls fn. It is for tests that let others act
// between two statements of a call.
func ContextWithPause(ctx context.Context, fn func() error) context.Context {
	return pause.Context(ctx, fn)
}

// Pause is called with the context of a statement before the statement is run, by
// outboxtest.Repository and by the drivers of backends that run TestRepository. It does nothing
// unless a test asked for it with ContextWithPause. The statement must fail with the error that it
// returns. It may take as long as it likes: a backend in memory must hold no lock meanwhile.
func Pause(ctx context.Context) error {
	return pause.Now(ctx)
}
