package sqloutbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// archivePage is a cleanup of a page whose old rows go through the hook, in parts. If the hook
// fails, its part and later parts stay, and the error leaves the walk before the page.
func (c cleaning) archivePage(ctx context.Context, db sweeper, after core.RowID, limit int) (page, error) {
	old, found, err := db.archivable(ctx, c.keep, after, limit)
	if err != nil {
		return page{}, err
	}
	for len(old) > 0 {
		n := archivePart(old)
		ids := make([]core.RowID, n)
		for i := range ids {
			ids[i] = old[i].id
		}
		deleted, err := c.archivePart(ctx, db, ids)
		found.deleted += deleted
		if err != nil {
			return found, err
		}
		if old = old[n:]; len(old) > 0 && !time.Now().Before(c.end) {
			found.last, found.cut = ids[n-1], true
			break
		}
	}
	return found, nil
}

// archivePart returns how many rows the hook gets at once.
func archivePart(old []archivable) (n int) {
	var bytes int64
	for n < min(len(old), core.ArchiveRows) {
		if bytes += old[n].bytes; n > 0 && bytes > core.ArchiveBytes {
			break
		}
		n++
	}
	return n
}

// errHook stands for an error of the hook in the transaction of the rows: the hook's own error must
// not be mistaken for an error of this database, after which the transaction would be repeated.
var errHook = errors.New("the hook failed")

func (c cleaning) archivePart(ctx context.Context, db sweeper, ids []core.RowID) (deleted int, err error) {
	var failed error
	deleted, err = db.archive(ctx, c.keep, ids, func(ctx context.Context, rows []core.ArchivedEvent) error {
		if failed = c.hook(ctx, rows); failed != nil {
			return errHook
		}
		return nil
	})
	if failed != nil {
		return 0, fmt.Errorf("sqloutbox: archive %d rows: %w", len(ids), failed)
	}
	return deleted, err
}

// archivedColumns follow eventColumns when rows are archived.
const archivedColumns = `, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), ` +
	`COALESCE(e.last_error,''), COALESCE(e.receipt,''), e.replay_of, {us:e.created_at}, {us:e.done_at}`

// archivedAt are the places of the columns that must be readable: the id, the status and the times.
var archivedAt = []int{0, 16, 23, 24}

// archivedScan reads eventColumns and archivedColumns.
type archivedScan struct {
	eventScan
	a              core.ArchivedEvent
	status         int64
	replayOf       outboxsql.ID
	created, ended int64
}

func (s *archivedScan) archived(res core.Rows) (core.ArchivedEvent, error) {
	var err error
	s.damage, err = outboxsql.Scan(res, append(s.dest(), &s.status, &s.a.Attempts, &s.a.LostClaims, &s.a.ErrorCode,
		&s.a.Error, &s.a.Receipt, &s.replayOf, &s.created, &s.ended), archivedAt...)
	if err != nil {
		return core.ArchivedEvent{}, err
	}
	a := s.a
	a.Event, a.Err = s.event()
	a.ID, a.KeyID, a.KeySeq, a.ReplayOf = core.RowID(s.id), core.KeyID(s.lane), s.keySeq, core.RowID(s.replayOf)
	a.Discarded = s.status == statusDiscarded
	a.CreatedAt, a.EndedAt = time.UnixMicro(s.created).UTC(), time.UnixMicro(s.ended).UTC()
	return a, nil
}

const statusDiscarded = 4

// readArchived reads rows that are archived.
func readArchived(ctx context.Context, q sqlkit.Querier, text string, args []any,
) (rows []core.ArchivedEvent, ids []core.RowID, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var s archivedScan
		a, err := s.archived(res)
		rows, ids = append(rows, a), append(ids, a.ID)
		return err
	})
	return rows, ids, err
}

// readArchivable reads the ids of a page, and how large the rows are that are old.
func readArchivable(ctx context.Context, q sqlkit.Querier, text string, args []any,
) (old []archivable, found page, err error) {
	err = sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var bytes *int64
		err := res.Scan((*outboxsql.ID)(&found.last), &bytes)
		if found.seen++; bytes != nil {
			old = append(old, archivable{found.last, *bytes})
		}
		return err
	})
	return old, found, err
}

const (
	postgresArchivable = `SELECT e.id, CASE WHEN ` + postgresOld + ` THEN octet_length(e.payload)::bigint END
FROM {event} e WHERE e.id > $3::uuid ORDER BY e.id LIMIT $4::bigint`
	postgresArchiveRows = `SELECT ` + eventColumns + archivedColumns + ` FROM {event} e
WHERE e.id = ANY ($3::uuid[]) AND ` + postgresOld + ` ORDER BY e.id FOR UPDATE SKIP LOCKED`
	postgresArchiveDelete = `DELETE FROM {event} e WHERE e.id = ANY ($1::uuid[])`
)

// postgresArchive is the part of postgres that archives rows.
type postgresArchive struct {
	pool
	sql postgresArchiveStatements
}

type postgresArchiveStatements struct{ archivable, archiveRows, archiveDelete string }

// newPostgresArchiveStatements makes the statements for the table of events, or for one of its
// partitions.
func newPostgresArchiveStatements(expand func(text string) string) postgresArchiveStatements {
	return postgresArchiveStatements{
		archivable:    expand(postgresArchivable),
		archiveRows:   expand(postgresArchiveRows),
		archiveDelete: expand(postgresArchiveDelete),
	}
}

func (p postgresArchive) archivable(ctx context.Context, keep keeps, after core.RowID, limit int,
) (old []archivable, found page, err error) {
	err = p.scan(ctx, "archive", func(q sqlkit.Querier) error {
		old, found, err = readArchivable(ctx, q, p.sql.archivable, append(keep.args(), after.String(), int64(limit)))
		return err
	})
	return old, found, err
}

// archive holds the locks of the rows while the hook has them. Ended rows stay ended, so their ids
// are enough to delete them.
func (p postgresArchive) archive(ctx context.Context, keep keeps, ids []core.RowID, hook archiver,
) (deleted int, err error) {
	err = p.inTx(ctx, "archive", func(q sqlkit.Querier) error {
		deleted = 0
		if _, err := q.Exec(ctx, postgresPlanner); err != nil { // for both statements, see scan
			return err
		}
		rows, ids, err := readArchived(ctx, q, p.sql.archiveRows, append(keep.args(), outboxsql.UUIDArray(ids)))
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := hook(ctx, rows); err != nil {
			return err
		}
		n, err := q.Exec(ctx, p.sql.archiveDelete, outboxsql.UUIDArray(ids))
		deleted = int(n)
		return err
	})
	return deleted, err
}

func (w *rowwise) archivable(ctx context.Context, keep keeps, after core.RowID, limit int,
) (old []archivable, found page, err error) {
	err = w.single(ctx, "archive", func(q sqlkit.Querier) error {
		old, found, err = readArchivable(ctx, q, w.sql.archivable, append(keep.args(), after[:], limit))
		return err
	})
	return old, found, err
}

// archive holds the locks of the rows while the hook has them, where that holds up nobody else. On
// SQLite a transaction that writes would stop every other one: the rows are read before the hook,
// and deleted after it if they are still old.
func (w *rowwise) archive(ctx context.Context, keep keeps, ids []core.RowID, hook archiver) (deleted int, err error) {
	read := func(q sqlkit.Querier) ([]core.ArchivedEvent, []core.RowID, error) {
		return readArchived(ctx, q, w.sql.archiveRows.text(len(ids)), outboxsql.IDArgs(ids, keep.args()...))
	}
	if !w.locks {
		var rows []core.ArchivedEvent
		var found []core.RowID
		err = w.single(ctx, "archive", func(q sqlkit.Querier) (err error) {
			rows, found, err = read(q)
			return err
		})
		if err != nil || len(rows) == 0 {
			return 0, err
		}
		if err := hook(ctx, rows); err != nil { // without a connection: the pool may have a single one
			return 0, err
		}
		err = w.inTx(ctx, "archive", func(q sqlkit.Querier) error {
			deleted, err = w.deleteOld(ctx, q, keep, found)
			return err
		})
		return deleted, err
	}
	err = w.inTx(ctx, "archive", func(q sqlkit.Querier) error {
		deleted = 0
		rows, found, err := read(q)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := hook(ctx, rows); err != nil {
			return err
		}
		deleted, err = w.deleteOld(ctx, q, keep, found)
		return err
	})
	return deleted, err
}

// deleteOld deletes at most chunkRows rows.
func (w *rowwise) deleteOld(ctx context.Context, q sqlkit.Querier, keep keeps, ids []core.RowID) (int, error) {
	n, err := q.Exec(ctx, w.sql.cleanup.text(len(ids)), outboxsql.IDArgs(ids, keep.args()...)...)
	return int(n), err
}
