package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlerr"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// insertRows writes the key rows and then the events, for MariaDB, MySQL and SQLite. A refused
// statement leaves the earlier ones standing there, so they are undone under the locks that the
// transaction holds.
func (r *Repository) insertRows(ctx context.Context, tx core.Tx, b *batch) error {
	mariadb := false
	if r.dialect == core.MySQL {
		var err error
		if mariadb, err = r.isMariaDB(ctx, tx); err == nil && !mariadb {
			err = sqlkit.StillOpen(ctx, tx)
		}
		if err != nil {
			return err
		}
	}
	if err := r.upsertKeys(ctx, tx, b, mariadb); err != nil {
		return err
	}
	written := 0
	err := b.chunks(func(rows []int) error {
		text := r.sql.build("insert", len(rows), b2i(mariadb), r.rowInsert)
		n, err := tx.Exec(ctx, text, r.rowArgs(b, rows)...)
		if err != nil {
			return err
		}
		if n != int64(len(rows)) { // MariaDB: the statement found no transaction
			return fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
		}
		written += len(rows)
		return nil
	})
	if err == nil || !sqlerr.MySQLConstraint(err) && !sqlerr.SQLiteConstraint(err) {
		return err
	}
	if uerr := r.undo(ctx, tx, b, written); uerr != nil {
		return fmt.Errorf("%w: %w", core.ErrTxAborted, errors.Join(insertError(err), uerr))
	}
	return err
}

// upsertKeys takes the numbers of all lanes, each lane once.
func (r *Repository) upsertKeys(ctx context.Context, tx core.Tx, b *batch, mariadb bool) error {
	for start := 0; start < len(b.lanes); start += chunkLanes {
		lanes := b.lanes[start:min(start+chunkLanes, len(b.lanes))]
		args := make([]any, 0, 4*len(lanes))
		for i := range lanes {
			args = append(args, lanes[i].lane[:], int64(len(lanes[i].rows)-1), lanes[i].last[:])
		}
		read := 0
		scan := func(res core.Rows) error {
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
		text := r.sql.build("key", len(lanes), b2i(mariadb), r.keyUpsert)
		var err error
		if r.dialect == core.MySQL && !mariadb { // no RETURNING: read back what this transaction wrote
			if _, err = tx.Exec(ctx, text, args...); err == nil {
				ids := make([]any, len(lanes))
				for i := range lanes {
					ids[i] = lanes[i].lane[:]
				}
				back := r.sql.build("key_read", len(lanes), 0, keyRead)
				err = sqlkit.EachRow(ctx, tx, back, ids, scan)
			}
		} else {
			err = sqlkit.EachRow(ctx, tx, text, args, scan)
		}
		if err != nil {
			return err
		}
		if read != len(lanes) {
			return fmt.Errorf("%w: the database has ended it", core.ErrTxAborted)
		}
	}
	return nil
}

// keyUpsert returns the upsert of n key rows. A fresh row starts at the clock. The order of the
// assignments matters on MySQL.
func (r *Repository) keyUpsert(n, mariadb int) string {
	const head = "INSERT INTO {key} (lane, last_seq, first_seq, last_id, used_at) "
	if r.dialect == core.SQLite {
		return head + "VALUES " + repeat("(?, {clock}+?, {clock}, ?, {now})", n) +
			" ON CONFLICT (lane) DO UPDATE SET prev_id = last_id, " + "last_id = excluded.last_id, last_seq = " +
			"last_seq + excluded.last_seq - excluded.first_seq + 1, used_at = excluded.used_at " +
			"RETURNING lane, last_seq, first_seq, prev_id"
	}
	const update = " ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id), " +
		"last_seq = last_seq + VALUES(last_seq) - VALUES(first_seq) + 1, used_at = VALUES(used_at)"
	if mariadb == 0 {
		return head + "VALUES " + repeat("(?, {clock}+?, {clock}, ?, {now})", n) + update
	}
	// Outside a transaction it writes nothing: a deadlock whose error was ignored has ended the
	// caller's.
	values := "SELECT ? AS c1, {clock}+? AS c2, {clock} AS c3, ? AS c4, {now} AS c5 FROM DUAL WHERE " +
		"@@in_transaction = 1"
	if n > 1 {
		row := "SELECT CAST(? AS BINARY(16)) AS c1, {clock}+? AS c2, {clock} AS c3, CAST(? AS BINARY(16)) AS c4, " +
			"{now} AS c5"
		values = "SELECT c1, c2, c3, c4, c5 FROM (" + strings.Repeat(row+" UNION ALL ", n-1) + row +
			") v WHERE @@in_transaction = 1"
	}
	return head + values + update + " RETURNING lane, last_seq, first_seq, prev_id"
}

func keyRead(n, _ int) string {
	return "SELECT lane, last_seq, first_seq, prev_id FROM {key} WHERE lane IN (" + sqlkit.List(n) + ")"
}

func repeat(row string, n int) string { return strings.Repeat(row+", ", n-1) + row }

// rowInsert returns the INSERT of n events.
func (r *Repository) rowInsert(n, mariadb int) string {
	const head = "INSERT INTO {event} (" + insertColumns + ") "
	const row = "?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {in}, {in}, ?, {now}"
	if mariadb == 0 {
		return head + "VALUES " + repeat("("+row+")", n)
	}
	if n == 1 {
		return head + "SELECT " + row + " FROM DUAL WHERE @@in_transaction = 1"
	}
	// The driver sends texts and bytes alike as CHAR, and a union would take the blanks off their
	// ends.
	const bytes, text = "CAST(? AS BINARY)", "CAST(? AS CHAR)"
	columns := strings.Join([]string{
		bytes, text, text, "?", text, text, text, "?", text, text, bytes, "?", bytes, text, text,
		"?", text, "{in}", "{in}", text, "{now} FROM DUAL WHERE @@in_transaction = 1",
	}, ", ")
	return head + strings.Repeat("SELECT "+columns+" UNION ALL ", n-1) + "SELECT " + columns
}

const mysqlTime = "2006-01-02 15:04:05.000000"

func (r *Repository) rowArgs(b *batch, rows []int) []any {
	args := make([]any, 0, 20*len(rows))
	for _, i := range rows {
		row := &b.req.Rows[i]
		e := &row.Event
		var keySeq, claimedBy, lease any
		claimNo := int64(0)
		if !row.KeyID.IsZero() {
			keySeq = b.places[i].KeySeq
		}
		if row.Hot {
			claimNo, claimedBy, lease = 1, b.req.Node, micros(b.req.Lease)
		}
		var occurred any = e.OccurredAt.UnixMicro()
		if r.dialect == core.MySQL {
			occurred = occurredText(e.OccurredAt, mysqlTime)
		}
		args = append(args, row.ID[:], e.ID, e.Type, e.SchemaVersion, e.Topic, orNil(e.AggregateType),
			orNil(e.AggregateID),
			e.AggregateVersion, orNil(e.TenantID), orNil(e.Key), bytesOf(row.KeyID), keySeq, notNil(e.Payload),
			orNil(e.ContentType), b.header[i], claimNo, claimedBy, lease, micros(e.Delay), occurred)
	}
	return args
}

// undo takes back what the call wrote before the statement that was refused: the key rows are as
// they were, because nobody else can have touched them.
func (r *Repository) undo(ctx context.Context, tx core.Tx, b *batch, written int) error {
	for start := 0; start < written; start += chunkRows {
		rows := b.order[start:min(start+chunkRows, written)]
		ids := make([]any, len(rows))
		for i, row := range rows {
			ids[i] = b.req.Rows[row].ID[:]
		}
		if err := r.mustChange(ctx, tx, len(ids), "DELETE FROM {event} WHERE id IN ("+sqlkit.List(len(ids))+")",
			ids...); err != nil {
			return err
		}
	}
	for i := range b.lanes {
		use := &b.lanes[i]
		var err error
		if use.opened {
			err = r.mustChange(ctx, tx, 1, "DELETE FROM {key} WHERE lane = ?", use.lane[:])
		} else {
			err = r.mustChange(ctx, tx, 1, "UPDATE {key} SET last_seq = last_seq - ?, last_id = ?, prev_id = NULL "+
				"WHERE lane = ?",
				len(use.rows), bytesOf(use.prev), use.lane[:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) mustChange(ctx context.Context, tx core.Tx, want int, text string, args ...any) error {
	n, err := tx.Exec(ctx, r.names.expand(text), args...)
	if err == nil && n != int64(want) {
		err = fmt.Errorf("changed %d rows, want %d", n, want)
	}
	return err
}
