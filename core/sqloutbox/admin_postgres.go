package sqloutbox

import (
	"context"
	"time"

	"github.com/ormoutbox/ormoutbox/core"
	"github.com/ormoutbox/ormoutbox/core/internal/outboxsql"
	"github.com/ormoutbox/ormoutbox/core/internal/sqlkit"
)

const (
	// Every part is ordered as its index, so that a limit ends the scan. It bounds the rows that are
	// looked at: the index of keys has dead rows too, and a limit of open ones might read over all of
	// them. The first row of each topic is included, because a count that stops at its limit may not
	// reach the oldest row.
	postgresBacklog = `WITH RECURSIVE topics AS (
  (SELECT e.topic FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM topics t CROSS JOIN LATERAL (SELECT e.topic FROM {event} e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
), dead AS MATERIALIZED (
  SELECT e.lane FROM {event} e WHERE e.status = 3 ORDER BY e.id LIMIT $1::bigint
), ready AS MATERIALIZED (
  SELECT e.created_at FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic,
    e.available_at LIMIT $1::bigint
), keyed AS MATERIALIZED (
  SELECT e.status, e.created_at FROM {event} e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq LIMIT $1::bigint
), pending AS MATERIALIZED (
  SELECT created_at FROM ready UNION ALL SELECT created_at FROM keyed WHERE status <> 3
)
SELECT (SELECT count(*) FROM pending), (SELECT count(*) FROM dead), (SELECT count(DISTINCT lane) FROM dead),
  greatest((SELECT count(*) FROM ready), (SELECT count(*) FROM keyed), (SELECT count(*) FROM dead)),
  (SELECT {clock} - {us:p.first} FROM (SELECT least((SELECT min(created_at) FROM pending), (SELECT
    min(f.created_at) FROM topics t
    CROSS JOIN LATERAL (SELECT e.created_at FROM {event} e WHERE e.status IN (0,2) AND e.lane IS NULL AND
      e.topic = t.topic
    ORDER BY e.available_at LIMIT 1) f)) AS first) p)`

	postgresListDead = `SELECT ` + eventColumns +
		`, e.attempts, abs(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), {us:e.created_at}
FROM {event} e WHERE e.status = 3 AND e.id > $1::uuid AND ($2::text = '' OR e.topic = $2::text) AND ($3::text =
  '' OR e.event_type = $3::text)
  AND ($4::text = '' OR e.tenant_id = $4::text) ORDER BY e.id LIMIT $5::bigint`

	postgresAuditFrom = ` RETURNING e.id, e.event_id, e.topic)
INSERT INTO {audit} (action, actor, reason, row_id, event_id, topic) SELECT $2::text, $3::text, $4::text, u.id,
  u.event_id, u.topic FROM u`

	postgresRedrive = `WITH u AS (UPDATE {event} e SET status = 2, attempts = 0, lost_claims = 0,
	  claimed_by = NULL, claim_no = 0, lease_until = NULL,
  available_at = clock_timestamp() WHERE e.id = ANY ($1::uuid[]) AND e.status = 3 AND (e.key_seq IS NULL OR
    e.lane IS NOT NULL AND NOT $5::boolean)` + postgresAuditFrom

	postgresDiscard = `WITH u AS (UPDATE {event} e SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL,
	  done_at = clock_timestamp()
WHERE e.id = ANY ($1::uuid[]) AND (e.status = 3 OR e.status IN (0,2)
  AND ($5::boolean OR e.lease_until IS NULL OR e.lease_until <= statement_timestamp()))` + postgresAuditFrom

	postgresDeadForAppend = `SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  e.key_seq, e.replay_of IS NOT NULL FROM {event} e
WHERE e.id = ANY ($1::uuid[]) AND e.status = 3 AND e.key_seq IS NOT NULL AND ($2::boolean OR e.lane IS NULL)
ORDER BY e.id FOR UPDATE`

	// The copy of an overtaken event carries its first number. Otherwise a consumer would take it
	// for the newest.
	postgresCopied = `event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, ` +
		`tenant_id, partition_key, $4::bytea, payload, content_type, CASE WHEN headers IS NULL OR ` +
		`jsonb_typeof(headers) = 'object' THEN jsonb_build_object('` + core.HeaderFirstKeySeq +
		`', key_seq::text) || COALESCE(headers, '{}') ELSE headers END, occurred_at, replay_of`

	postgresAppend = `INSERT INTO {event} (id, key_seq, available_at, created_at, failures,
  ` + outboxsql.CopiedColumns + `)
SELECT $1::uuid, $2::bigint, clock_timestamp(), clock_timestamp(), failures, ` + postgresCopied +
		` FROM {event} WHERE id = $3::uuid`

	postgresDiscardDead = `UPDATE {event} SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL, done_at =
	  clock_timestamp()
WHERE id = $1::uuid AND status = 3`

	postgresAudit = `INSERT INTO {audit} (action, actor, reason, row_id, event_id, topic, new_id)
VALUES ($1::text, $2::text, $3::text, $4::uuid, $5::text, $6::text, $7::uuid)`
)

// postgresAdmin is the part of postgres that shows, redrives and discards events.
type postgresAdmin struct {
	pool
	sql postgresAdminStatements
}

type postgresAdminStatements struct {
	backlog, listDead, redrive, discard, deadForAppend, keyNext, append, discardDead, audit string
}

func newPostgresAdminStatements(n names) postgresAdminStatements {
	return postgresAdminStatements{
		backlog:       n.expand(postgresBacklog),
		listDead:      n.expand(postgresListDead),
		redrive:       n.expand(postgresRedrive),
		discard:       n.expand(postgresDiscard),
		deadForAppend: n.expand(postgresDeadForAppend),
		keyNext:       n.expand(postgresUpsertKey),
		append:        n.expand(postgresAppend),
		discardDead:   n.expand(postgresDiscardDead),
		audit:         n.expand(postgresAudit),
	}
}

func (p postgresAdmin) backlog(ctx context.Context, limit int64) (core.Backlog, error) {
	return sqlkit.Ask(ctx, p.scan, "backlog", func(q sqlkit.Querier) (core.Backlog, error) {
		b := core.Backlog{Limit: limit}
		var most int64
		var age *int64
		_, err := sqlkit.FirstRow(ctx, q, p.sql.backlog, []any{limit}, &b.Pending, &b.Dead, &b.BlockedKeys, &most, &age)
		b.More = most >= limit
		if age != nil {
			b.OldestAge = time.Duration(max(0, *age)) * time.Microsecond
		}
		return b, err
	})
}

func (p postgresAdmin) listDead(ctx context.Context, q core.DeadQuery) ([]core.DeadEvent, error) {
	args := []any{q.After.String(), q.Topic, q.Type, q.TenantID, int64(q.Limit)}
	return sqlkit.Ask(ctx, p.scan, "list dead", func(c sqlkit.Querier) ([]core.DeadEvent, error) {
		return readDead(ctx, c, p.sql.listDead, args)
	})
}

func (p postgresAdmin) redrive(ctx context.Context, q sqlkit.Querier, ids []core.RowID,
	req core.AdminRequest,
) (int, error) {
	n, err := q.Exec(ctx, p.sql.redrive, outboxsql.UUIDArray(ids), "redrive", req.Actor, req.Reason, req.SkipDead)
	return int(n), err
}

func (p postgresAdmin) discard(ctx context.Context, q sqlkit.Querier, ids []core.RowID,
	req core.AdminRequest,
) (int, error) {
	n, err := q.Exec(ctx, p.sql.discard, outboxsql.UUIDArray(ids), "discard", req.Actor, req.Reason, req.Force)
	return int(n), err
}

func (p postgresAdmin) lockDead(ctx context.Context, q sqlkit.Querier, ids []core.RowID, skipDead bool,
) ([]outboxsql.Source, error) {
	return outboxsql.ReadSources(ctx, q, p.sql.deadForAppend, []any{outboxsql.UUIDArray(ids), skipDead})
}

func (p postgresAdmin) appendDead(ctx context.Context, q sqlkit.Querier, d outboxsql.Source,
	req core.AdminRequest,
) error {
	seq, err := p.nextKeySeq(ctx, q, d)
	if err != nil {
		return err
	}
	if _, err := q.Exec(ctx, p.sql.append, d.NewID.String(), seq, d.ID.String(), d.Lane[:]); err != nil {
		return err
	}
	if _, err := q.Exec(ctx, p.sql.discardDead, d.ID.String()); err != nil {
		return err
	}
	return p.audit(ctx, q, "redrive", d, req)
}

func (p postgresAdmin) nextKeySeq(ctx context.Context, q sqlkit.Querier, d outboxsql.Source) (seq int64, err error) {
	_, err = sqlkit.FirstRow(ctx, q, p.sql.keyNext, []any{d.Lane[:], d.NewID.String()}, &seq)
	return seq, err
}

func (p postgresAdmin) audit(ctx context.Context, q sqlkit.Querier, action string, d outboxsql.Source,
	req core.AdminRequest,
) error {
	_, err := q.Exec(ctx, p.sql.audit, action, req.Actor, req.Reason, d.ID.String(), d.EventID, d.Topic,
		d.NewID.String())
	return err
}

func (p postgresAdmin) auditWhole(ctx context.Context, q sqlkit.Querier, action, topic string,
	req core.AdminRequest,
) error {
	_, err := q.Exec(ctx, p.sql.audit, action, req.Actor, req.Reason, core.RowID{}.String(), "", topic, nil)
	return err
}
