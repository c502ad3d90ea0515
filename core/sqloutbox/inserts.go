package sqloutbox

import (
	"context"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// inserts are the statements of Insert.
type inserts struct {
	event  *shaped // writes one event
	events *sized  // writes n events, more than one
	logged *sized  // the same, if a reader of the log publishes some of them
	keys   *sized  // the upsert of n key rows
	// keyRead reads n key rows back. It is nil if the upsert returns them.
	keyRead *sized
}

const (
	keyHead      = "INSERT INTO {key} (lane, last_seq, first_seq, last_id, used_at) "
	keyRow       = "(?, {clock}+?, {clock}, ?, {now})" // a new row starts at the clock
	keyReturning = " RETURNING lane, last_seq, first_seq, prev_id"

	eventRow = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {in}, {in}, ?, {now}"
)

func keyRead(n int) string {
	return "SELECT lane, last_seq, first_seq, prev_id FROM {key} WHERE lane IN (" + sqlkit.List(n) + ")"
}

// valuesInsert returns the INSERT of n events.
func valuesInsert(n int) string {
	return "INSERT INTO {event} (" + insertColumns + ") VALUES " + repeat("("+eventRow+")", n)
}

// valuesLogged is valuesInsert with the columns of loggedColumns.
func valuesLogged(n int) string {
	return "INSERT INTO {event} (" + insertColumns + loggedColumns + ") VALUES " + repeat("("+eventRow+loggedRow+")", n)
}

const (
	// loggedColumns are the further columns of a batch that has rows which a reader of the log
	// publishes. loggedRow has two parameters, each of them 1 for such a row, else 0.
	loggedColumns = ", status, done_at"
	loggedRow     = ", ?, CASE WHEN ? = 1 THEN {now} END"
)

func repeat(row string, n int) string { return strings.Repeat(row+", ", n-1) + row }

// upsert writes n key rows and calls show with each of them. args are three for each row: its lane,
// how many numbers it gives away less one, and the id of the last event.
func (s *inserts) upsert(ctx context.Context, q sqlkit.Querier, n int, args []any, show func(core.Rows) error) error {
	if s.keyRead == nil {
		return sqlkit.EachRow(ctx, q, s.keys.text(n), args, show)
	}
	if _, err := q.Exec(ctx, s.keys.text(n), args...); err != nil {
		return err
	}
	lanes := make([]any, n)
	for i := range lanes {
		lanes[i] = args[3*i]
	}
	return sqlkit.EachRow(ctx, q, s.keyRead.text(n), lanes, show)
}
