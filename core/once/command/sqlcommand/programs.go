package sqlcommand

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
	"github.com/ormoutbox/ormoutbox/core/once"
)

var _ once.Registrar = (*Store)(nil)

// programMemory is how long the table remembers that a program executes the effects of a channel.
const programMemory = 7 * 24 * time.Hour

// Register implements once.Registrar: it writes that the program executes the effects of the channel
// now, and returns the other programs that have done so within a week.
func (s *Store) Register(ctx context.Context, channel, program string) (others []string, err error) {
	program = program[:min(len(program), 255)]
	err = s.db.InTx(ctx, "register a channel", func(q sqlkit.Querier) error {
		others = nil
		if _, err := q.Exec(ctx, s.sql.register, channel, program); err != nil {
			return err
		}
		args := []any{channel, program, programMemory.Microseconds()}
		return sqlkit.EachRow(ctx, q, s.sql.others, args, func(rows core.Rows) error {
			var other string
			err := rows.Scan(&other)
			others = append(others, other)
			return err
		})
	})
	return others, err
}

// Shared returns, by channel, the programs of the last week where there is more than one. Most often
// that is a mistake: each effect is executed by one of them.
func (s *Store) Shared(ctx context.Context) (programs map[string][]string, err error) {
	week := programMemory.Microseconds()
	err = s.db.InTx(ctx, "find shared channels", func(q sqlkit.Querier) error {
		programs = map[string][]string{}
		return sqlkit.EachRow(ctx, q, s.sql.shared, []any{week, week}, func(rows core.Rows) error {
			var channel, program string
			err := rows.Scan(&channel, &program)
			programs[channel] = append(programs[channel], program)
			return err
		})
	})
	return programs, err
}
