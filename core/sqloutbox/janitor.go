package sqloutbox

import (
	"bytes"
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

// CollectKeys implements core.Repository. It checks that a key is empty in a statement that begins
// after the locks were granted: the snapshot of an earlier statement may be older than an event
// that was inserted in the meantime.
func (r *Repository) CollectKeys(ctx context.Context, idle time.Duration, after core.KeyID,
	limit int,
) (deleted int, next core.KeyID, err error) {
	if limit <= 0 {
		return 0, core.KeyID{}, nil
	}
	err = r.inTx(ctx, "collect keys", func(q sqlkit.Querier) error {
		deleted, next = 0, core.KeyID{}
		locked, last, seen, err := r.database.lockIdleKeys(ctx, q, idle, after, limit)
		if err != nil {
			return err
		}
		if seen == limit {
			next = last
		}
		if len(locked) == 0 {
			return nil
		}
		deleted, err = r.database.deleteEmptyKeys(ctx, q, locked)
		return err
	})
	return deleted, next, err
}

// ResetKeys implements core.Repository.
func (r *Repository) ResetKeys(ctx context.Context, actor, reason string) (changed int, err error) {
	req := core.AdminRequest{Actor: actor, Reason: reason}
	if err := outboxsql.CheckWho(req); err != nil {
		return 0, err
	}
	err = r.inTx(ctx, "reset keys", func(q sqlkit.Querier) error {
		n, err := r.database.resetKeys(ctx, q)
		if err != nil {
			return err
		}
		changed = int(n)
		return r.database.auditWhole(ctx, q, core.AuditResetKeys, "", req)
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

const (
	// postgresOld is whether a row ended long enough ago. $1 and $2 are keeps.
	postgresOld = `(e.status = 1 AND e.done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' OR
    e.status = 4 AND e.done_at < statement_timestamp() - $2::bigint * interval '1 microsecond')`

	// Ended rows stay ended, so the rows of c, which are locked, are deleted by their ids. With the
	// status repeated in the DELETE, a planner without statistics would walk all of them.
	postgresCleanup = `WITH p AS MATERIALIZED (
  SELECT e.id, ` + postgresOld + ` AS old FROM {event} e WHERE e.id > $3::uuid ORDER BY e.id LIMIT $4::bigint
), c AS MATERIALIZED (
  SELECT e.id FROM {event} e WHERE e.id = ANY (ARRAY(SELECT id FROM p WHERE old)) AND ` + postgresOld + `
  ORDER BY e.id FOR UPDATE SKIP LOCKED
), d AS (DELETE FROM {event} e WHERE e.id = ANY (ARRAY(SELECT id FROM c)) RETURNING 1)
SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM p), (SELECT id FROM p ORDER BY id DESC LIMIT 1)`

	postgresCollectLock = `WITH c AS MATERIALIZED (
  SELECT k.lane FROM {key} k WHERE k.lane > $1::bytea ORDER BY k.lane LIMIT $2::bigint
), l AS MATERIALIZED (
  SELECT k.lane FROM {key} k WHERE k.lane = ANY (ARRAY(SELECT lane FROM c)) AND k.used_at <
    statement_timestamp() - $3::bigint * interval '1 microsecond'
  ORDER BY k.lane FOR UPDATE SKIP LOCKED
) SELECT c.lane, l.lane IS NOT NULL FROM c LEFT JOIN l ON l.lane = c.lane`

	postgresCollectDelete = `DELETE FROM {key} k WHERE k.lane = ANY (ARRAY(SELECT decode(x, 'hex') FROM
	  unnest($1::text[]) x))
  AND NOT EXISTS (SELECT 1 FROM {event} e WHERE e.lane = k.lane AND e.status IN (0,2,3) AND e.lane IS NOT NULL)`

	postgresResetKeys = `UPDATE {key} k SET last_seq = greatest(k.last_seq, c.us), first_seq =
	  greatest(k.last_seq, c.us), last_id = NULL, prev_id = NULL
FROM (SELECT (extract(epoch from statement_timestamp())*1000000)::bigint AS us) c`
)

// postgresJanitor is the part of postgres that deletes rows and keys.
type postgresJanitor struct {
	pool
	sql postgresJanitorStatements
}

type postgresJanitorStatements struct{ cleanup, collectLock, collectDelete, resetKeys string }

// newPostgresJanitorStatements makes the statements for the table of events, or for one of its
// partitions.
func newPostgresJanitorStatements(expand func(text string) string) postgresJanitorStatements {
	return postgresJanitorStatements{
		cleanup:       expand(postgresCleanup),
		collectLock:   expand(postgresCollectLock),
		collectDelete: expand(postgresCollectDelete),
		resetKeys:     expand(postgresResetKeys),
	}
}

func (p postgresJanitor) cleanup(ctx context.Context, keep keeps, after core.RowID, limit int,
) (found page, err error) {
	err = p.scan(ctx, "cleanup", func(q sqlkit.Querier) error {
		found = page{}
		args := append(keep.args(), after.String(), int64(limit))
		_, err := sqlkit.FirstRow(ctx, q, p.sql.cleanup, args, &found.deleted, &found.seen,
			(*outboxsql.ID)(&found.last))
		return err
	})
	return found, err
}

func (p postgresJanitor) lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID,
	limit int,
) (locked []core.KeyID, last core.KeyID, seen int, err error) {
	// for both statements of the transaction, see scan
	if _, err := q.Exec(ctx, postgresPlanner); err != nil {
		return nil, core.KeyID{}, 0, err
	}
	err = sqlkit.EachRow(ctx, q, p.sql.collectLock, []any{after[:], int64(limit), micros(idle)},
		func(res core.Rows) error {
			var lane core.KeyID
			var got bool
			if err := res.Scan((*outboxsql.ID)(&lane), &got); err != nil {
				return err
			}
			if seen++; bytes.Compare(lane[:], last[:]) > 0 {
				last = lane
			}
			if got {
				locked = append(locked, lane)
			}
			return nil
		})
	return locked, last, seen, err
}

func (p postgresJanitor) deleteEmptyKeys(ctx context.Context, q sqlkit.Querier, locked []core.KeyID) (int, error) {
	lanes := column(locked, func(l *core.KeyID) string { return hex.EncodeToString(l[:]) })
	n, err := q.Exec(ctx, p.sql.collectDelete, lanes)
	return int(n), err
}

func (p postgresJanitor) resetKeys(ctx context.Context, q sqlkit.Querier) (int64, error) {
	return q.Exec(ctx, p.sql.resetKeys)
}

func (w *rowwise) cleanup(ctx context.Context, keep keeps, after core.RowID, limit int,
) (found page, err error) {
	var old []core.RowID
	err = w.single(ctx, "cleanup", func(q sqlkit.Querier) error {
		found, old = page{}, nil
		return sqlkit.EachRow(ctx, q, w.sql.ended, append(keep.args(), after[:], limit), func(res core.Rows) error {
			var ended bool
			err := res.Scan((*outboxsql.ID)(&found.last), &ended)
			if found.seen++; ended {
				old = append(old, found.last)
			}
			return err
		})
	})
	if err != nil || len(old) == 0 {
		return found, err
	}
	err = w.inTx(ctx, "cleanup", func(q sqlkit.Querier) error {
		found.deleted = 0
		for chunk := range slices.Chunk(old, chunkRows) {
			n, err := w.deleteOld(ctx, q, keep, chunk)
			if err != nil {
				return err
			}
			found.deleted += n
		}
		return nil
	})
	return found, err
}

func (w *rowwise) lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID, limit int,
) (locked []core.KeyID, last core.KeyID, seen int, err error) {
	lanes, err := readLanes(ctx, q, w.sql.keys, []any{after[:], limit})
	if err != nil || len(lanes) == 0 {
		return nil, core.KeyID{}, 0, err
	}
	for chunk := range slices.Chunk(lanes, chunkRows) {
		got, err := readLanes(ctx, q, w.sql.collectLock.text(len(chunk)), outboxsql.IDArgs(chunk, micros(idle)))
		if err != nil {
			return nil, core.KeyID{}, 0, err
		}
		locked = append(locked, got...)
	}
	return locked, lanes[len(lanes)-1], len(lanes), err
}

func (w *rowwise) deleteEmptyKeys(ctx context.Context, q sqlkit.Querier, locked []core.KeyID) (deleted int, err error) {
	for chunk := range slices.Chunk(locked, chunkRows) {
		empty, err := readLanes(ctx, q, w.sql.collectEmpty.text(len(chunk)), outboxsql.IDArgs(chunk))
		if err != nil {
			return 0, err
		}
		if len(empty) == 0 {
			continue
		}
		n, err := q.Exec(ctx, w.sql.collectDelete.text(len(empty)), outboxsql.IDArgs(empty)...)
		if err != nil {
			return 0, err
		}
		deleted += int(n)
	}
	return deleted, nil
}

func readLanes(ctx context.Context, q sqlkit.Querier, text string, args []any) ([]core.KeyID, error) {
	return sqlkit.Rows(ctx, q, text, args, func(res core.Rows) (lane core.KeyID, err error) {
		err = res.Scan((*outboxsql.ID)(&lane))
		return lane, err
	})
}

func (w *rowwise) resetKeys(ctx context.Context, q sqlkit.Querier) (int64, error) {
	return q.Exec(ctx, w.sql.resetKeys)
}

func (w *rowwise) auditWhole(ctx context.Context, q sqlkit.Querier, action, topic string,
	req core.AdminRequest,
) error {
	var none core.RowID
	_, err := q.Exec(ctx, w.sql.audit, action, req.Actor, req.Reason, none[:], "", topic, nil)
	return err
}
