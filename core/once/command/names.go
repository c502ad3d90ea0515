package command

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/once"
)

// register registers the channel with a Store that is a once.Registrar: when Run begins, before the
// first effect, and twice a day.
func (w *Worker) register(ctx context.Context, channel string) {
	store, ok := w.cfg.Store.(once.Registrar)
	if !ok {
		return
	}
	w.names.Register(ctx, channel, w.cfg.StoreTimeout,
		func(ctx context.Context, program string) ([]string, error) {
			return store.Register(ctx, channel, program)
		},
		func(program, other string) {
			w.cfg.Logger.Warn("command: another program executes effects of the same channel: each effect is "+
				"executed by one of the two; give one of them another channel",
				"channel", channel, "program", program, "other_program", other)
		})
}

const registerLimit = time.Second

// register registers this program for the command's type with the store, before the first command
// and twice a day. RunTx does not: the transaction of its caller may hold the only connection.
func (c *Commands) register(ctx context.Context, scope string) {
	c.names.Register(ctx, scope, registerLimit,
		func(ctx context.Context, program string) ([]string, error) {
			return c.runner.Register(ctx, scope, program)
		},
		func(program, other string) {
			core.DefaultLogger().Warn("command: another program runs commands of the same type: each command is run "+
				"by one of the two, and the other gets its result; give one of them another type",
				"component", "command", "scope", scope, "program", program, "other_program", other)
		})
}
