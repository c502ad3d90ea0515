-- admin: seen
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.id = ANY ($1::uuid[]) ORDER BY e.id FOR UPDATE

-- append
INSERT INTO "app"."outbox_event" (id, key_seq, available_at, created_at, failures,
  event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT $1::uuid, $2::bigint, clock_timestamp(), clock_timestamp(), failures, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, $4::bytea, payload, content_type, CASE WHEN headers IS NULL OR jsonb_typeof(headers) = 'object' THEN jsonb_build_object('outbox_first_key_seq', key_seq::text) || COALESCE(headers, '{}') ELSE headers END, occurred_at, replay_of FROM "app"."outbox_event" WHERE id = $3::uuid

-- archivable
SELECT e.id, CASE WHEN (e.status = 1 AND e.done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' OR
    e.status = 4 AND e.done_at < statement_timestamp() - $2::bigint * interval '1 microsecond') THEN octet_length(e.payload)::bigint END
FROM "app"."outbox_event" e WHERE e.id > $3::uuid ORDER BY e.id LIMIT $4::bigint

-- archive_delete
DELETE FROM "app"."outbox_event" e WHERE e.id = ANY ($1::uuid[])

-- archive_rows
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), e.replay_of, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END FROM "app"."outbox_event" e
WHERE e.id = ANY ($3::uuid[]) AND (e.status = 1 AND e.done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' OR
    e.status = 4 AND e.done_at < statement_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY e.id FOR UPDATE SKIP LOCKED

-- audit
INSERT INTO "app"."outbox_audit" (action, actor, reason, row_id, event_id, topic, new_id)
VALUES ($1::text, $2::text, $3::text, $4::uuid, $5::text, $6::text, $7::uuid)

-- audit: count
SELECT a.action, COUNT(*) FROM "app"."outbox_audit" a WHERE a.id > $1::bigint AND a.id <= $2::bigint GROUP BY a.action

-- audit: list
SELECT a.id, CASE WHEN isfinite(a.at) THEN (extract(epoch from a.at)*1000000)::bigint END, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM "app"."outbox_audit" a WHERE a.id < $1::bigint ORDER BY a.id DESC LIMIT $2::bigint

-- audit: of_row
SELECT a.id, CASE WHEN isfinite(a.at) THEN (extract(epoch from a.at)*1000000)::bigint END, a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM "app"."outbox_audit" a WHERE a.row_id = $1::uuid AND a.id < $2::bigint ORDER BY a.id DESC LIMIT $3::bigint

-- backlog
WITH RECURSIVE topics AS (
  (SELECT e.topic FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM topics t CROSS JOIN LATERAL (SELECT e.topic FROM "app"."outbox_event" e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
), dead AS MATERIALIZED (
  SELECT e.lane FROM "app"."outbox_event" e WHERE e.status = 3 ORDER BY e.id LIMIT $1::bigint
), ready AS MATERIALIZED (
  SELECT e.created_at FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic,
    e.available_at LIMIT $1::bigint
), keyed AS MATERIALIZED (
  SELECT e.status, e.created_at FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq LIMIT $1::bigint
), pending AS MATERIALIZED (
  SELECT created_at FROM ready UNION ALL SELECT created_at FROM keyed WHERE status <> 3
)
SELECT (SELECT count(*) FROM pending), (SELECT count(*) FROM dead), (SELECT count(DISTINCT lane) FROM dead),
  greatest((SELECT count(*) FROM ready), (SELECT count(*) FROM keyed), (SELECT count(*) FROM dead)),
  (SELECT (extract(epoch from clock_timestamp())*1000000)::bigint - CASE WHEN isfinite(p.first) THEN (extract(epoch from p.first)*1000000)::bigint END FROM (SELECT least((SELECT min(created_at) FROM pending), (SELECT
    min(f.created_at) FROM topics t
    CROSS JOIN LATERAL (SELECT e.created_at FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND
      e.topic = t.topic
    ORDER BY e.available_at LIMIT 1) f)) AS first) p)

-- begin_suspect
UPDATE "app"."outbox_event" e SET
  lost_claims = CASE WHEN $4::bigint = 0 THEN -abs(e.lost_claims) ELSE abs(e.lost_claims) END,
  available_at = CASE WHEN $4::bigint = 0 THEN e.available_at
    ELSE clock_timestamp() + $4::bigint * interval '1 microsecond' END
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($2::uuid[]), 1)) a, generate_series(1, least(cardinality($2::uuid[]), 1)) b) > 0 RETURNING e.id

-- claim_heads
WITH RECURSIVE lanes AS (
  (SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok, 1 AS n, CASE WHEN (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AND COALESCE(e.tenant_id, '') <> ALL ($15::text[]) THEN (SELECT count(*) FROM (
    SELECT FROM "app"."outbox_event" r WHERE r.lane = e.lane AND r.status IN (0,2,3) AND r.lane IS NOT NULL LIMIT $16::bigint) r) ELSE 0 END AS total FROM "app"."outbox_event" e
   WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > $9::bytea ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT h.id, h.lane, h.topic, h.tenant_id, h.status, h.available_at, h.lease_until, h.ok, l.n + 1, l.total + h.found
    FROM lanes
    l CROSS JOIN LATERAL (
    SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok, CASE WHEN (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AND COALESCE(e.tenant_id, '') <> ALL ($15::text[]) THEN (SELECT count(*) FROM (
    SELECT FROM "app"."outbox_event" r WHERE r.lane = e.lane AND r.status IN (0,2,3) AND r.lane IS NOT NULL LIMIT $16::bigint) r) ELSE 0 END AS found FROM "app"."outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > CASE
      WHEN encode(substring(l.lane from 1 for 4), 'hex') = ANY ($12::text[])
        THEN substring(l.lane from 1 for 4) || '\xffffffffffffffffffffffff'::bytea
      WHEN encode(substring(l.lane from 1 for 4), 'hex') <> ALL ($11::text[])
        THEN (SELECT decode(p || '000000000000000000000000', 'hex') FROM unnest($11::text[]) p
              WHERE p COLLATE "C" > encode(substring(l.lane from 1 for 4), 'hex') ORDER BY p COLLATE "C" LIMIT 1)
      ELSE l.lane END
    ORDER BY e.lane, e.key_seq LIMIT 1) h
  WHERE l.n < $10::bigint AND l.total < $3::bigint
), heads AS MATERIALIZED (SELECT e.lane FROM lanes e WHERE e.ok AND COALESCE(e.tenant_id, '') <> ALL ($15::text[])
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($13::text[]))), cand AS MATERIALIZED (
  SELECT r.tid, r.id, h.lane, r.key_seq, r.size,
    bool_and(r.ok) OVER (PARTITION BY h.lane ORDER BY r.key_seq, r.id) AS ok
  FROM (SELECT lane FROM heads ORDER BY lane LIMIT $3::bigint) h CROSS JOIN LATERAL (
    SELECT e.ctid AS tid, e.id, e.key_seq, octet_length(e.payload) AS size, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok
    FROM "app"."outbox_event" e WHERE e.lane = h.lane AND e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq
    LIMIT (SELECT greatest($16::bigint, least($8::bigint, $3::bigint / greatest(count(*), 1))) FROM heads)) r
), sized AS MATERIALIZED (
  SELECT tid, id, lane, key_seq, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand WHERE ok WINDOW w AS
    (ORDER BY lane, key_seq, id)
), picked AS MATERIALIZED (
  SELECT tid, id, lane, key_seq FROM sized WHERE n <= $3::bigint AND (n = 1 OR total <= $5::bigint)
), held AS MATERIALIZED (
  SELECT e.ctid AS tid FROM "app"."outbox_event" e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM picked)) FOR UPDATE SKIP LOCKED
), take AS MATERIALIZED (
  SELECT tid FROM (SELECT p.tid,
    bool_and(h.tid IS NOT NULL) OVER (PARTITION BY p.lane ORDER BY p.key_seq, p.id) AS ok
    FROM picked p LEFT JOIN held h ON h.tid = p.tid) r WHERE ok
)UPDATE "app"."outbox_event" e SET claim_no = $14::bigint,
  lost_claims = abs(e.lost_claims) +
    CASE WHEN e.lease_until <= statement_timestamp() AND e.claimed_by <> $1::text AND e.lost_claims < 3 THEN 1 ELSE 0 END,
  claimed_by = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE e.ctid = ANY (ARRAY(SELECT tid FROM take)) AND e.status IN (0,2)
RETURNING e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, (SELECT (extract(epoch from clock_timestamp())*1000000)::bigint), (SELECT CASE
    WHEN (SELECT count(*) FROM heads) > $3::bigint OR (SELECT count(*) FROM sized) > (SELECT count(*) FROM picked)
      THEN (SELECT lane FROM picked ORDER BY lane DESC LIMIT 1)
    WHEN (SELECT count(*) FROM lanes) >= $10::bigint OR (SELECT max(total) FROM lanes) >= $3::bigint
      THEN (SELECT lane FROM lanes ORDER BY lane DESC LIMIT 1)
  END), (SELECT count(*) FROM lanes e WHERE e.status = 3 AND COALESCE(e.tenant_id, '') <> ALL ($15::text[])
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($13::text[])))

-- claim_heads_or_none
WITH RECURSIVE lanes AS (
  (SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok, 1 AS n, CASE WHEN (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AND COALESCE(e.tenant_id, '') <> ALL ($15::text[]) THEN (SELECT count(*) FROM (
    SELECT FROM "app"."outbox_event" r WHERE r.lane = e.lane AND r.status IN (0,2,3) AND r.lane IS NOT NULL LIMIT $16::bigint) r) ELSE 0 END AS total FROM "app"."outbox_event" e
   WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > $9::bytea ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT h.id, h.lane, h.topic, h.tenant_id, h.status, h.available_at, h.lease_until, h.ok, l.n + 1, l.total + h.found
    FROM lanes
    l CROSS JOIN LATERAL (
    SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok, CASE WHEN (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AND COALESCE(e.tenant_id, '') <> ALL ($15::text[]) THEN (SELECT count(*) FROM (
    SELECT FROM "app"."outbox_event" r WHERE r.lane = e.lane AND r.status IN (0,2,3) AND r.lane IS NOT NULL LIMIT $16::bigint) r) ELSE 0 END AS found FROM "app"."outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > CASE
      WHEN encode(substring(l.lane from 1 for 4), 'hex') = ANY ($12::text[])
        THEN substring(l.lane from 1 for 4) || '\xffffffffffffffffffffffff'::bytea
      WHEN encode(substring(l.lane from 1 for 4), 'hex') <> ALL ($11::text[])
        THEN (SELECT decode(p || '000000000000000000000000', 'hex') FROM unnest($11::text[]) p
              WHERE p COLLATE "C" > encode(substring(l.lane from 1 for 4), 'hex') ORDER BY p COLLATE "C" LIMIT 1)
      ELSE l.lane END
    ORDER BY e.lane, e.key_seq LIMIT 1) h
  WHERE l.n < $10::bigint AND l.total < $3::bigint
), heads AS MATERIALIZED (SELECT e.lane FROM lanes e WHERE e.ok AND COALESCE(e.tenant_id, '') <> ALL ($15::text[])
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($13::text[]))), cand AS MATERIALIZED (
  SELECT r.tid, r.id, h.lane, r.key_seq, r.size,
    bool_and(r.ok) OVER (PARTITION BY h.lane ORDER BY r.key_seq, r.id) AS ok
  FROM (SELECT lane FROM heads ORDER BY lane LIMIT $3::bigint) h CROSS JOIN LATERAL (
    SELECT e.ctid AS tid, e.id, e.key_seq, octet_length(e.payload) AS size, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok
    FROM "app"."outbox_event" e WHERE e.lane = h.lane AND e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq
    LIMIT (SELECT greatest($16::bigint, least($8::bigint, $3::bigint / greatest(count(*), 1))) FROM heads)) r
), sized AS MATERIALIZED (
  SELECT tid, id, lane, key_seq, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand WHERE ok WINDOW w AS
    (ORDER BY lane, key_seq, id)
), picked AS MATERIALIZED (
  SELECT tid, id, lane, key_seq FROM sized WHERE n <= $3::bigint AND (n = 1 OR total <= $5::bigint)
), held AS MATERIALIZED (
  SELECT e.ctid AS tid FROM "app"."outbox_event" e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM picked)) FOR UPDATE SKIP LOCKED
), take AS MATERIALIZED (
  SELECT tid FROM (SELECT p.tid,
    bool_and(h.tid IS NOT NULL) OVER (PARTITION BY p.lane ORDER BY p.key_seq, p.id) AS ok
    FROM picked p LEFT JOIN held h ON h.tid = p.tid) r WHERE ok
), taken AS (UPDATE "app"."outbox_event" e SET claim_no = $14::bigint,
  lost_claims = abs(e.lost_claims) +
    CASE WHEN e.lease_until <= statement_timestamp() AND e.claimed_by <> $1::text AND e.lost_claims < 3 THEN 1 ELSE 0 END,
  claimed_by = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE e.ctid = ANY (ARRAY(SELECT tid FROM take)) AND e.status IN (0,2)
RETURNING e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, (SELECT (extract(epoch from clock_timestamp())*1000000)::bigint))
SELECT taken.*, NULL::bytea, 0::bigint FROM taken UNION ALL SELECT '00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, '', '', '', 0::bigint, '', '', NULL::bytea, 0::bigint, ''::bytea, '', NULL::jsonb, 0::bigint, 0, 0, 0::bigint, NULL::uuid, 0::bigint, 0::bigint, (SELECT CASE
    WHEN (SELECT count(*) FROM heads) > $3::bigint OR (SELECT count(*) FROM sized) > (SELECT count(*) FROM picked)
      THEN (SELECT lane FROM picked ORDER BY lane DESC LIMIT 1)
    WHEN (SELECT count(*) FROM lanes) >= $10::bigint OR (SELECT max(total) FROM lanes) >= $3::bigint
      THEN (SELECT lane FROM lanes ORDER BY lane DESC LIMIT 1)
  END), (SELECT count(*) FROM lanes e WHERE e.status = 3 AND COALESCE(e.tenant_id, '') <> ALL ($15::text[])
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($13::text[])))

-- claim_lane
WITH lanes AS (
  SELECT e.lane, e.topic, e.tenant_id, e.status, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok FROM "app"."outbox_event" e WHERE e.lane = $9::bytea
    AND e.status IN (0,2,3) AND e.lane IS NOT NULL
  ORDER BY e.lane, e.key_seq LIMIT 1
), heads AS MATERIALIZED (SELECT e.lane FROM lanes e WHERE e.ok AND COALESCE(e.tenant_id, '') <> ALL ($12::text[])
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($10::text[]))), cand AS MATERIALIZED (
  SELECT r.tid, r.id, h.lane, r.key_seq, r.size,
    bool_and(r.ok) OVER (PARTITION BY h.lane ORDER BY r.key_seq, r.id) AS ok
  FROM (SELECT lane FROM heads ORDER BY lane LIMIT $3::bigint) h CROSS JOIN LATERAL (
    SELECT e.ctid AS tid, e.id, e.key_seq, octet_length(e.payload) AS size, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond')) AS ok
    FROM "app"."outbox_event" e WHERE e.lane = h.lane AND e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq
    LIMIT (SELECT greatest($13::bigint, least($8::bigint, $3::bigint / greatest(count(*), 1))) FROM heads)) r
), sized AS MATERIALIZED (
  SELECT tid, id, lane, key_seq, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand WHERE ok WINDOW w AS
    (ORDER BY lane, key_seq, id)
), picked AS MATERIALIZED (
  SELECT tid, id, lane, key_seq FROM sized WHERE n <= $3::bigint AND (n = 1 OR total <= $5::bigint)
), held AS MATERIALIZED (
  SELECT e.ctid AS tid FROM "app"."outbox_event" e WHERE e.ctid = ANY (ARRAY(SELECT tid FROM picked)) FOR UPDATE SKIP LOCKED
), take AS MATERIALIZED (
  SELECT tid FROM (SELECT p.tid,
    bool_and(h.tid IS NOT NULL) OVER (PARTITION BY p.lane ORDER BY p.key_seq, p.id) AS ok
    FROM picked p LEFT JOIN held h ON h.tid = p.tid) r WHERE ok
), taken AS (UPDATE "app"."outbox_event" e SET claim_no = $11::bigint,
  lost_claims = abs(e.lost_claims) +
    CASE WHEN e.lease_until <= statement_timestamp() AND e.claimed_by <> $1::text AND e.lost_claims < 3 THEN 1 ELSE 0 END,
  claimed_by = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE e.ctid = ANY (ARRAY(SELECT tid FROM take)) AND e.status IN (0,2)
RETURNING e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, (SELECT (extract(epoch from clock_timestamp())*1000000)::bigint))
SELECT taken.*, NULL::bytea, 0::bigint FROM taken UNION ALL SELECT '00000000-0000-0000-0000-000000000000'::uuid, '', '', 0, '', '', '', 0::bigint, '', '', NULL::bytea, 0::bigint, ''::bytea, '', NULL::jsonb, 0::bigint, 0, 0, 0::bigint, NULL::uuid, 0::bigint, 0::bigint, NULL::bytea, 1::bigint
  FROM lanes e WHERE e.status = 3 AND COALESCE(e.tenant_id, '') <> ALL ($12::text[])
    AND ($6::text[] IS NULL OR e.topic = ANY ($6::text[])) AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($10::text[]))

-- claim_unordered
WITH RECURSIVE all_topics AS (
  SELECT k.topic COLLATE "C" AS topic, lead(k.topic COLLATE "C") OVER (ORDER BY k.topic COLLATE "C") AS known
  FROM unnest($14::text[]) k(topic)
  UNION ALL
  SELECT n.topic, t.known FROM all_topics t CROSS JOIN LATERAL (
    (SELECT e.topic FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic AND
      e.topic < t.known ORDER BY e.topic LIMIT 1)
    UNION ALL (SELECT e.topic FROM "app"."outbox_event" e WHERE t.known IS NULL AND e.status IN (0,2) AND e.lane IS NULL AND
      e.topic > t.topic ORDER BY e.topic LIMIT 1)) n
), topics AS MATERIALIZED (
  SELECT e.topic, '-infinity'::timestamptz AS since FROM all_topics e
  WHERE e.topic <> '' AND e.topic <> ALL ($7::text[]) AND ($6::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($9::text[]))
  UNION ALL SELECT l.topic COLLATE "C", COALESCE('epoch'::timestamptz + l.since * interval '1 microsecond',
    '-infinity') FROM unnest($6::text[], $11::bigint[]) l(topic, since)
), cand AS MATERIALIZED (
  SELECT c.tid, c.id, c.available_at, c.size,
    row_number() OVER (PARTITION BY t.topic ORDER BY c.available_at, c.id) AS turn
  FROM topics t CROSS JOIN LATERAL (
    SELECT e.ctid AS tid, e.id, e.available_at, octet_length(e.payload) AS size FROM "app"."outbox_event" e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = t.topic AND e.available_at <= statement_timestamp() AND
      e.available_at >= t.since AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond') AND COALESCE(e.tenant_id, '') <> ALL ($12::text[])
    ORDER BY e.available_at, e.id
    LIMIT (SELECT ($3::bigint + greatest(count(*), 1) - 1) / greatest(count(*), 1) FROM topics)
    FOR UPDATE SKIP LOCKED) c
), take AS MATERIALIZED (
  SELECT tid FROM (SELECT tid, row_number() OVER w AS n, sum(size) OVER w AS total FROM cand
    WINDOW w AS (ORDER BY turn, available_at, id)) c
  WHERE n <= $3::bigint AND (n = 1 AND $8::boolean OR total <= $5::bigint)
)
UPDATE "app"."outbox_event" e SET claim_no = $10::bigint,
  lost_claims = abs(e.lost_claims) +
    CASE WHEN e.lease_until <= statement_timestamp() AND e.claimed_by <> $1::text AND e.lost_claims < 3 THEN 1 ELSE 0 END,
  claimed_by = $1::text, lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
WHERE e.ctid = ANY (ARRAY(SELECT tid FROM take)) AND e.status IN (0,2)
RETURNING e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, (SELECT (extract(epoch from clock_timestamp())*1000000)::bigint), COALESCE(CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, 0), (SELECT count(*) FROM topics), (SELECT count(*) FROM cand),
  (SELECT CASE WHEN $13::boolean THEN COALESCE(pg_stat_get_xact_tuples_returned(to_regclass('"app"."outbox_event_ready"')), 0) ELSE 0 END)

-- cleanup
WITH p AS MATERIALIZED (
  SELECT e.id, (e.status = 1 AND e.done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' OR
    e.status = 4 AND e.done_at < statement_timestamp() - $2::bigint * interval '1 microsecond') AS old FROM "app"."outbox_event" e WHERE e.id > $3::uuid ORDER BY e.id LIMIT $4::bigint
), c AS MATERIALIZED (
  SELECT e.id FROM "app"."outbox_event" e WHERE e.id = ANY (ARRAY(SELECT id FROM p WHERE old)) AND (e.status = 1 AND e.done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' OR
    e.status = 4 AND e.done_at < statement_timestamp() - $2::bigint * interval '1 microsecond')
  ORDER BY e.id FOR UPDATE SKIP LOCKED
), d AS (DELETE FROM "app"."outbox_event" e WHERE e.id = ANY (ARRAY(SELECT id FROM c)) RETURNING 1)
SELECT (SELECT count(*) FROM d), (SELECT count(*) FROM p), (SELECT id FROM p ORDER BY id DESC LIMIT 1)

-- collect_delete
DELETE FROM "app"."outbox_key" k WHERE k.lane = ANY (ARRAY(SELECT decode(x, 'hex') FROM
	  unnest($1::text[]) x))
  AND NOT EXISTS (SELECT 1 FROM "app"."outbox_event" e WHERE e.lane = k.lane AND e.status IN (0,2,3) AND e.lane IS NOT NULL)

-- collect_lock
WITH c AS MATERIALIZED (
  SELECT k.lane FROM "app"."outbox_key" k WHERE k.lane > $1::bytea ORDER BY k.lane LIMIT $2::bigint
), l AS MATERIALIZED (
  SELECT k.lane FROM "app"."outbox_key" k WHERE k.lane = ANY (ARRAY(SELECT lane FROM c)) AND k.used_at <
    statement_timestamp() - $3::bigint * interval '1 microsecond'
  ORDER BY k.lane FOR UPDATE SKIP LOCKED
) SELECT c.lane, l.lane IS NOT NULL FROM c LEFT JOIN l ON l.lane = c.lane

-- dead_for_append
SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  e.key_seq, e.replay_of IS NOT NULL FROM "app"."outbox_event" e
WHERE e.id = ANY ($1::uuid[]) AND e.status = 3 AND e.key_seq IS NOT NULL AND ($2::boolean OR e.lane IS NULL)
ORDER BY e.id FOR UPDATE

-- discard
WITH u AS (UPDATE "app"."outbox_event" e SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL,
	  done_at = clock_timestamp()
WHERE e.id = ANY ($1::uuid[]) AND (e.status = 3 OR e.status IN (0,2)
  AND ($5::boolean OR e.lease_until IS NULL OR e.lease_until <= statement_timestamp())) RETURNING e.id, e.event_id, e.topic)
INSERT INTO "app"."outbox_audit" (action, actor, reason, row_id, event_id, topic) SELECT $2::text, $3::text, $4::text, u.id,
  u.event_id, u.topic FROM u

-- discard_dead
UPDATE "app"."outbox_event" SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL, done_at =
	  clock_timestamp()
WHERE id = $1::uuid AND status = 3

-- done
UPDATE "app"."outbox_event" e SET status = 1, done_at = clock_timestamp(), lease_until = NULL,
	  last_error_code = NULL, last_error = NULL
WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3) AND (SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($1::uuid[]), 1)) a, generate_series(1, least(cardinality($1::uuid[]), 1)) b) > 0

-- done_delete
DELETE FROM "app"."outbox_event" e WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3) AND (SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($1::uuid[]), 1)) a, generate_series(1, least(cardinality($1::uuid[]), 1)) b) > 0

-- done_receipts
UPDATE "app"."outbox_event" e SET status = 1, done_at = clock_timestamp(), lease_until = NULL,
	  last_error_code = NULL, last_error = NULL, receipt = NULLIF(v.receipt, '')
FROM unnest($1::uuid[], $2::text[]) v(id, receipt) WHERE e.id = v.id AND e.status IN (0,2,3) AND (SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($1::uuid[]), 1)) a, generate_series(1, least(cardinality($1::uuid[]), 1)) b) > 0

-- failed
UPDATE "app"."outbox_event" e SET failures = CASE WHEN v.kind = 3 THEN e.failures ELSE
    right(COALESCE(e.failures, '') || (extract(epoch from clock_timestamp())*1000000)::bigint::text || ' ' || (e.attempts + 1)::text || v.attempt, 5100) END,
  status = CASE v.kind WHEN 1 THEN 2 WHEN 2 THEN 3 ELSE e.status END,
  attempts = e.attempts + CASE WHEN v.kind = 3 THEN 0 ELSE 1 END,
  available_at = CASE WHEN v.kind = 2 THEN e.available_at ELSE clock_timestamp() + v.delay * interval
    '1 microsecond' END,
  lane = CASE WHEN v.kind = 2 AND v.skip THEN NULL ELSE e.lane END,
  lease_until = NULL, last_error_code = NULLIF(v.code, ''), last_error = NULLIF(v.message, ''),
  error_group = NULLIF(v.grp, '')
FROM unnest($2::uuid[], $3::bigint[], $4::integer[], $5::bigint[], $6::text[], $7::text[],
  $8::boolean[], $9::text[], $10::text[]) v(id, claim_no, kind, delay, code, message, skip, grp, attempt)
WHERE e.id = v.id AND e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL AND (SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($2::uuid[]), 1)) a, generate_series(1, least(cardinality($2::uuid[]), 1)) b) > 0 RETURNING e.id

-- held
SELECT e.id FROM "app"."outbox_event" e, unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($2::uuid[]), 1)) a, generate_series(1, least(cardinality($2::uuid[]), 1)) b) > 0 ORDER BY e.id

-- history: add 2
INSERT INTO "app"."outbox_history" AS h (part, slot, topic, published, refused, died)
SELECT floor(extract(epoch from statement_timestamp()) / 300)::bigint::text || ':' || v.topic, to_timestamp(floor(extract(epoch from statement_timestamp()) / 300)::bigint * 300), v.topic, v.published, v.refused, v.died
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) v(topic, published, refused, died)
ON CONFLICT (part) DO UPDATE SET published = h.published + excluded.published, refused = h.refused + excluded.refused, died = h.died + excluded.died

-- history: forget
DELETE FROM "app"."outbox_history" WHERE part < (floor(extract(epoch from statement_timestamp()) / 300)::bigint - $1::bigint)::text || ':' AND
  slot < (SELECT x.bound FROM (SELECT slot + interval '1 hour' AS bound FROM "app"."outbox_history" ORDER BY part LIMIT 1) x)

-- history: open
INSERT INTO "app"."outbox_history" (part, slot, topic, published, refused, died)
SELECT floor(extract(epoch from statement_timestamp()) / 300)::bigint::text || ':' || '', to_timestamp(floor(extract(epoch from statement_timestamp()) / 300)::bigint * 300), '', 0, 0, 0 ON CONFLICT (part) DO NOTHING

-- history: read
SELECT CASE WHEN isfinite(slot) THEN (extract(epoch from slot)*1000000)::bigint END, SUM(published)::bigint, SUM(refused)::bigint, SUM(died)::bigint, MAX(waiting), MAX(dead), MAX(blocked_keys), MAX(oldest), MAX(more)
FROM "app"."outbox_history" WHERE part >= (floor(extract(epoch from statement_timestamp()) / 300)::bigint - $1::bigint)::text || ':' AND ($2::text = '' OR topic = $2::text)
GROUP BY slot ORDER BY slot LIMIT 2017

-- history: set
UPDATE "app"."outbox_history" SET waiting = $1::bigint, dead = $2::bigint, blocked_keys = $3::bigint, oldest = $4::bigint, more = $5::smallint
WHERE part = floor(extract(epoch from statement_timestamp()) / 300)::bigint::text || ':' || ''

-- insert 2 rows
INSERT INTO "app"."outbox_event" (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at) SELECT v.id, v.event_id, v.event_type, v.schema_version, v.topic, v.aggregate_type, v.aggregate_id, v.aggregate_version, v.tenant_id, v.partition_key, v.lane, v.back, v.payload, v.content_type, v.headers, CASE WHEN v.hot THEN $3::bigint ELSE 0 END, CASE WHEN v.hot THEN $1::text END, CASE WHEN v.hot THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END, clock_timestamp() + v.delay * interval '1 microsecond', v.occurred_at, clock_timestamp() FROM (VALUES ($4::uuid, $5::text, $6::text, $7::integer, $8::text, $9::text, $10::text, $11::bigint, $12::text, $13::text, $14::bytea, $15::bigint, $16::bytea, $17::text, $18::jsonb, $19::boolean, $20::bigint, $21::timestamptz), ($22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39)) v(id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, back, payload, content_type, headers, hot, delay, occurred_at)

-- insert 3 rows, 2 lanes
WITH k AS (INSERT INTO "app"."outbox_key" AS k (lane, last_seq, first_seq, last_id, used_at) SELECT v.lane, c.us+v.n-1, c.us, v.last_id, clock_timestamp() FROM (VALUES ($4::bytea, $5::bigint, $6::uuid), ($7, $8, $9)) v(lane, n, last_id) CROSS JOIN (SELECT (extract(epoch from statement_timestamp())*1000000)::bigint AS us) c ON CONFLICT (lane) DO UPDATE SET last_seq = CASE WHEN k.timeline = excluded.timeline THEN k.last_seq ELSE greatest(k.last_seq, excluded.first_seq) END + excluded.last_seq - excluded.first_seq + 1, timeline = excluded.timeline, prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at RETURNING lane, last_seq, first_seq, prev_id), e AS (INSERT INTO "app"."outbox_event" (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at) SELECT v.id, v.event_id, v.event_type, v.schema_version, v.topic, v.aggregate_type, v.aggregate_id, v.aggregate_version, v.tenant_id, v.partition_key, v.lane, k.last_seq - v.back, v.payload, v.content_type, v.headers, CASE WHEN v.hot THEN $3::bigint ELSE 0 END, CASE WHEN v.hot THEN $1::text END, CASE WHEN v.hot THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END, clock_timestamp() + v.delay * interval '1 microsecond', v.occurred_at, clock_timestamp() FROM (VALUES ($10::uuid, $11::text, $12::text, $13::integer, $14::text, $15::text, $16::text, $17::bigint, $18::text, $19::text, $20::bytea, $21::bigint, $22::bytea, $23::text, $24::jsonb, $25::boolean, $26::bigint, $27::timestamptz), ($28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45), ($46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63)) v(id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, back, payload, content_type, headers, hot, delay, occurred_at) LEFT JOIN k ON k.lane = v.lane) SELECT lane, last_seq, first_seq, prev_id FROM k

-- insert 3 rows, 2 lanes, by the log
WITH k AS (INSERT INTO "app"."outbox_key" AS k (lane, last_seq, first_seq, last_id, used_at) SELECT v.lane, c.us+v.n-1, c.us, v.last_id, clock_timestamp() FROM (VALUES ($4::bytea, $5::bigint, $6::uuid), ($7, $8, $9)) v(lane, n, last_id) CROSS JOIN (SELECT (extract(epoch from statement_timestamp())*1000000)::bigint AS us) c ON CONFLICT (lane) DO UPDATE SET last_seq = CASE WHEN k.timeline = excluded.timeline THEN k.last_seq ELSE greatest(k.last_seq, excluded.first_seq) END + excluded.last_seq - excluded.first_seq + 1, timeline = excluded.timeline, prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at RETURNING lane, last_seq, first_seq, prev_id), e AS (INSERT INTO "app"."outbox_event" (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at, status, done_at) SELECT v.id, v.event_id, v.event_type, v.schema_version, v.topic, v.aggregate_type, v.aggregate_id, v.aggregate_version, v.tenant_id, v.partition_key, v.lane, k.last_seq - v.back, v.payload, v.content_type, v.headers, CASE WHEN v.hot THEN $3::bigint ELSE 0 END, CASE WHEN v.by_log THEN 'log' WHEN v.hot THEN $1::text END, CASE WHEN v.hot THEN clock_timestamp() + $2::bigint * interval '1 microsecond' END, clock_timestamp() + v.delay * interval '1 microsecond', v.occurred_at, clock_timestamp(), CASE WHEN v.by_log THEN 1 ELSE 0 END, CASE WHEN v.by_log THEN clock_timestamp() END FROM (VALUES ($10::uuid, $11::text, $12::text, $13::integer, $14::text, $15::text, $16::text, $17::bigint, $18::text, $19::text, $20::bytea, $21::bigint, $22::bytea, $23::text, $24::jsonb, $25::boolean, $26::bigint, $27::timestamptz, $28::boolean), ($29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47), ($48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66)) v(id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, back, payload, content_type, headers, hot, delay, occurred_at, by_log) LEFT JOIN k ON k.lane = v.lane) SELECT lane, last_seq, first_seq, prev_id FROM k

-- insert one
INSERT INTO "app"."outbox_event" (id, event_id, event_type, topic, payload, occurred_at, created_at, available_at) VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::timestamptz, clock_timestamp(), clock_timestamp())

-- insert one, by the log
INSERT INTO "app"."outbox_event" (id, event_id, event_type, topic, payload, occurred_at, created_at, status, claimed_by, done_at, available_at) VALUES ($1::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::timestamptz, clock_timestamp(), 1, 'log', clock_timestamp(), clock_timestamp())

-- insert one, everything
WITH k AS (INSERT INTO "app"."outbox_key" AS k (lane, last_seq, first_seq, last_id, used_at)
VALUES ($11::bytea, (extract(epoch from statement_timestamp())*1000000)::bigint, (extract(epoch from statement_timestamp())*1000000)::bigint, $1::uuid, clock_timestamp())
ON CONFLICT (lane) DO UPDATE SET last_seq = CASE WHEN k.timeline = excluded.timeline THEN k.last_seq ELSE greatest(k.last_seq, excluded.first_seq) END + 1, timeline = excluded.timeline,
  prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at
RETURNING lane, last_seq, first_seq, prev_id), e AS (INSERT INTO "app"."outbox_event" (id, event_id, event_type, topic, payload, occurred_at, created_at, claim_no, claimed_by, lease_until, available_at, lane, key_seq, schema_version, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, content_type, headers) SELECT $1::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::timestamptz, clock_timestamp(), $7::bigint, $8::text, clock_timestamp() + $9::bigint * interval '1 microsecond', clock_timestamp() + $10::bigint * interval '1 microsecond', k.lane, k.last_seq, $12::integer, $13::text, $14::text, $15::bigint, $16::text, $17::text, $18::text, $19::jsonb FROM k) SELECT lane, last_seq, first_seq, prev_id FROM k

-- insert one, hot and ordered
WITH k AS (INSERT INTO "app"."outbox_key" AS k (lane, last_seq, first_seq, last_id, used_at)
VALUES ($10::bytea, (extract(epoch from statement_timestamp())*1000000)::bigint, (extract(epoch from statement_timestamp())*1000000)::bigint, $1::uuid, clock_timestamp())
ON CONFLICT (lane) DO UPDATE SET last_seq = CASE WHEN k.timeline = excluded.timeline THEN k.last_seq ELSE greatest(k.last_seq, excluded.first_seq) END + 1, timeline = excluded.timeline,
  prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at
RETURNING lane, last_seq, first_seq, prev_id), e AS (INSERT INTO "app"."outbox_event" (id, event_id, event_type, topic, payload, occurred_at, created_at, claim_no, claimed_by, lease_until, available_at, lane, key_seq) SELECT $1::uuid, $2::text, $3::text, $4::text, $5::bytea, $6::timestamptz, clock_timestamp(), $7::bigint, $8::text, clock_timestamp() + $9::bigint * interval '1 microsecond', clock_timestamp(), k.lane, k.last_seq FROM k) SELECT lane, last_seq, first_seq, prev_id FROM k

-- key_next
INSERT INTO "app"."outbox_key" AS k (lane, last_seq, first_seq, last_id, used_at)
SELECT $1::bytea, c.us, c.us, $2::uuid, clock_timestamp() FROM (SELECT (extract(epoch from
  statement_timestamp())*1000000)::bigint AS us) c
ON CONFLICT (lane) DO UPDATE SET last_seq = CASE WHEN k.timeline = excluded.timeline THEN k.last_seq ELSE greatest(k.last_seq, excluded.first_seq) END + 1, timeline = excluded.timeline,
  prev_id = k.last_id, last_id = excluded.last_id, used_at = excluded.used_at
RETURNING last_seq

-- leave_keys
WITH RECURSIVE lanes AS (
  (SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $1::bigint * interval '1 microsecond')) AS ok, 1 AS n, 0::bigint AS total FROM "app"."outbox_event" e
   WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > $4::bytea ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT h.id, h.lane, h.topic, h.tenant_id, h.status, h.available_at, h.lease_until, h.ok, l.n + 1, l.total + h.found
    FROM lanes
    l CROSS JOIN LATERAL (
    SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $1::bigint * interval '1 microsecond')) AS ok, 0::bigint AS found FROM "app"."outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > CASE
      WHEN encode(substring(l.lane from 1 for 4), 'hex') = ANY ($7::text[])
        THEN substring(l.lane from 1 for 4) || '\xffffffffffffffffffffffff'::bytea
      WHEN encode(substring(l.lane from 1 for 4), 'hex') <> ALL ($6::text[])
        THEN (SELECT decode(p || '000000000000000000000000', 'hex') FROM unnest($6::text[]) p
              WHERE p COLLATE "C" > encode(substring(l.lane from 1 for 4), 'hex') ORDER BY p COLLATE "C" LIMIT 1)
      ELSE l.lane END
    ORDER BY e.lane, e.key_seq LIMIT 1) h
  WHERE l.n < $5::bigint 
), dead AS MATERIALIZED (
  SELECT e.id FROM "app"."outbox_event" e WHERE e.id = ANY (ARRAY(SELECT e.id FROM lanes e WHERE e.status = 3 AND COALESCE(e.tenant_id, '') <> ALL ($9::text[])
    AND ($2::text[] IS NULL OR e.topic = ANY ($2::text[])) AND e.topic <> ALL ($3::text[]) AND ($2::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($8::text[])))) AND e.status = 3 ORDER BY e.id FOR UPDATE SKIP LOCKED
)
UPDATE "app"."outbox_event" e SET lane = NULL WHERE e.id = ANY (ARRAY(SELECT id FROM dead))

-- list_dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, e.attempts, abs(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END
FROM "app"."outbox_event" e WHERE e.status = 3 AND e.id > $1::uuid AND ($2::text = '' OR e.topic = $2::text) AND ($3::text =
  '' OR e.event_type = $3::text)
  AND ($4::text = '' OR e.tenant_id = $4::text) ORDER BY e.id LIMIT $5::bigint

-- markable
SELECT e.id FROM "app"."outbox_event" e WHERE e.id = ANY ($1::uuid[]) AND e.status IN (0,2,3) AND (SELECT count(*) FROM generate_series(1, least(cardinality($1::uuid[]), 1)) a, generate_series(1, least(cardinality($1::uuid[]), 1)) b) > 0 ORDER BY e.id

-- next_due
WITH RECURSIVE all_topics AS (
  SELECT k.topic COLLATE "C" AS topic, lead(k.topic COLLATE "C") OVER (ORDER BY k.topic COLLATE "C") AS known
  FROM unnest($12::text[]) k(topic)
  UNION ALL
  SELECT n.topic, t.known FROM all_topics t CROSS JOIN LATERAL (
    (SELECT e.topic FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic AND
      e.topic < t.known ORDER BY e.topic LIMIT 1)
    UNION ALL (SELECT e.topic FROM "app"."outbox_event" e WHERE t.known IS NULL AND e.status IN (0,2) AND e.lane IS NULL AND
      e.topic > t.topic ORDER BY e.topic LIMIT 1)) n
), topics AS MATERIALIZED (
  SELECT e.topic, '-infinity'::timestamptz AS since FROM all_topics e
  WHERE e.topic <> '' AND e.topic <> ALL ($3::text[]) AND ($2::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($9::text[]))
  UNION ALL SELECT l.topic COLLATE "C", COALESCE('epoch'::timestamptz + l.since * interval '1 microsecond',
    '-infinity') FROM unnest($2::text[], $10::bigint[]) l(topic, since)
), unordered AS (
  SELECT min(greatest(c.available_at, c.until)) AS at FROM topics t CROSS JOIN LATERAL (
    SELECT e.available_at, CASE WHEN (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $1::bigint * interval '1 microsecond') THEN NULL ELSE e.lease_until END AS until
    FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = t.topic AND
      COALESCE(e.tenant_id, '') <> ALL ($11::text[])
    ORDER BY e.available_at, e.id LIMIT 1000) c
), lanes AS (
  (SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $1::bigint * interval '1 microsecond')) AS ok, 1 AS n, 0::bigint AS total FROM "app"."outbox_event" e
   WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > $4::bytea ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT h.id, h.lane, h.topic, h.tenant_id, h.status, h.available_at, h.lease_until, h.ok, l.n + 1, l.total + h.found
    FROM lanes
    l CROSS JOIN LATERAL (
    SELECT e.id, e.lane, e.topic, e.tenant_id, e.status, e.available_at, e.lease_until, (e.status <> 3 AND e.available_at <= statement_timestamp() AND (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $1::bigint * interval '1 microsecond')) AS ok, 0::bigint AS found FROM "app"."outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > CASE
      WHEN encode(substring(l.lane from 1 for 4), 'hex') = ANY ($7::text[])
        THEN substring(l.lane from 1 for 4) || '\xffffffffffffffffffffffff'::bytea
      WHEN encode(substring(l.lane from 1 for 4), 'hex') <> ALL ($6::text[])
        THEN (SELECT decode(p || '000000000000000000000000', 'hex') FROM unnest($6::text[]) p
              WHERE p COLLATE "C" > encode(substring(l.lane from 1 for 4), 'hex') ORDER BY p COLLATE "C" LIMIT 1)
      ELSE l.lane END
    ORDER BY e.lane, e.key_seq LIMIT 1) h
  WHERE l.n < $5::bigint 
), ordered AS (
  SELECT min(CASE WHEN e.status = 3 THEN statement_timestamp()
    ELSE greatest(e.available_at, CASE WHEN (e.lease_until IS NULL OR e.lease_until <= statement_timestamp() OR e.lease_until > statement_timestamp() + $1::bigint * interval '1 microsecond') THEN NULL ELSE e.lease_until END) END) AS at
  FROM lanes e WHERE (e.status <> 3 OR $8::boolean) AND COALESCE(e.tenant_id, '') <> ALL ($11::text[])
    AND ($2::text[] IS NULL OR e.topic = ANY ($2::text[])) AND e.topic <> ALL ($3::text[]) AND ($2::text[] IS NOT NULL OR e.topic NOT LIKE 'effect.%' OR e.topic = ANY ($9::text[]))
) SELECT CASE WHEN isfinite(d.at) THEN (extract(epoch from d.at)*1000000)::bigint END - (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT least(u.at, o.at) AS at FROM unordered u, ordered o) d

-- pause: clock
SELECT (extract(epoch from clock_timestamp())*1000000)::bigint

-- pause: pause
INSERT INTO "app"."outbox_pause" (target, paused_at, ends_at, actor, reason)
VALUES ($1::text, statement_timestamp(), timestamptz 'epoch' + $2::bigint * interval '1 microsecond', $3::text, $4::text)
ON CONFLICT (target) DO UPDATE SET (paused_at, ends_at, actor, reason) = (excluded.paused_at, excluded.ends_at, excluded.actor, excluded.reason)

-- pause: resume
DELETE FROM "app"."outbox_pause" WHERE target = $1::text AND (ends_at IS NULL OR ends_at > statement_timestamp())

-- pause: settings
SELECT target, CASE WHEN isfinite(paused_at) THEN (extract(epoch from paused_at)*1000000)::bigint END, CASE WHEN isfinite(ends_at) THEN (extract(epoch from ends_at)*1000000)::bigint END, COALESCE(per_second, 0), COALESCE(in_flight, 0),
  actor, reason, (extract(epoch from clock_timestamp())*1000000)::bigint
FROM "app"."outbox_pause" WHERE target LIKE 'rate:%' OR (ends_at IS NULL OR ends_at > statement_timestamp())
ORDER BY CASE WHEN target LIKE 'rate:%' THEN 0 WHEN target LIKE 'tenant:%' THEN 2 ELSE 1 END, target LIMIT 2000

-- planner
SELECT set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)

-- rate: remove
DELETE FROM "app"."outbox_pause" WHERE target = $1::text

-- rate: set
INSERT INTO "app"."outbox_pause" (target, paused_at, per_second, in_flight, actor, reason)
VALUES ($1::text, statement_timestamp(), $2::double precision, $3::integer, $4::text, $5::text)
ON CONFLICT (target) DO UPDATE SET (paused_at, per_second, in_flight, actor, reason) = (excluded.paused_at, excluded.per_second, excluded.in_flight, excluded.actor, excluded.reason)

-- redrive
WITH u AS (UPDATE "app"."outbox_event" e SET status = 2, attempts = 0, lost_claims = 0,
	  claimed_by = NULL, claim_no = 0, lease_until = NULL,
  available_at = clock_timestamp() WHERE e.id = ANY ($1::uuid[]) AND e.status = 3 AND (e.key_seq IS NULL OR
    e.lane IS NOT NULL AND NOT $5::boolean) RETURNING e.id, e.event_id, e.topic)
INSERT INTO "app"."outbox_audit" (action, actor, reason, row_id, event_id, topic) SELECT $2::text, $3::text, $4::text, u.id,
  u.event_id, u.topic FROM u

-- relay: beat
INSERT INTO "app"."outbox_relay" (node, host, pid, program, version, all_topics, topics, seen_at, started_at, claimed_at, published_at, state)
VALUES ($1::text, $2::text, $3::bigint, $4::text, $5::text, $6::smallint, $7::text, statement_timestamp(), statement_timestamp() - $8::bigint * interval '1 microsecond', statement_timestamp() - $9::bigint * interval '1 microsecond', statement_timestamp() - $10::bigint * interval '1 microsecond', $11::text)
ON CONFLICT (node) DO UPDATE SET (seen_at, started_at, claimed_at, published_at, state) = (excluded.seen_at, excluded.started_at, excluded.claimed_at, excluded.published_at, excluded.state)

-- relay: forget
DELETE FROM "app"."outbox_relay" WHERE seen_at < statement_timestamp() - $1::bigint * interval '1 microsecond'

-- relay: pending_topics
WITH RECURSIVE topics AS (
  (SELECT e.topic FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic LIMIT 1)
  UNION ALL
  SELECT n.topic FROM topics t CROSS JOIN LATERAL (SELECT e.topic FROM "app"."outbox_event" e
    WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic > t.topic ORDER BY e.topic LIMIT 1) n
), prefixes AS (
  (SELECT substring(e.lane from 1 for 4) AS start, 1 AS n FROM "app"."outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL ORDER BY e.lane, e.key_seq LIMIT 1)
  UNION ALL
  SELECT n.start, p.n + 1 FROM prefixes p CROSS JOIN LATERAL (
    SELECT substring(e.lane from 1 for 4) AS start FROM "app"."outbox_event" e
    WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane > p.start || '\xffffffffffffffffffffffff'::bytea
    ORDER BY e.lane, e.key_seq LIMIT 1) n WHERE p.n < $1::bigint
)
SELECT topic FROM topics UNION SELECT k.topic FROM prefixes p CROSS JOIN LATERAL (
  SELECT x.topic FROM (SELECT e.topic, e.status FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND
    e.lane >= p.start AND e.lane <= p.start || '\xffffffffffffffffffffffff'::bytea
    ORDER BY e.lane, e.key_seq LIMIT 100) x WHERE x.status <> 3 LIMIT 1) k

-- relay: relays
SELECT node, host, pid, program, version, all_topics, topics, CASE WHEN isfinite(started_at) THEN (extract(epoch from started_at)*1000000)::bigint END, CASE WHEN isfinite(seen_at) THEN (extract(epoch from seen_at)*1000000)::bigint END, CASE WHEN isfinite(claimed_at) THEN (extract(epoch from claimed_at)*1000000)::bigint END, CASE WHEN isfinite(published_at) THEN (extract(epoch from published_at)*1000000)::bigint END, state, (extract(epoch from clock_timestamp())*1000000)::bigint
FROM "app"."outbox_relay" ORDER BY seen_at DESC, node LIMIT 1000

-- relay: remove
DELETE FROM "app"."outbox_relay" WHERE node = $1::text

-- release
UPDATE "app"."outbox_event" e SET lease_until = NULL
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL AND (SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($2::uuid[]), 1)) a, generate_series(1, least(cardinality($2::uuid[]), 1)) b) > 0 RETURNING e.id

-- renew
UPDATE "app"."outbox_event" e SET lease_until = clock_timestamp() + $4::bigint * interval '1 microsecond'
FROM unnest($2::uuid[], $3::bigint[]) v(id, claim_no) WHERE e.id = v.id AND e.claim_no = v.claim_no AND e.claimed_by = $1::text AND e.status IN (0,2) AND e.lease_until IS NOT NULL AND (SELECT set_config('lock_timeout', '100ms', true)) IS NOT NULL AND (SELECT count(*) FROM generate_series(1, least(cardinality($2::uuid[]), 1)) a, generate_series(1, least(cardinality($2::uuid[]), 1)) b) > 0 RETURNING e.id

-- reset_keys
UPDATE "app"."outbox_key" k SET last_seq = greatest(k.last_seq, c.us), first_seq =
	  greatest(k.last_seq, c.us), last_id = NULL, prev_id = NULL
FROM (SELECT (extract(epoch from statement_timestamp())*1000000)::bigint AS us) c

-- type: backlog
SELECT x.event_type, x.status::bigint, count(*) FROM (
  (SELECT e.event_type, e.status FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL ORDER BY e.topic,
    e.available_at LIMIT $1::bigint)
  UNION ALL
  SELECT * FROM (SELECT e.event_type, e.status FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL
    ORDER BY e.lane, e.key_seq LIMIT $1::bigint) k WHERE k.status <> 3
  UNION ALL
  (SELECT e.event_type, e.status FROM "app"."outbox_event" e WHERE e.status = 3 ORDER BY e.id LIMIT $1::bigint)
) x GROUP BY x.event_type, x.status

-- unlocked
SELECT e.id FROM "app"."outbox_event" e WHERE e.id = ANY ($1::uuid[]) AND (SELECT count(*) FROM generate_series(1, least(cardinality($1::uuid[]), 1)) a, generate_series(1, least(cardinality($1::uuid[]), 1)) b) > 0 ORDER BY e.id FOR UPDATE SKIP LOCKED

