package httpkey

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
)

const registerLimit = time.Second

// register tells the store that this program serves the endpoint, before its first request with a key
// and twice a day.
func (m *Middleware) register(ctx context.Context, scope string) {
	if _, ok := core.TxFromContext(ctx); ok { // it may hold the only connection
		return
	}
	m.names.Register(ctx, scope, registerLimit,
		func(ctx context.Context, program string) ([]string, error) {
			return m.runner.Register(ctx, scope, program)
		},
		func(program, other string) {
			m.cfg.Logger.Warn("httpkey: another program keeps keys of the same endpoint in this table: a client that "+
				"sends one key to both gets the answer of the other; give one of them a table with another prefix",
				"scope", scope, "program", program, "other_program", other)
		})
}
