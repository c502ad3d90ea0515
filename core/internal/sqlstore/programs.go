package sqlstore

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// ProgramMemory is how long a table remembers that a program uses a name. Programs say so again at
// their start and twice a day.
const ProgramMemory = 7 * 24 * time.Hour

// maxProgram is the size of the column of programs, in bytes.
const maxProgram = 255

// RegisterProgram writes, with the text register, that the program uses the name now. It returns
// what the text others finds: the other programs that have said so within ProgramMemory.
func (s *Store) RegisterProgram(ctx context.Context, register, others, name, program string) (all []string, err error) {
	program = program[:min(len(program), maxProgram)]
	err = s.InTx(ctx, "register a program", func(q sqlkit.Querier) error {
		all = nil
		if _, err := q.Exec(ctx, register, name, program); err != nil {
			return err
		}
		args := []any{name, program, ProgramMemory.Microseconds()}
		return sqlkit.EachRow(ctx, q, others, args, func(rows core.Rows) error {
			var other string
			err := rows.Scan(&other)
			all = append(all, other)
			return err
		})
	})
	return all, err
}

// SharedPrograms returns what the text shared finds: by name, the programs of ProgramMemory where
// there is more than one.
func (s *Store) SharedPrograms(ctx context.Context, shared string) (programs map[string][]string, err error) {
	memory := ProgramMemory.Microseconds()
	err = s.InTx(ctx, "find shared names", func(q sqlkit.Querier) error {
		programs = map[string][]string{}
		return sqlkit.EachRow(ctx, q, shared, []any{memory, memory}, func(rows core.Rows) error {
			var name, program string
			err := rows.Scan(&name, &program)
			programs[name] = append(programs[name], program)
			return err
		})
	})
	return programs, err
}
