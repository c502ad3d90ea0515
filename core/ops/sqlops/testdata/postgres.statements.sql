-- destinations: count
SELECT part, topic, count(*), count(*) FILTER (WHERE status <> 3),
  count(*) FILTER (WHERE status <> 3 AND available_at <= now() AND NOT COALESCE(lease_until > now(), false)),
  count(*) FILTER (WHERE status <> 3 AND lease_until > now()), count(*) FILTER (WHERE status = 2),
  count(*) FILTER (WHERE part = 3),
  COALESCE(1000000 * extract(epoch FROM now() - min(created_at) FILTER (WHERE status <> 3)), 0)::bigint
FROM (
  SELECT * FROM (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM "app"."outbox_event"
    WHERE status IN (0,2) AND lane IS NULL ORDER BY topic, available_at LIMIT $1::bigint) a
  UNION ALL
  SELECT * FROM (SELECT 2, topic, status, available_at, lease_until, created_at FROM "app"."outbox_event"
    WHERE status IN (0,2,3) AND lane IS NOT NULL ORDER BY lane, key_seq LIMIT $1::bigint) b
  UNION ALL
  SELECT * FROM (SELECT 3, topic, status, available_at, lease_until, created_at FROM "app"."outbox_event"
    WHERE status = 3 ORDER BY id LIMIT $1::bigint) c
) e GROUP BY part, topic

-- edit: audit
INSERT INTO "app"."outbox_audit" (at, action, actor, reason, row_id, event_id, topic, new_id, detail)
VALUES (statement_timestamp(), 'edit', $1::text, $2::text, $3::uuid, $4::text, $5::text, $6::uuid, $7::text)

-- edit: content
UPDATE "app"."outbox_event" SET payload = $1::bytea, content_type = NULLIF($2::text, ''), headers = $3::jsonb WHERE id = $4::uuid

-- edit: end
UPDATE "app"."outbox_event" SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL, done_at = statement_timestamp() WHERE id = $1::uuid

-- edit: insert
INSERT INTO "app"."outbox_event" (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT $1::uuid, $2::bigint, statement_timestamp(), statement_timestamp(), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, $3::bytea, '', NULL, NULL, occurred_at, replay_of FROM "app"."outbox_event" WHERE id = $4::uuid

-- edit: last
UPDATE "app"."outbox_key" SET last_id = $1::uuid WHERE lane = $2::bytea AND last_id = $3::uuid

-- edit: lock
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.id = $1::uuid FOR UPDATE

-- erase: audit
INSERT INTO "app"."outbox_audit" (at, action, actor, reason, row_id, event_id, topic)
VALUES (statement_timestamp(), 'erase', $1::text, $2::text, $3::uuid, $4::text, $5::text)

-- erase: content
UPDATE "app"."outbox_event" SET payload = $1::bytea, content_type = NULL, headers = $2::jsonb, last_error = CASE WHEN last_error IS NOT NULL THEN 'erased' END,
  failures = NULL WHERE id = $3::uuid

-- erase: detail
UPDATE "app"."outbox_audit" SET detail = 'erased' WHERE id = $1::bigint

-- erase: details
SELECT a.id, COALESCE(SUBSTR(a.detail, 1, 4000), '') FROM "app"."outbox_audit" a WHERE a.id > $1::bigint ORDER BY a.id LIMIT 1000

-- erase: rows
SELECT e.id, e.event_id, e.topic, e.status, CASE WHEN e.lease_until > statement_timestamp() THEN 1 ELSE 0 END, e.headers, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.id = ANY ($1::uuid[]) ORDER BY e.id FOR UPDATE

-- group: forget
DELETE FROM "app"."outbox_group" WHERE fingerprint = $1::text AND note = '' AND muted_until IS NULL

-- group: mute
INSERT INTO "app"."outbox_group" (fingerprint, note, muted_until, actor, updated_at)
VALUES ($1::text, $2::text, timestamptz 'epoch' + $3::bigint * interval '1 microsecond', $4::text, statement_timestamp())
ON CONFLICT (fingerprint) DO UPDATE SET muted_until = excluded.muted_until, actor = excluded.actor, updated_at = excluded.updated_at

-- group: note
INSERT INTO "app"."outbox_group" (fingerprint, note, muted_until, actor, updated_at)
VALUES ($1::text, $2::text, timestamptz 'epoch' + $3::bigint * interval '1 microsecond', $4::text, statement_timestamp())
ON CONFLICT (fingerprint) DO UPDATE SET note = excluded.note, actor = excluded.actor, updated_at = excluded.updated_at

-- group: notes
SELECT fingerprint, note, CASE WHEN isfinite(muted_until) THEN (extract(epoch from muted_until)*1000000)::bigint END, actor, CASE WHEN isfinite(updated_at) THEN (extract(epoch from updated_at)*1000000)::bigint END
FROM "app"."outbox_group" ORDER BY updated_at DESC, fingerprint LIMIT 1000

-- list events by id
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "app"."outbox_event" e WHERE e.id >= $1::uuid AND e.id <= $2::uuid AND e.id > $3::uuid ORDER BY e.id LIMIT $4::bigint) e WHERE e.status IN (0,1) AND e.event_type = $5::text AND e.tenant_id = $6::text AND e.partition_key = $7::text AND e.aggregate_type = $8::text AND e.aggregate_id = $9::text AND e.last_error_code = $10::text AND e.error_group = $11::text AND e.created_at >= $12::timestamptz AND e.created_at < $13::timestamptz ORDER BY e.id LIMIT $14::bigint

-- list events by id, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.id >= $1::uuid AND e.id < $2::uuid ORDER BY e.id DESC LIMIT $3::bigint

-- list events dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "app"."outbox_event" e WHERE e.status = 3 AND e.id > $1::uuid ORDER BY e.id LIMIT $2::bigint) e WHERE e.event_type = $3::text AND e.tenant_id = $4::text AND e.partition_key = $5::text AND e.aggregate_type = $6::text AND e.aggregate_id = $7::text AND e.last_error_code = $8::text AND e.error_group = $9::text AND e.created_at >= $10::timestamptz AND e.created_at < $11::timestamptz AND e.lane IS NULL ORDER BY e.id LIMIT $12::bigint

-- list events dead, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.status = 3 AND e.id < $1::uuid ORDER BY e.id DESC LIMIT $2::bigint

-- list events of a key
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane = $1::bytea AND e.key_seq > $2::bigint AND e.key_seq < $3::bigint AND e.key_seq > $4::bigint ORDER BY e.key_seq LIMIT $5::bigint) e WHERE e.status IN (0) AND e.event_type = $6::text AND e.tenant_id = $7::text AND e.partition_key = $8::text AND e.aggregate_type = $9::text AND e.aggregate_id = $10::text AND e.last_error_code = $11::text AND e.error_group = $12::text AND e.created_at >= $13::timestamptz AND e.created_at < $14::timestamptz ORDER BY e.key_seq LIMIT $15::bigint

-- list events of a key, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane = $1::bytea AND e.key_seq < $2::bigint ORDER BY e.key_seq DESC LIMIT $3::bigint

-- list events of keys
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane IS NOT NULL AND e.key_seq > $1::bigint AND e.key_seq < $2::bigint AND (e.lane, e.key_seq) > ($3::bytea, $4::bigint) ORDER BY e.lane, e.key_seq LIMIT $5::bigint) e WHERE e.status IN (0) AND e.event_type = $6::text AND e.tenant_id = $7::text AND e.partition_key = $8::text AND e.aggregate_type = $9::text AND e.aggregate_id = $10::text AND e.last_error_code = $11::text AND e.error_group = $12::text AND e.created_at >= $13::timestamptz AND e.created_at < $14::timestamptz ORDER BY e.lane, e.key_seq LIMIT $15::bigint

-- list events of keys, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane IS NOT NULL AND (e.lane, e.key_seq) < ($1::bytea, $2::bigint) ORDER BY e.lane DESC, e.key_seq DESC LIMIT $3::bigint

-- list events open
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic IS NOT NULL AND (e.topic, e.available_at, e.id) > ($1::text, $2::timestamptz, $3::uuid) ORDER BY e.topic, e.available_at, e.id LIMIT $4::bigint) e WHERE e.status IN (0) AND e.event_type = $5::text AND e.tenant_id = $6::text AND e.partition_key = $7::text AND e.aggregate_type = $8::text AND e.aggregate_id = $9::text AND e.last_error_code = $10::text AND e.error_group = $11::text AND e.created_at >= $12::timestamptz AND e.created_at < $13::timestamptz ORDER BY e.topic, e.available_at, e.id LIMIT $14::bigint

-- list events open of a topic
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = $1::text AND (e.available_at, e.id) > ($2::timestamptz, $3::uuid) ORDER BY e.available_at, e.id LIMIT $4::bigint) e WHERE e.status IN (0) AND e.event_type = $5::text AND e.tenant_id = $6::text AND e.partition_key = $7::text AND e.aggregate_type = $8::text AND e.aggregate_id = $9::text AND e.last_error_code = $10::text AND e.error_group = $11::text AND e.created_at >= $12::timestamptz AND e.created_at < $13::timestamptz ORDER BY e.available_at, e.id LIMIT $14::bigint

-- list events open of a topic, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = $1::text AND (e.available_at, e.id) < ($2::timestamptz, $3::uuid) ORDER BY e.available_at DESC, e.id DESC LIMIT $4::bigint

-- list events open, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), CASE WHEN isfinite(e.lease_until) THEN (extract(epoch from e.lease_until)*1000000)::bigint END, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, CASE WHEN isfinite(e.occurred_at) THEN (extract(epoch from e.occurred_at)*1000000)::bigint END, CASE WHEN isfinite(e.created_at) THEN (extract(epoch from e.created_at)*1000000)::bigint END, CASE WHEN isfinite(e.done_at) THEN (extract(epoch from e.done_at)*1000000)::bigint END, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic IS NOT NULL AND (e.topic, e.available_at, e.id) < ($1::text, $2::timestamptz, $3::uuid) ORDER BY e.topic DESC, e.available_at DESC, e.id DESC LIMIT $4::bigint

-- list events, last
SELECT e.id, e.topic, CASE WHEN isfinite(e.available_at) THEN (extract(epoch from e.available_at)*1000000)::bigint END, e.lane, COALESCE(e.key_seq,0) FROM "app"."outbox_event" e WHERE e.id >= $1::uuid ORDER BY e.id LIMIT 2 OFFSET $2::bigint

-- plan: change
UPDATE "app"."outbox_plan" SET state = $1::text, body = $2::text, version = version + 1, updated_at = statement_timestamp(), worker_until = statement_timestamp() + $3::bigint * interval '1 microsecond' WHERE id = $4::text AND version = $5::bigint

-- plan: copies
SELECT a.row_id, n.status, n.attempts FROM "app"."outbox_audit" a JOIN "app"."outbox_event" n ON n.id = a.new_id
WHERE a.action = 'redrive' AND a.row_id = ANY ($1::uuid[]) AND ($2::text = '' OR a.reason = $2::text)

-- plan: forget
DELETE FROM "app"."outbox_plan" WHERE state IN ('done', 'cancelled') AND updated_at < statement_timestamp() - $1::bigint * interval '1 microsecond'

-- plan: insert
INSERT INTO "app"."outbox_plan" (id, state, version, body, ids, created_at, updated_at) VALUES ($1::text, $2::text, 1, $3::text, $4::bytea, statement_timestamp(), statement_timestamp())

-- plan: list
SELECT id, state, version, body, CASE WHEN isfinite(created_at) THEN (extract(epoch from created_at)*1000000)::bigint END, CASE WHEN isfinite(updated_at) THEN (extract(epoch from updated_at)*1000000)::bigint END, CASE WHEN isfinite(worker_until) THEN (extract(epoch from worker_until)*1000000)::bigint END, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_plan" ORDER BY created_at DESC, id LIMIT $1::bigint

-- plan: outcomes
SELECT e.id, e.status, e.attempts FROM "app"."outbox_event" e WHERE NOT EXISTS (SELECT 1 FROM "app"."outbox_audit" a
  WHERE a.row_id = e.id AND a.action = 'redrive' AND a.new_id IS NOT NULL) AND e.id = ANY ($1::uuid[])
  AND ($2::text = '' OR EXISTS (SELECT 1 FROM "app"."outbox_audit" p WHERE p.row_id = e.id AND p.action = 'redrive' AND
    p.reason = $2::text))

-- plan: read
SELECT id, state, version, body, CASE WHEN isfinite(created_at) THEN (extract(epoch from created_at)*1000000)::bigint END, CASE WHEN isfinite(updated_at) THEN (extract(epoch from updated_at)*1000000)::bigint END, CASE WHEN isfinite(worker_until) THEN (extract(epoch from worker_until)*1000000)::bigint END, (extract(epoch from clock_timestamp())*1000000)::bigint, ids FROM "app"."outbox_plan" WHERE id = $1::text

-- plan: times
SELECT CASE WHEN isfinite(updated_at) THEN (extract(epoch from updated_at)*1000000)::bigint END, CASE WHEN isfinite(worker_until) THEN (extract(epoch from worker_until)*1000000)::bigint END, (extract(epoch from clock_timestamp())*1000000)::bigint FROM "app"."outbox_plan" WHERE id = $1::text

-- read audit
SELECT CASE WHEN isfinite(a.at) THEN (extract(epoch from a.at)*1000000)::bigint END, a.action, a.actor, a.reason, a.new_id, COALESCE(a.detail, '') FROM "app"."outbox_audit" a WHERE a.row_id = $1::uuid ORDER BY a.id DESC LIMIT 100

-- read content
SELECT e.payload, COALESCE(e.content_type,''), e.headers, e.event_id, e.topic FROM "app"."outbox_event" e WHERE e.id = $1::uuid

-- read failures
SELECT COALESCE(e.failures,'') FROM "app"."outbox_event" e WHERE e.id = $1::uuid

-- record: audit
INSERT INTO "app"."outbox_audit" (at, action, actor, reason, row_id, event_id, topic, detail)
VALUES (statement_timestamp(), $1::text, $2::text, $3::text, $4::uuid, $5::text, $6::text, NULLIF($7::text, ''))

-- replay: done
SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), TRUE FROM "app"."outbox_event" e
WHERE e.id = ANY ($1::uuid[]) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id FOR UPDATE

-- replay: replay
INSERT INTO "app"."outbox_event" (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of, status, claimed_by, done_at)
SELECT $1::uuid, $2::bigint, clock_timestamp(), clock_timestamp(), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, $3::bytea, payload, content_type, CASE WHEN key_seq IS NOT NULL AND (headers IS NULL OR jsonb_typeof(headers) = 'object') THEN jsonb_build_object('outbox_first_key_seq', key_seq::text) || COALESCE(headers, '{}') ELSE headers END, occurred_at, id, CASE WHEN status = 1 AND claimed_by = 'log' THEN 1 ELSE 0 END, CASE WHEN status = 1 AND claimed_by = 'log' THEN 'log' END, CASE WHEN status = 1 AND claimed_by = 'log' THEN statement_timestamp() END FROM "app"."outbox_event" WHERE id = $4::uuid

-- window: declare
INSERT INTO "app"."outbox_pause" (target, paused_at, ends_at, actor, reason)
VALUES ($1::text, statement_timestamp(), timestamptz 'epoch', $2::text, $3::text)
ON CONFLICT (target) DO UPDATE SET (paused_at, actor, reason) = (excluded.paused_at, excluded.actor, excluded.reason)

-- window: windows
SELECT target, CASE WHEN isfinite(paused_at) THEN (extract(epoch from paused_at)*1000000)::bigint END, actor, reason FROM "app"."outbox_pause" WHERE target LIKE 'window:%' ORDER BY target LIMIT 1000

-- window: withdraw
DELETE FROM "app"."outbox_pause" WHERE target = $1::text

