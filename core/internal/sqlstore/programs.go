package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// ProgramMemory is how long a table remembers that a program uses a name. Programs register at
// their start and twice a day.
const ProgramMemory = 7 * 24 * time.Hour

// maxProgram is the size of the column of programs, in bytes.
const maxProgram = 255

// Programs are the statements about {program}, which has a name and the programs that use it.
type Programs struct{ register, others, shared string }

// Programs returns the statements. column has the name.
func (n Names) Programs(column string) Programs {
	text := func(t string) string { return n.Statement(strings.ReplaceAll(t, "NAME", column)) }
	return Programs{
		register: text("INSERT INTO {program} (NAME, program, seen_at) VALUES (?, ?, {now})" +
			n.Replace("NAME, program", "seen_at")),
		others: text("SELECT program FROM {program} WHERE NAME = ? AND program <> ? AND seen_at > {ago} " +
			"ORDER BY program"),
		shared: text("SELECT p.NAME, p.program FROM {program} p WHERE p.seen_at > {ago} AND EXISTS (SELECT 1 FROM " +
			"{program} o WHERE o.NAME = p.NAME AND o.program <> p.program AND o.seen_at > {ago}) " +
			"ORDER BY p.NAME, p.program"),
	}
}

// RegisterProgram writes that the program uses the name now. It returns the other programs that
// have registered within ProgramMemory.
func (s *Store) RegisterProgram(ctx context.Context, p Programs, name, program string) (all []string, err error) {
	program = program[:min(len(program), maxProgram)]
	err = s.InTx(ctx, "register a program", func(q sqlkit.Querier) (err error) {
		if _, err := q.Exec(ctx, p.register, name, program); err != nil {
			return err
		}
		all, err = sqlkit.Rows(ctx, q, p.others, []any{name, program, ProgramMemory.Microseconds()}, sqlkit.Text)
		return err
	})
	return all, err
}

// SharedPrograms returns, by name, the programs of ProgramMemory where there is more than one.
func (s *Store) SharedPrograms(ctx context.Context, p Programs) (programs map[string][]string, err error) {
	memory := ProgramMemory.Microseconds()
	err = s.InTx(ctx, "find shared names", func(q sqlkit.Querier) error {
		programs = map[string][]string{}
		return sqlkit.EachRow(ctx, q, p.shared, []any{memory, memory}, func(rows core.Rows) error {
			var name, program string
			err := rows.Scan(&name, &program)
			programs[name] = append(programs[name], program)
			return err
		})
	})
	return programs, err
}
