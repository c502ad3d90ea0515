package sqloutbox

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	// The rows of c are locked and final. With the status repeated in the DELETE, a planner without
	// statistics would walk all of them.
	postgresCleanup = `WITH c AS MATERIALIZED (
  SELECT e.id FROM {event} e WHERE e.status IN (1,4) AND e.done_at < statement_timestamp() - $1::bigint *
    interval '1 microsecond'
  ORDER BY e.done_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED
) DELETE FROM {event} e WHERE e.id = ANY (ARRAY(SELECT id FROM c))`

	postgresCollectLock = `WITH c AS MATERIALIZED (
  SELECT k.lane FROM {key} k WHERE k.lane > $1::bytea ORDER BY k.lane LIMIT $2::bigint
), l AS MATERIALIZED (
  SELECT k.lane FROM {key} k WHERE k.lane = ANY (ARRAY(SELECT lane FROM c)) AND k.used_at <
    statement_timestamp() - $3::bigint * interval '1 microsecond'
  ORDER BY k.lane FOR UPDATE SKIP LOCKED
) SELECT c.lane, l.lane IS NOT NULL FROM c LEFT JOIN l ON l.lane = c.lane`

	postgresCollectDelete = `DELETE FROM {key} k WHERE k.lane = ANY (ARRAY(SELECT decode(x, 'hex') FROM
	  unnest($1::text[]) x))
  AND NOT EXISTS (SELECT 1 FROM {event} e WHERE e.lane = k.lane AND e.status IN (0,2) AND e.lane IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM {event} e WHERE e.lane = k.lane AND e.status = 3 AND e.lane IS NOT NULL)`

	postgresResetKeys = `UPDATE {key} k SET last_seq = greatest(k.last_seq, c.us), first_seq =
	  greatest(k.last_seq, c.us), last_id = NULL, prev_id = NULL
FROM (SELECT (extract(epoch from statement_timestamp())*1000000)::bigint AS us) c`
)

func (p *postgres) cleanup(ctx context.Context, keep time.Duration, limit int) (deleted int, err error) {
	err = p.scan(ctx, "cleanup", func(q sqlkit.Querier) error {
		n, err := q.Exec(ctx, p.sql.cleanup, micros(keep), int64(limit))
		deleted = int(n)
		return err
	})
	return deleted, err
}

func (p *postgres) lockIdleKeys(ctx context.Context, q sqlkit.Querier, idle time.Duration, after core.KeyID, limit int,
) (locked []core.KeyID, last core.KeyID, seen int, err error) {
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
