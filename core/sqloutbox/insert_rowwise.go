package sqloutbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/errtext"
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
	for start := 0; start < len(b.lanes); start += chunkLanes {
		lanes := b.lanes[start:min(start+chunkLanes, len(b.lanes))]
		args := make([]any, 0, 3*len(lanes))
		for i := range lanes {
			args = append(args, lanes[i].lane[:], int64(len(lanes[i].rows)-1), lanes[i].last[:])
		}
		read := 0
		show := func(res core.Rows) error {
			var lane, prev id16
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
	for start := 0; start < written; start += chunkRows {
		rows := b.order[start:min(start+chunkRows, written)]
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
