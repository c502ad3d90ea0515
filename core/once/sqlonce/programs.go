package sqlonce

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/once"
)

var _ once.Registrar = (*Store)(nil)

// programMemory is how long the table remembers that a program uses a scope.
const programMemory = 7 * 24 * time.Hour

// Register implements once.Registrar: it writes that the program uses the scope now, and returns the
// other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, scope, program string) (others []string, err error) {
	if err := (once.Key{Scope: scope, ID: "any"}).Validate(); err != nil {
		return nil, err
	}
	program = program[:min(len(program), 255)]
	week := programMemory.Microseconds()
	err = s.db.InTx(ctx, "register a scope", func(q sqlkit.Querier) error {
		others = nil
		if _, err := q.Exec(ctx, s.sql.register, scope, program); err != nil {
			return err
		}
		return sqlkit.EachRow(ctx, q, s.sql.others, []any{scope, program, week}, func(rows core.Rows) error {
			var other string
			err := rows.Scan(&other)
			others = append(others, other)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	// What is forgotten is left for the next call if that fails: others is known.
	_ = s.db.Single(ctx, "forget programs", func(q sqlkit.Querier) error {
		_, err := q.Exec(ctx, s.sql.forget, scope, week)
		return err
	})
	return others, nil
}

// Shared returns, by scope, the programs of the last week where there is more than one. Most often
// that is a mistake: each gets the results of the other.
func (s *Store) Shared(ctx context.Context) (programs map[string][]string, err error) {
	week := programMemory.Microseconds()
	err = s.db.InTx(ctx, "find shared scopes", func(q sqlkit.Querier) error {
		programs = map[string][]string{}
		return sqlkit.EachRow(ctx, q, s.sql.shared, []any{week, week}, func(rows core.Rows) error {
			var scope, program string
			err := rows.Scan(&scope, &program)
			programs[scope] = append(programs[scope], program)
			return err
		})
	})
	return programs, err
}
