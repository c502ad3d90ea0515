package walrelay

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// A standby that takes over begins a new timeline. It may lack the newest transactions of the old one,
// and its positions in the log from there on are those of other transactions. So a session ends with
// its timeline, and what it has read but not written into the row of the slot is forgotten. The next
// session begins with the row that the new primary has.

// leads is the condition on the row of the slot, for the slot $1 and the epoch $2, under which a
// session may write. Aurora has no timelines: its standbys lack nothing.
func leads(timeline int32) string {
	return fmt.Sprintf("slot = $1::text AND epoch = $2::bigint AND CASE WHEN to_regproc('aurora_version') IS NULL "+
		"THEN left(pg_walfile_name(pg_current_wal_lsn()), 8) = '%08X' ELSE true END", timeline)
}

// promoted returns the position at which the server, once a standby, has taken over. A slot that is not
// beyond it has been read by nobody since. Zero: the server has never taken over.
func (s *session) promoted(ctx context.Context) (pglogrepl.LSN, error) {
	if s.timeline == 1 {
		return 0, nil
	}
	history, err := pglogrepl.TimelineHistory(ctx, s.conn, s.timeline)
	if _, ok := errors.AsType[*pgconn.PgError](err); ok {
		return 0, nil // the file is gone
	}
	if err != nil {
		return 0, err
	}
	return lastSwitch(history.Content)
}

// lastSwitch returns the position of the last line of a timeline history file: the number of the
// timeline that ended, the position, and the reason.
func lastSwitch(history []byte) (at pglogrepl.LSN, err error) {
	for line := range bytes.Lines(history) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || fields[0][0] == '#' {
			continue
		}
		if at, err = pglogrepl.ParseLSN(string(fields[1])); err != nil {
			return 0, fmt.Errorf("walrelay: timeline history: %w", err)
		}
	}
	return at, nil
}
