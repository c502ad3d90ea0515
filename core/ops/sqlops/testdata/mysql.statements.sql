-- destinations: count
SELECT part, topic, COUNT(*), SUM(status <> 3),
  SUM(status <> 3 AND available_at <= UTC_TIMESTAMP(6) AND NOT COALESCE(lease_until > UTC_TIMESTAMP(6), 0)),
  SUM(status <> 3 AND COALESCE(lease_until > UTC_TIMESTAMP(6), 0)), SUM(status = 2), SUM(part = 3),
  COALESCE(TIMESTAMPDIFF(MICROSECOND, MIN(CASE WHEN status <> 3 THEN created_at END), UTC_TIMESTAMP(6)), 0)
FROM (
  (SELECT 1 AS part, topic, status, available_at, lease_until, created_at FROM `outbox_event`
    WHERE open_lane IS NULL AND key_seq IS NULL AND ready_topic IS NOT NULL
    ORDER BY ready_topic, available_at LIMIT ?)
  UNION ALL
  (SELECT 2, topic, status, available_at, lease_until, created_at FROM `outbox_event`
    WHERE open_lane IS NOT NULL ORDER BY open_lane, key_seq LIMIT ?)
  UNION ALL
  (SELECT 3, topic, status, available_at, lease_until, created_at FROM `outbox_event`
    WHERE dead = 1 ORDER BY id LIMIT ?)
) e GROUP BY part, topic

-- edit: audit
INSERT INTO `outbox_audit` (at, action, actor, reason, row_id, event_id, topic, new_id, detail)
VALUES (UTC_TIMESTAMP(6), 'edit', ?, ?, ?, ?, ?, ?, ?)

-- edit: content
UPDATE `outbox_event` SET payload = ?, content_type = NULLIF(?, ''), headers = ? WHERE id = ?

-- edit: end
UPDATE `outbox_event` SET status = 4, claimed_by = NULL, claim_no = 0, lease_until = NULL, done_at = UTC_TIMESTAMP(6) WHERE id = ?

-- edit: insert
INSERT INTO `outbox_event` (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, ?, '', NULL, NULL, occurred_at, replay_of FROM `outbox_event` WHERE id = ?

-- edit: last
UPDATE `outbox_key` SET last_id = ? WHERE lane = ? AND last_id = ?

-- edit: lock
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id = ? FOR UPDATE

-- erase: audit
INSERT INTO `outbox_audit` (at, action, actor, reason, row_id, event_id, topic)
VALUES (UTC_TIMESTAMP(6), 'erase', ?, ?, ?, ?, ?)

-- erase: content
UPDATE `outbox_event` SET payload = ?, content_type = NULL, headers = ?, last_error = CASE WHEN last_error IS NOT NULL THEN 'erased' END,
  failures = NULL WHERE id = ?

-- erase: detail
UPDATE `outbox_audit` SET detail = 'erased' WHERE id = ?

-- erase: details
SELECT a.id, COALESCE(SUBSTR(a.detail, 1, 4000), '') FROM `outbox_audit` a WHERE a.id > ? ORDER BY a.id LIMIT 1000

-- erase: rows
SELECT e.id, e.event_id, e.topic, e.status, CASE WHEN e.lease_until > UTC_TIMESTAMP(6) THEN 1 ELSE 0 END, e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) ORDER BY e.id FOR UPDATE

-- group: forget
DELETE FROM `outbox_group` WHERE fingerprint = ? AND note = '' AND muted_until IS NULL

-- group: mute
INSERT INTO `outbox_group` (fingerprint, note, muted_until, actor, updated_at)
VALUES (?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE muted_until = VALUES(muted_until), actor = VALUES(actor), updated_at = VALUES(updated_at)

-- group: note
INSERT INTO `outbox_group` (fingerprint, note, muted_until, actor, updated_at)
VALUES (?, ?, TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6))
ON DUPLICATE KEY UPDATE note = VALUES(note), actor = VALUES(actor), updated_at = VALUES(updated_at)

-- group: notes
SELECT fingerprint, note, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',muted_until), actor, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at)
FROM `outbox_group` ORDER BY updated_at DESC, fingerprint LIMIT 1000

-- list events by id
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM (SELECT e.id FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id >= ? AND e.id <= ? AND e.id > ? ORDER BY e.id LIMIT ?) l JOIN `outbox_event` e ON e.id = l.id WHERE e.status IN (0,1) AND CAST(e.event_type AS BINARY) = ? AND CAST(e.tenant_id AS BINARY) = ? AND CAST(e.partition_key AS BINARY) = ? AND CAST(e.aggregate_type AS BINARY) = ? AND CAST(e.aggregate_id AS BINARY) = ? AND CAST(e.last_error_code AS BINARY) = ? AND CAST(e.error_group AS BINARY) = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY l.id LIMIT ?

-- list events by id, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id >= ? AND e.id < ? ORDER BY e.id DESC LIMIT ?

-- list events dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM (SELECT e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_dead`) WHERE e.dead = 1 AND e.id > ? ORDER BY e.id LIMIT ?) l JOIN `outbox_event` e ON e.id = l.id WHERE CAST(e.event_type AS BINARY) = ? AND CAST(e.tenant_id AS BINARY) = ? AND CAST(e.partition_key AS BINARY) = ? AND CAST(e.aggregate_type AS BINARY) = ? AND CAST(e.aggregate_id AS BINARY) = ? AND CAST(e.last_error_code AS BINARY) = ? AND CAST(e.error_group AS BINARY) = ? AND e.created_at >= ? AND e.created_at < ? AND e.lane IS NULL ORDER BY l.id LIMIT ?

-- list events dead, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (`outbox_event_dead`) WHERE e.dead = 1 AND e.id < ? ORDER BY e.id DESC LIMIT ?

-- list events of a key
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM (SELECT e.key_seq, e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane = ? AND e.key_seq > ? AND e.key_seq < ? AND e.key_seq > ? ORDER BY e.key_seq LIMIT ?) l JOIN `outbox_event` e ON e.id = l.id WHERE e.status IN (0) AND CAST(e.event_type AS BINARY) = ? AND CAST(e.tenant_id AS BINARY) = ? AND CAST(e.partition_key AS BINARY) = ? AND CAST(e.aggregate_type AS BINARY) = ? AND CAST(e.aggregate_id AS BINARY) = ? AND CAST(e.last_error_code AS BINARY) = ? AND CAST(e.error_group AS BINARY) = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY l.key_seq LIMIT ?

-- list events of a key, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane = ? AND e.key_seq < ? ORDER BY e.key_seq DESC LIMIT ?

-- list events of keys
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM (SELECT e.lane, e.key_seq, e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NOT NULL AND e.key_seq > ? AND e.key_seq < ? AND (e.open_lane > ? OR e.open_lane = ? AND e.key_seq > ?) ORDER BY e.open_lane, e.key_seq LIMIT ?) l JOIN `outbox_event` e ON e.id = l.id WHERE e.status IN (0) AND CAST(e.event_type AS BINARY) = ? AND CAST(e.tenant_id AS BINARY) = ? AND CAST(e.partition_key AS BINARY) = ? AND CAST(e.aggregate_type AS BINARY) = ? AND CAST(e.aggregate_id AS BINARY) = ? AND CAST(e.last_error_code AS BINARY) = ? AND CAST(e.error_group AS BINARY) = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY l.lane, l.key_seq LIMIT ?

-- list events of keys, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NOT NULL AND (e.open_lane < ? OR e.open_lane = ? AND e.key_seq < ?) ORDER BY e.open_lane DESC, e.key_seq DESC LIMIT ?

-- list events open
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM (SELECT e.topic, e.available_at, e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic IS NOT NULL AND (e.ready_topic > ? OR e.ready_topic = ? AND e.available_at > ? OR e.ready_topic = ? AND e.available_at = ? AND e.id > ?) ORDER BY e.ready_topic, e.available_at, e.id LIMIT ?) l JOIN `outbox_event` e ON e.id = l.id WHERE e.status IN (0) AND CAST(e.event_type AS BINARY) = ? AND CAST(e.tenant_id AS BINARY) = ? AND CAST(e.partition_key AS BINARY) = ? AND CAST(e.aggregate_type AS BINARY) = ? AND CAST(e.aggregate_id AS BINARY) = ? AND CAST(e.last_error_code AS BINARY) = ? AND CAST(e.error_group AS BINARY) = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY l.topic, l.available_at, l.id LIMIT ?

-- list events open of a topic
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM (SELECT e.available_at, e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND (e.available_at > ? OR e.available_at = ? AND e.id > ?) ORDER BY e.available_at, e.id LIMIT ?) l JOIN `outbox_event` e ON e.id = l.id WHERE e.status IN (0) AND CAST(e.event_type AS BINARY) = ? AND CAST(e.tenant_id AS BINARY) = ? AND CAST(e.partition_key AS BINARY) = ? AND CAST(e.aggregate_type AS BINARY) = ? AND CAST(e.aggregate_id AS BINARY) = ? AND CAST(e.last_error_code AS BINARY) = ? AND CAST(e.error_group AS BINARY) = ? AND e.created_at >= ? AND e.created_at < ? ORDER BY l.available_at, l.id LIMIT ?

-- list events open of a topic, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND (e.available_at < ? OR e.available_at = ? AND e.id < ?) ORDER BY e.available_at DESC, e.id DESC LIMIT ?

-- list events open, newest
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic IS NOT NULL AND (e.ready_topic < ? OR e.ready_topic = ? AND e.available_at < ? OR e.ready_topic = ? AND e.available_at = ? AND e.id < ?) ORDER BY e.ready_topic DESC, e.available_at DESC, e.id DESC LIMIT ?

-- list events, last
SELECT e.id, e.topic, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), e.lane, COALESCE(e.key_seq,0) FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id >= ? ORDER BY e.id LIMIT 2 OFFSET ?

-- plan: change
UPDATE `outbox_plan` SET state = ?, body = ?, version = version + 1, updated_at = UTC_TIMESTAMP(6), worker_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE id = ? AND version = ?

-- plan: copies
SELECT a.row_id, n.status, n.attempts FROM `outbox_audit` a JOIN `outbox_event` n ON n.id = a.new_id
WHERE a.action = 'redrive' AND a.row_id IN ({ids}) AND (? = '' OR a.reason = ?)

-- plan: forget
DELETE FROM `outbox_plan` WHERE state IN ('done', 'cancelled') AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND

-- plan: insert
INSERT INTO `outbox_plan` (id, state, version, body, ids, created_at, updated_at) VALUES (?, ?, 1, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6))

-- plan: list
SELECT id, state, version, body, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',worker_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_plan` ORDER BY created_at DESC, id LIMIT ?

-- plan: outcomes
SELECT e.id, e.status, e.attempts FROM `outbox_event` e WHERE NOT EXISTS (SELECT 1 FROM `outbox_audit` a
  WHERE a.row_id = e.id AND a.action = 'redrive' AND a.new_id IS NOT NULL) AND e.id IN ({ids})
  AND (? = '' OR EXISTS (SELECT 1 FROM `outbox_audit` p WHERE p.row_id = e.id AND p.action = 'redrive' AND
    p.reason = ?))

-- plan: read
SELECT id, state, version, body, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',worker_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)), ids FROM `outbox_plan` WHERE id = ?

-- plan: times
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',worker_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_plan` WHERE id = ?

-- read audit
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',a.at), a.action, a.actor, a.reason, a.new_id, COALESCE(a.detail, '') FROM `outbox_audit` a WHERE a.row_id = ? ORDER BY a.id DESC LIMIT 100

-- read content
SELECT e.payload, COALESCE(e.content_type,''), e.headers, e.event_id, e.topic FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id = ?

-- read failures
SELECT COALESCE(e.failures,'') FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id = ?

-- record: audit
INSERT INTO `outbox_audit` (at, action, actor, reason, row_id, event_id, topic, detail)
VALUES (UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?, NULLIF(?, ''))

-- replay: done
SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  COALESCE(e.key_seq, 0), 1 FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND e.status = 1 AND e.replay_of IS NULL ORDER BY e.id FOR UPDATE

-- replay: replay
INSERT INTO `outbox_event` (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of, status, claimed_by, done_at)
SELECT ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, ?, payload, content_type, CASE WHEN key_seq IS NULL THEN headers ELSE CASE WHEN headers IS NULL OR JSON_TYPE(headers) = 'OBJECT' THEN JSON_INSERT(COALESCE(headers, '{}'), '$.outbox_first_key_seq', CAST(key_seq AS CHAR)) ELSE headers END END, occurred_at, id, CASE WHEN status = 1 AND claimed_by = 'log' THEN 1 ELSE 0 END, CASE WHEN status = 1 AND claimed_by = 'log' THEN 'log' END, CASE WHEN status = 1 AND claimed_by = 'log' THEN UTC_TIMESTAMP(6) END FROM `outbox_event` WHERE id = ?

-- window: declare
INSERT INTO `outbox_pause` (target, paused_at, ends_at, actor, reason)
VALUES (?, UTC_TIMESTAMP(6), TIMESTAMP'1970-01-01 00:00:00', ?, ?)
ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), actor = VALUES(actor), reason = VALUES(reason)

-- window: windows
SELECT target, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',paused_at), actor, reason FROM `outbox_pause` WHERE target LIKE 'window:%' ORDER BY target LIMIT 1000

-- window: withdraw
DELETE FROM `outbox_pause` WHERE target = ?

