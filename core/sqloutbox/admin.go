package sqloutbox

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	// Every part is ordered as its index, so that a limit ends the scan. The first row of each
	// topic is looked at because a count that stops at its limit may not reach the oldest.
	postgresBacklog = `WITH RECURSIVE topics AS (
  (SELECT e.topic FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM topics t CROSS JOIN LATERAL (SELECT e.topic FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
), blocked AS (
  (SELECT e.lane, 1 AS n FROM {event} e WHERE e.status = 3 AND e.lane IS NOT NULL ORDER BY e.lane LIMIT 1)
  UNION ALL
  SELECT b.lane, k.n + 1 FROM blocked k CROSS JOIN LATERAL (SELECT e.lane FROM {event} e
    WHERE e.status = 3 AND e.lane IS NOT NULL AND e.lane > k.lane ORDER BY e.lane LIMIT 1) b WHERE k.n < $1::bigint
), pending AS MATERIALIZED (
  (SELECT e.created_at FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic,
    e.available_at LIMIT $1::bigint)
  UNION ALL
  (SELECT e.created_at FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NOT NULL ORDER BY e.lane, e.key_seq
    LIMIT $1::bigint)
)
SELECT (SELECT count(*) FROM pending),
  (SELECT count(*) FROM (SELECT 1 FROM {event} e WHERE e.status = 3 ORDER BY e.id LIMIT $1::bigint) d),
  (SELECT count(*) FROM blocked),
  (extract(epoch from clock_timestamp() - least((SELECT min(created_at) FROM pending), (SELECT
    min(f.created_at) FROM topics t
    CROSS JOIN LATERAL (SELECT e.created_at FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL AND
      e.topic = t.topic
    ORDER BY e.available_at LIMIT 1) f)))*1000000)::bigint`

	postgresListDead = `SELECT ` + eventColumns +
		`, e.attempts, abs(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), {us:e.created_at}
FROM {event} e WHERE e.status = 3 AND e.id > $1::uuid AND ($2::text = '' OR e.topic = $2::text) AND ($3::text =
  '' OR e.event_type = $3::text)
  AND ($4::text = '' OR e.tenant_id = $4::text) ORDER BY e.id LIMIT $5::bigint`

	postgresAuditFrom = ` RETURNING e.id, e.event_id, e.topic)
INSERT INTO {audit} (action, actor, reason, row_id, event_id, topic) SELECT $2::text, $3::text, $4::text, u.id,
  u.event_id, u.topic FROM u`

	postgresRedrive = `WITH u AS (UPDATE {event} e SET status = 2, attempts = 0, lost_claims = 0, claim_no =
	  e.claim_no + 1, lease_until = NULL,
  available_at = clock_timestamp() WHERE e.id = ANY ($1::uuid[]) AND e.status = 3 AND (e.lane IS NULL OR NOT
    $5::boolean)` + postgresAuditFrom

	postgresDiscard = `WITH u AS (UPDATE {event} e SET status = 4, claim_no = e.claim_no + 1, lease_until = NULL,
	  done_at = clock_timestamp()
WHERE e.id = ANY ($1::uuid[]) AND (e.status = 3 OR e.status IN (0,2)
  AND ($5::boolean OR e.lease_until IS NULL OR e.lease_until <= statement_timestamp()))` + postgresAuditFrom

	postgresDeadForAppend = `SELECT e.id, e.event_id, e.topic, e.lane, e.key_seq FROM {event} e
WHERE e.id = ANY ($1::uuid[]) AND e.status = 3 AND e.lane IS NOT NULL ORDER BY e.id FOR UPDATE`

	copiedColumns = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
		`tenant_id, partition_key, ` +
		`lane, payload, content_type, headers, occurred_at, replay_of`

	// The copy of an event that was overtaken tells its first number, or a consumer would take it
	// for the newest.
	postgresCopied = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
		`tenant_id, partition_key, ` +
		`lane, payload, content_type, CASE WHEN headers IS NULL OR jsonb_typeof(headers) = 'object' ` +
		`THEN jsonb_build_object('` + core.HeaderFirstKeySeq + `', key_seq::text) || COALESCE(headers, '{}') ELSE ` +
		`headers END, occurred_at, replay_of`
	copiedRow = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
		`tenant_id, partition_key, ` +
		`lane, payload, content_type, {first_seq:` + core.HeaderFirstKeySeq + `}, occurred_at, replay_of`

	postgresAppend = `INSERT INTO {event} (id, key_seq, available_at, created_at, ` + copiedColumns + `)
SELECT $1::uuid, $2::bigint, clock_timestamp(), clock_timestamp(), ` + postgresCopied +
		` FROM {event} WHERE id = $3::uuid`

	postgresDiscardDead = `UPDATE {event} SET status = 4, claim_no = claim_no + 1, lease_until = NULL, done_at =
	  clock_timestamp()
WHERE id = $1::uuid AND status = 3`

	postgresAudit = `INSERT INTO {audit} (action, actor, reason, row_id, event_id, topic, new_id)
VALUES ($1::text, $2::text, $3::text, $4::uuid, $5::text, $6::text, $7::uuid)`
)

// Backlog implements core.Repository. Up to the limit of rows the oldest age is exact; beyond it,
// it is that of the rows that were counted and of the first unordered row of each topic.
func (r *Repository) Backlog(ctx context.Context, limit int) (core.Backlog, error) {
	b := core.Backlog{Limit: int64(max(limit, 0))}
	if limit <= 0 {
		return b, nil
	}
	err := r.scan(ctx, "backlog", func(q sqlkit.Querier) error {
		var age *int64
		var err error
		if r.dialect == core.Postgres {
			_, err = sqlkit.FirstRow(ctx, q, r.sql.text("backlog"), []any{b.Limit}, &b.Pending, &b.Dead, &b.BlockedKeys,
				&age)
		} else {
			age, err = r.backlogRows(ctx, q, &b)
		}
		if age != nil {
			b.OldestAge = time.Duration(max(0, *age)) * time.Microsecond
		}
		return err
	})
	b.Pending = min(b.Pending, b.Limit)
	return b, err
}

// ListDead implements core.Repository.
func (r *Repository) ListDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	if q.Limit <= 0 {
		q.Limit = 100
	}
	args := []any{q.After.String(), q.Topic, q.Type, q.TenantID, int64(min(q.Limit, 1000))}
	if r.dialect != core.Postgres {
		args = []any{q.After[:], q.Topic, q.Topic, q.Type, q.Type, q.TenantID, q.TenantID, int64(min(q.Limit, 1000))}
	}
	var dead []core.DeadEvent
	err := r.scan(ctx, "list dead", func(c sqlkit.Querier) error {
		dead = nil
		return sqlkit.EachRow(ctx, c, r.sql.text("list_dead"), args, func(res core.Rows) error {
			var s eventScan
			var d core.DeadEvent
			var created int64
			if _, err := scanRow(res, append(s.dest(), &d.Attempts, &d.LostClaims, &d.ErrorCode, &d.Error, &created),
				0); err != nil {
				return err
			}
			d.ID, d.KeySeq, d.CreatedAt = core.RowID(s.id), s.keySeq, time.UnixMicro(created).UTC()
			d.Event, _ = s.event() // what cannot be read of it is the reason why it is dead
			dead = append(dead, d)
			return nil
		})
	})
	return dead, err
}

func checkAdmin(req core.AdminRequest) error {
	if req.Actor == "" || req.Reason == "" {
		return fmt.Errorf("sqloutbox: %w: Actor and Reason are required", core.ErrInvalidRequest)
	}
	return nil
}

// adminChunk is how many rows a person's request changes in one transaction.
const adminChunk = 500

// sortedIDs returns the ids in ascending order, each once.
func sortedIDs(ids []core.RowID) []core.RowID {
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b core.RowID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}

// Redrive implements core.Repository.
func (r *Repository) Redrive(ctx context.Context, req core.AdminRequest) (changed int, err error) {
	if err := checkAdmin(req); err != nil {
		return 0, err
	}
	for ids := range slices.Chunk(sortedIDs(req.IDs), adminChunk) {
		n := 0
		err := r.inTx(ctx, "redrive", func(q sqlkit.Querier) (err error) {
			if n, err = r.change(ctx, q, "redrive", ids, req, req.SkipDead); err != nil || !req.SkipDead {
				return err
			}
			appended, err := r.appendDead(ctx, q, ids, req)
			n += appended
			return err
		})
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// Discard implements core.Repository.
func (r *Repository) Discard(ctx context.Context, req core.AdminRequest) (changed int, err error) {
	if err := checkAdmin(req); err != nil {
		return 0, err
	}
	for ids := range slices.Chunk(sortedIDs(req.IDs), adminChunk) {
		n := 0
		err := r.inTx(ctx, "discard", func(q sqlkit.Querier) (err error) {
			n, err = r.change(ctx, q, "discard", ids, req, req.Force)
			return err
		})
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// change runs an audited change of rows.
func (r *Repository) change(ctx context.Context, q sqlkit.Querier, action string, ids []core.RowID,
	req core.AdminRequest, flag bool,
) (int, error) {
	if r.dialect != core.Postgres {
		return r.changeRows(ctx, q, action, ids, req, flag)
	}
	n, err := q.Exec(ctx, r.sql.text(action), uuidArray(ids), action, req.Actor, req.Reason, flag)
	return int(n), err
}

// deadRow is a dead row that is appended to its lane again.
type deadRow struct {
	id, newID core.RowID
	lane      core.KeyID
	keySeq    int64
	eventID   string
	topic     string
}

// appendDead gives dead rows of lanes that went on a new row at the end of their lane and discards
// the old one. Like every writer of a lane it takes the key rows in ascending order.
func (r *Repository) appendDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID,
	req core.AdminRequest,
) (int, error) {
	rows, err := r.lockDead(ctx, q, ids)
	if err != nil {
		return 0, err
	}
	slices.SortFunc(rows, func(a, b deadRow) int {
		if c := bytes.Compare(a.lane[:], b.lane[:]); c != 0 {
			return c
		}
		return int(min(1, max(-1, a.keySeq-b.keySeq)))
	})
	for _, d := range rows {
		if d.newID, err = core.FreshRowID(d.eventID); err != nil {
			return 0, err
		}
		if err := r.appendOne(ctx, q, d, req); err != nil {
			return 0, err
		}
	}
	return len(rows), nil
}

func (r *Repository) lockDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID) ([]deadRow, error) {
	var rows []deadRow
	text, args := r.sql.text("dead_for_append"), []any{uuidArray(ids)}
	if r.dialect != core.Postgres {
		text, args = r.withIDs("dead_for_append", ids), idArgs(ids)
	}
	err := sqlkit.EachRow(ctx, q, text, args, func(res core.Rows) error {
		var d deadRow
		var id, lane id16
		err := res.Scan(&id, &d.eventID, &d.topic, &lane, &d.keySeq)
		d.id, d.lane = core.RowID(id), core.KeyID(lane)
		rows = append(rows, d)
		return err
	})
	return rows, err
}

func (r *Repository) appendOne(ctx context.Context, q sqlkit.Querier, d deadRow, req core.AdminRequest) error {
	var seq int64
	var err error
	if r.dialect == core.Postgres {
		_, err = sqlkit.FirstRow(ctx, q, r.sql.text("key_next"), []any{d.lane[:], d.newID.String()}, &seq)
	} else {
		seq, err = r.nextKeySeq(ctx, q, d)
	}
	if err != nil {
		return err
	}
	if _, err = q.Exec(ctx, r.sql.text("append"), r.id(d.newID), seq, r.id(d.id)); err != nil {
		return err
	}
	if _, err = q.Exec(ctx, r.sql.text("discard_dead"), r.id(d.id)); err != nil {
		return err
	}
	_, err = q.Exec(ctx, r.sql.text("audit"), "redrive", req.Actor, req.Reason, r.id(d.id), d.eventID, d.topic,
		r.id(d.newID))
	return err
}

// id is how a row id travels to the database.
func (r *Repository) id(id core.RowID) any {
	if r.dialect == core.Postgres {
		return id.String()
	}
	return id[:]
}
