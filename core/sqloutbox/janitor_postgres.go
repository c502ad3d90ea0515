package sqloutbox

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

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

func (p *postgres) cleanup(ctx context.Context, keep keeps, after core.RowID, limit int,
) (found page, err error) {
	err = p.scan(ctx, "cleanup", func(q sqlkit.Querier) error {
		found = page{}
		var last id16
		args := append(keep.args(), after.String(), int64(limit))
		_, err := sqlkit.FirstRow(ctx, q, p.sql.cleanup, args, &found.deleted, &found.seen, &last)
		found.last = core.RowID(last)
		return err
	})
	return found, err
}

func (p *postgres) lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID, limit int,
) (locked []core.KeyID, last core.KeyID, seen int, err error) {
	// for both statements of the transaction, see scan
	if _, err := q.Exec(ctx, p.sql.planner); err != nil {
		return nil, core.KeyID{}, 0, err
	}
	err = sqlkit.EachRow(ctx, q, p.sql.collectLock, []any{after[:], int64(limit), micros(idle)},
		func(res core.Rows) error {
			var lane id16
			var got bool
			if err := res.Scan(&lane, &got); err != nil {
				return err
			}
			seen++
			if l := core.KeyID(lane); string(l[:]) > string(last[:]) {
				last = l
			}
			if got {
				locked = append(locked, core.KeyID(lane))
			}
			return nil
		})
	return locked, last, seen, err
}

func (p *postgres) deleteEmptyKeys(ctx context.Context, q sqlkit.Querier, locked []core.KeyID) (int, error) {
	lanes := column(locked, func(l *core.KeyID) string { return hex.EncodeToString(l[:]) })
	n, err := q.Exec(ctx, p.sql.collectDelete, lanes)
	return int(n), err
}

func (p *postgres) resetKeys(ctx context.Context, q sqlkit.Querier) (int64, error) {
	return q.Exec(ctx, p.sql.resetKeys)
}

func (p *postgres) auditWhole(ctx context.Context, q sqlkit.Querier, action, topic string,
	req core.AdminRequest,
) error {
	_, err := q.Exec(ctx, p.sql.audit, action, req.Actor, req.Reason, core.RowID{}.String(), "", topic, nil)
	return err
}
