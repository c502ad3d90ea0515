package sqlcommand

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/once"
)

var _ once.Registrar = (*Store)(nil)

// Register implements once.Registrar: it writes that the program executes the effects of the channel
// now, and returns the other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, channel, program string) (others []string, err error) {
	return s.db.RegisterProgram(ctx, s.sql.register, s.sql.others, channel, program)
}

// Shared returns, by channel, the programs of the last week where there is more than one. Most often
// that is a mistake: each effect is executed by one of them.
func (s *Store) Shared(ctx context.Context) (programs map[string][]string, err error) {
	return s.db.SharedPrograms(ctx, s.sql.shared)
}
