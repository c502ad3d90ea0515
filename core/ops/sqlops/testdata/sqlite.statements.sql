-- destinations: count
SELECT part, topic, COUNT(*), SUM(status <> 3),
  SUM(status <> 3 AND available_at <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) AND NOT COALESCE(lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), 0)),
  SUM(status <> 3 AND COALESCE(lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), 0)), SUM(status = 2), SUM(part = 3),
  COALESCE((CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) - MIN(CASE WHEN status <> 3 THEN created_at END), 0)
FROM (
  SELECT * FROM (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM "outbox_event"
    WHERE status IN (0,2) AND lane IS NULL ORDER BY topic, available_at LIMIT ?) a
  UNION ALL
  SELECT * FROM (SELECT 2, topic, status, available_at, lease_until, created_at FROM "outbox_event"
    WHERE status IN (0,2,3) AND lane IS NOT NULL ORDER BY lane, key_seq LIMIT ?) b
  UNION ALL
  SELECT * FROM (SELECT 3, topic, status, available_at, lease_until, created_at FROM "outbox_event"
    WHERE status = 3 ORDER BY id LIMIT ?) c
) e GROUP BY part, topic

-- edit: audit
INSERT INTO "outbox_audit" (at, action, actor, reason, row_id, event_id, topic, new_id, detail)
VALUES ((CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), 'edit', ?, ?, ?, ?, ?, ?, ?)

-- edit: content
UPDATE "outbox_event" SET payload = ?, content_type = NULLIF(?, ''), headers = ? WHERE id = ?

-- edit: end
UPDATE "outbox_event" SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL, done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ?

-- edit: insert
INSERT INTO "outbox_event" (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, ?, '', NULL, NULL, occurred_at, replay_of FROM "outbox_event" WHERE id = ?

-- edit: last
UPDATE "outbox_key" SET last_id = ? WHERE lane = ? AND last_id = ?

-- edit: lock
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.id = ?

-- erase: audit
INSERT INTO "outbox_audit" (at, action, actor, reason, row_id, event_id, topic)
VALUES ((CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), 'erase', ?, ?, ?, ?, ?)

-- erase: content
UPDATE "outbox_event" SET payload = ?, content_type = NULL, headers = ?, last_error = CASE WHEN last_error IS NOT NULL THEN 'erased' END,
  failures = NULL WHERE id = ?

-- erase: detail
UPDATE "outbox_audit" SET detail = 'erased' WHERE id = ?

-- erase: details
SELECT a.id, COALESCE(SUBSTR(a.detail, 1, 4000), '') FROM "outbox_audit" a WHERE a.id > ? ORDER BY a.id LIMIT 1000

-- erase: rows
SELECT e.id, e.event_id, e.topic, e.status, CASE WHEN e.lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) THEN 1 ELSE 0 END, e.headers, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.id IN ({ids}) ORDER BY e.id

-- group: forget
DELETE FROM "outbox_group" WHERE fingerprint = ? AND note = '' AND muted_until IS NULL

-- group: mute
INSERT INTO "outbox_group" (fingerprint, note, muted_until, actor, updated_at)
VALUES (?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))
ON CONFLICT (fingerprint) DO UPDATE SET muted_until = excluded.muted_until, actor = excluded.actor, updated_at = excluded.updated_at

-- group: note
INSERT INTO "outbox_group" (fingerprint, note, muted_until, actor, updated_at)
VALUES (?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))
ON CONFLICT (fingerprint) DO UPDATE SET note = excluded.note, actor = excluded.actor, updated_at = excluded.updated_at

-- group: notes
SELECT fingerprint, note, muted_until, actor, updated_at
FROM "outbox_group" ORDER BY updated_at DESC, fingerprint LIMIT 1000

-- list events by id
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "outbox_event" e WHERE e.id >= ? AND e.id <= ? AND e.id > ? ORDER BY e.id LIMIT ?) e WHERE e.status IN (0,1) AND e.event_type = ? AND e.tenant_id = ? AND e.partition_key = ? AND e.aggregate_type = ? AND e.aggregate_id = ? AND e.last_error_code = ? AND e.error_group = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.id LIMIT ?

-- list events by id, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.id >= ? AND e.id < ? ORDER BY e.id DESC LIMIT ?

-- list events dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "outbox_event" e WHERE e.status = 3 AND e.id > ? ORDER BY e.id LIMIT ?) e WHERE e.event_type = ? AND e.tenant_id = ? AND e.partition_key = ? AND e.aggregate_type = ? AND e.aggregate_id = ? AND e.last_error_code = ? AND e.error_group = ? AND e.created_at >= ? AND e.created_at < ? AND e.lane IS NULL ORDER BY e.id LIMIT ?

-- list events dead, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.status = 3 AND e.id < ? ORDER BY e.id DESC LIMIT ?

-- list events of a key
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane = ? AND e.key_seq > ? AND e.key_seq < ? AND e.key_seq > ? ORDER BY e.key_seq LIMIT ?) e WHERE e.status IN (0) AND e.event_type = ? AND e.tenant_id = ? AND e.partition_key = ? AND e.aggregate_type = ? AND e.aggregate_id = ? AND e.last_error_code = ? AND e.error_group = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.key_seq LIMIT ?

-- list events of a key, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane = ? AND e.key_seq < ? ORDER BY e.key_seq DESC LIMIT ?

-- list events of keys
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane IS NOT NULL AND e.key_seq > ? AND e.key_seq < ? AND (e.lane, e.key_seq) > (?, ?) ORDER BY e.lane, e.key_seq LIMIT ?) e WHERE e.status IN (0) AND e.event_type = ? AND e.tenant_id = ? AND e.partition_key = ? AND e.aggregate_type = ? AND e.aggregate_id = ? AND e.last_error_code = ? AND e.error_group = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.lane, e.key_seq LIMIT ?

-- list events of keys, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.status IN (0,2,3) AND e.lane IS NOT NULL AND e.lane IS NOT NULL AND (e.lane, e.key_seq) < (?, ?) ORDER BY e.lane DESC, e.key_seq DESC LIMIT ?

-- list events open
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic IS NOT NULL AND (e.topic, e.available_at, e.id) > (?, ?, ?) ORDER BY e.topic, e.available_at, e.id LIMIT ?) e WHERE e.status IN (0) AND e.event_type = ? AND e.tenant_id = ? AND e.partition_key = ? AND e.aggregate_type = ? AND e.aggregate_id = ? AND e.last_error_code = ? AND e.error_group = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.topic, e.available_at, e.id LIMIT ?

-- list events open of a topic
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, e.tenant_id, e.partition_key, e.key_seq, e.aggregate_type, e.aggregate_id, e.aggregate_version, e.lane, e.status, e.attempts, e.lost_claims, e.claimed_by, e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, e.last_error_code, e.last_error, e.receipt, e.error_group, e.causation_id, e.replay_of, e.claim_no FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND (e.available_at, e.id) > (?, ?) ORDER BY e.available_at, e.id LIMIT ?) e WHERE e.status IN (0) AND e.event_type = ? AND e.tenant_id = ? AND e.partition_key = ? AND e.aggregate_type = ? AND e.aggregate_id = ? AND e.last_error_code = ? AND e.error_group = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY e.available_at, e.id LIMIT ?

-- list events open of a topic, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic = ? AND (e.available_at, e.id) < (?, ?) ORDER BY e.available_at DESC, e.id DESC LIMIT ?

-- list events open, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), e.lease_until, e.available_at, e.occurred_at, e.created_at, e.done_at, COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_event" e WHERE e.status IN (0,2) AND e.lane IS NULL AND e.topic IS NOT NULL AND (e.topic, e.available_at, e.id) < (?, ?, ?) ORDER BY e.topic DESC, e.available_at DESC, e.id DESC LIMIT ?

-- list events, last
SELECT e.id, e.topic, e.available_at, e.lane, COALESCE(e.key_seq,0) FROM "outbox_event" e WHERE e.id >= ? ORDER BY e.id LIMIT 2 OFFSET ?

-- plan: change
UPDATE "outbox_plan" SET state = ?, body = ?, version = version + 1, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), worker_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE id = ? AND version = ?

-- plan: copies
SELECT a.row_id, n.status, n.attempts FROM "outbox_audit" a JOIN "outbox_event" n ON n.id = a.new_id
WHERE a.action = 'redrive' AND a.row_id IN ({ids}) AND (? = '' OR a.reason = ?)

-- plan: forget
DELETE FROM "outbox_plan" WHERE state IN ('done', 'cancelled') AND updated_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?

-- plan: insert
INSERT INTO "outbox_plan" (id, state, version, body, ids, created_at, updated_at) VALUES (?, ?, 1, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000))

-- plan: list
SELECT id, state, version, body, created_at, updated_at, worker_until, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_plan" ORDER BY created_at DESC, id LIMIT ?

-- plan: outcomes
SELECT e.id, e.status, e.attempts FROM "outbox_event" e WHERE NOT EXISTS (SELECT 1 FROM "outbox_audit" a
  WHERE a.row_id = e.id AND a.action = 'redrive' AND a.new_id IS NOT NULL) AND e.id IN ({ids})
  AND (? = '' OR EXISTS (SELECT 1 FROM "outbox_audit" p WHERE p.row_id = e.id AND p.action = 'redrive' AND
    p.reason = ?))

-- plan: read
SELECT id, state, version, body, created_at, updated_at, worker_until, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ids FROM "outbox_plan" WHERE id = ?

-- plan: times
SELECT updated_at, worker_until, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "outbox_plan" WHERE id = ?

-- read audit
SELECT a.at, a.action, a.actor, a.reason, a.new_id, COALESCE(a.detail, '') FROM "outbox_audit" a WHERE a.row_id = ? ORDER BY a.id DESC LIMIT 100

-- read content
SELECT e.payload, COALESCE(e.content_type,''), e.headers, e.event_id, e.topic FROM "outbox_event" e WHERE e.id = ?

-- read failures
SELECT COALESCE(e.failures,'') FROM "outbox_event" e WHERE e.id = ?

-- record: audit
INSERT INTO "outbox_audit" (at, action, actor, reason, row_id, event_id, topic, detail)
VALUES ((CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, ?, ?, ?, ?, ?, NULLIF(?, ''))

-- replay: done
SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), 1 FROM "outbox_event" e
WHERE e.id IN ({ids}) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id

-- replay: replay
INSERT INTO "outbox_event" (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of, status, claimed_by, done_at)
SELECT ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, ?, payload, content_type, CASE WHEN key_seq IS NULL THEN headers ELSE CASE WHEN headers IS NULL OR json_valid(headers) AND json_type(headers) = 'object' THEN json_insert(COALESCE(headers, '{}'), '$.outbox_first_key_seq', CAST(key_seq AS TEXT)) ELSE headers END END, occurred_at, id, CASE WHEN status = 1 AND claimed_by = 'log' THEN 1 ELSE 0 END, CASE WHEN status = 1 AND claimed_by = 'log' THEN 'log' END, CASE WHEN status = 1 AND claimed_by = 'log' THEN (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) END FROM "outbox_event" WHERE id = ?

-- window: declare
INSERT INTO "outbox_pause" (target, paused_at, ends_at, actor, reason)
VALUES (?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), 0, ?, ?)
ON CONFLICT (target) DO UPDATE SET (paused_at, actor, reason) = (excluded.paused_at, excluded.actor, excluded.reason)

-- window: windows
SELECT target, paused_at, actor, reason FROM "outbox_pause" WHERE target LIKE 'window:%' ORDER BY target LIMIT 1000

-- window: withdraw
DELETE FROM "outbox_pause" WHERE target = ?

