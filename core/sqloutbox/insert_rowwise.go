package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// insert writes the key rows and then the events. After a refused statement the earlier ones stay,
// so they are undone under the locks that the transaction holds.
func (w *rowwise) insert(ctx context.Context, tx core.Tx, b *batch) error {
	statements, err := w.joined(ctx, tx)
	if err != nil {
		return err
	}
	if err := b.upsertKeys(ctx, tx, statements); err != nil {
		return err
	}
	written := 0
	err = b.chunks(func(rows []int) error {
		text, args := w.insertText(statements, b, rows)
		n, err := tx.Exec(ctx, text, args...)
		if err != nil {
			return err
		}
		if n != int64(len(rows)) { // MariaDB: the statement found no transaction
			return sqlkit.ErrEnded
		}
		written += len(rows)
		return nil
	})
	if err == nil || !sqlerr.MySQLConstraint(err) && !sqlerr.SQLiteConstraint(err) {
		return err
	}
	if uerr := w.undo(ctx, tx, b, written); uerr != nil {
		return errtext.Errorf("%w: %w", core.ErrTxAborted, errors.Join(insertError(err), uerr))
	}
	return err
}

// upsertKeys takes the numbers of all lanes, each lane once.
func (b *batch) upsertKeys(ctx context.Context, tx core.Tx, statements *inserts) error {
	for lanes := range slices.Chunk(b.lanes, chunkLanes) {
		args := make([]any, 0, 3*len(lanes))
		for i := range lanes {
			args = append(args, lanes[i].lane[:], int64(len(lanes[i].rows)-1), lanes[i].last[:])
		}
		read := 0
		show := func(res core.Rows) error {
			var lane, prev outboxsql.ID
			var last, first int64
			if err := res.Scan(&lane, &last, &first, &prev); err != nil {
				return err
			}
			read++
			use := b.use(core.KeyID(lane))
			use.lastSeq, use.prev = last, core.RowID(prev)
			b.number(use, first)
			return nil
		}
		if err := statements.upsert(ctx, tx, len(lanes), args, show); err != nil {
			return err
		}
		if read != len(lanes) {
			return sqlkit.ErrEnded
		}
	}
	return nil
}

func (w *rowwise) rowArgs(b *batch, rows []int) []any {
	args := make([]any, 0, 22*len(rows))
	for _, i := range rows {
		row := &b.req.Rows[i]
		e := &row.Event
		var keySeq, claimedBy, lease any
		claimNo := int64(0)
		if !row.KeyID.IsZero() {
			keySeq = b.places[i].KeySeq
		}
		if row.Hot {
			claimNo, claimedBy, lease = b.req.ClaimNo, b.req.Node, micros(b.req.Lease)
		}
		if row.ByLog {
			claimedBy = core.LogReader
		}
		args = append(args, row.ID[:], e.ID, e.Type, e.SchemaVersion, e.Topic, orNil(e.AggregateType),
			orNil(e.AggregateID),
			e.AggregateVersion, orNil(e.TenantID), orNil(e.Key), bytesOf(row.KeyID), keySeq, notNil(e.Payload),
			orNil(e.ContentType), b.header[i], claimNo, claimedBy, lease, micros(e.Delay), w.occurred(e.OccurredAt))
		if b.byLog {
			args = append(args, b2i(row.ByLog), b2i(row.ByLog))
		}
	}
	return args
}

// undo removes the rows that the call wrote before the refused statement. The key rows are
// unchanged, because the transaction holds their locks.
func (w *rowwise) undo(ctx context.Context, tx core.Tx, b *batch, written int) error {
	for rows := range slices.Chunk(b.order[:written], chunkRows) {
		ids := make([]any, len(rows))
		for i, row := range rows {
			ids[i] = b.req.Rows[row].ID[:]
		}
		if err := mustChange(ctx, tx, len(ids), w.sql.undoEvents.text(len(ids)), ids...); err != nil {
			return err
		}
	}
	for i := range b.lanes {
		use := &b.lanes[i]
		var err error
		if use.opened {
			err = mustChange(ctx, tx, 1, w.sql.undoFirst, use.lane[:])
		} else {
			err = mustChange(ctx, tx, 1, w.sql.undoNext,
				len(use.rows), bytesOf(use.prev), use.lane[:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func mustChange(ctx context.Context, tx core.Tx, want int, text string, args ...any) error {
	n, err := tx.Exec(ctx, text, args...)
	if err == nil && n != int64(want) {
		err = fmt.Errorf("changed %d rows, want %d", n, want)
	}
	return err
}

// insertOneRow returns the INSERT of one event, which most transactions have: it names only the
// columns that the event has. Its parameters depend on the shape, see shapeOf, with the lane and
// the number as the place.
func insertOneRow(s shape) string {
	columns, values := oneRow(s)
	return "INSERT INTO {event} (" + columns + ") VALUES (" + values + ")"
}

// mariadbInsertOne writes nothing outside a transaction; see mariadbKeys.
func mariadbInsertOne(s shape) string {
	columns, values := oneRow(s)
	return "INSERT INTO {event} (" + columns + ") SELECT " + values + " FROM DUAL WHERE @@in_transaction = 1"
}

func oneRow(s shape) (columns, values string) {
	c := []string{"id", "event_id", "event_type", "topic", "payload", "occurred_at"}
	v := []string{"?", "?", "?", "?", "?", "?"}
	add := func(column, value string) { c, v = append(c, column), append(v, value) }
	if s.has(shapeHot) {
		add("claim_no", "?")
		add("claimed_by", "?")
		add("lease_until", "{in}")
	}
	if s.has(shapeByLog) {
		add("status", "1")
		add("claimed_by", byLog)
		add("done_at", "{now}")
	}
	if s.has(shapeDelayed) {
		add("available_at", "{in}")
	} else {
		add("available_at", "{now}")
	}
	if s.has(shapeOrdered) {
		add("lane", "?")
		add("key_seq", "?")
	}
	for i, column := range optionalColumns {
		if s.has(shapeOptional << i) {
			add(column, "?")
		}
	}
	add("created_at", "{now}")
	return strings.Join(c, ", "), strings.Join(v, ", ")
}

// insertText returns the INSERT for rows, and its arguments.
func (w *rowwise) insertText(statements *inserts, b *batch, rows []int) (text string, args []any) {
	if len(rows) > 1 {
		if b.byLog {
			return statements.logged.text(len(rows)), w.rowArgs(b, rows)
		}
		return statements.events.text(len(rows)), w.rowArgs(b, rows)
	}
	row := &b.req.Rows[rows[0]]
	s, args := shapeOf(row, &b.req, b.header[rows[0]], row.ID[:], w.occurred(row.Event.OccurredAt),
		row.KeyID[:], b.places[rows[0]].KeySeq)
	return statements.event.text(s), args
}

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
