package sqlonce

import (
	"context"

	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlstore"
	"github.com/ormoutbox/ormoutbox/core/once"
)

var _ once.Registrar = (*Store)(nil)

// Register implements once.Registrar: it writes that the program uses the scope now, and returns the
// other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, scope, program string) (others []string, err error) {
	if err := (once.Key{Scope: scope, ID: "any"}).Validate(); err != nil {
		return nil, err
	}
	others, err = s.db.RegisterProgram(ctx, s.sql.register, s.sql.others, scope, program)
	if err != nil {
		return nil, err
	}
	// What is forgotten is left for the next call if that fails: others is known.
	_ = s.db.Single(ctx, "forget programs", func(q sqlkit.Querier) error {
		_, err := q.Exec(ctx, s.sql.forget, scope, sqlstore.ProgramMemory.Microseconds())
		return err
	})
	return others, nil
}

// Shared returns, by scope, the programs of the last week where there is more than one. Most often
// that is a mistake: each gets the results of the other.
func (s *Store) Shared(ctx context.Context) (programs map[string][]string, err error) {
	return s.db.SharedPrograms(ctx, s.sql.shared)
}
