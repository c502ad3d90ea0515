-- append
INSERT INTO `outbox_event` (id, key_seq, available_at, created_at, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, CASE WHEN headers IS NULL OR JSON_TYPE(headers) = 'OBJECT' THEN JSON_INSERT(COALESCE(headers, '{}'), '$.outbox_first_key_seq', CAST(key_seq AS CHAR)) ELSE headers END, occurred_at, replay_of FROM `outbox_event` WHERE id = ?

-- audit
INSERT INTO `outbox_audit` (at, action, actor, reason, row_id, event_id, topic, new_id) VALUES (UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?, ?)

-- begin_suspect
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lost_claims = -ABS(lost_claims) WHERE id IN ({ids})

-- claim
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lost_claims = ABS(lost_claims) +
  CASE WHEN lease_until <= UTC_TIMESTAMP(6) AND claimed_by <> ? AND lost_claims < 3 THEN 1 ELSE 0 END, claim_no = claim_no + 1,
  claimed_by = ?, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE id IN ({ids})

-- cleanup
DELETE FROM `outbox_event` WHERE id IN ({ids}) AND status IN (1,4)

-- clock
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))

-- collect_delete
DELETE FROM `outbox_key` WHERE lane IN ({ids})

-- collect_empty
SELECT k.lane FROM `outbox_key` k WHERE k.lane IN ({ids}) AND NOT EXISTS (SELECT 1 FROM `outbox_event` e FORCE INDEX (`outbox_event_open`) WHERE e.open_lane = k.lane)

-- collect_lock
SELECT k.lane FROM `outbox_key` k WHERE k.lane IN ({ids}) AND k.used_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY k.lane FOR UPDATE SKIP LOCKED

-- count_blocked
SELECT COUNT(DISTINCT x.lane) FROM (SELECT e.lane FROM `outbox_event` e FORCE INDEX (`outbox_event_ended`) WHERE e.ended = 3 AND e.done_at IS NULL AND e.lane IS NOT NULL LIMIT ?) x

-- count_dead
SELECT COUNT(*) FROM (SELECT e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_ended`) WHERE e.ended = 3 AND e.done_at IS NULL LIMIT ?) x

-- count_open
SELECT COUNT(*), MIN(x.created_at) FROM (SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at) AS created_at FROM `outbox_event`
	  e FORCE INDEX (`outbox_event_open`)
  WHERE e.dead = 0 AND e.open_lane IS NOT NULL ORDER BY e.open_lane LIMIT ?) x

-- count_ready
SELECT COUNT(*), MIN(x.created_at) FROM (SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at) AS created_at FROM `outbox_event`
	  e FORCE INDEX (`outbox_event_ready`)
  WHERE e.ready_topic IS NOT NULL ORDER BY e.ready_topic LIMIT ?) x

-- dead
UPDATE `outbox_event` SET status = 3, attempts = attempts + 1, lease_until = NULL, last_error_code = ?, last_error = ? WHERE id = ?

-- dead_for_append
SELECT e.id, e.event_id, e.topic, e.lane, e.key_seq FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status = 3 AND e.lane IS NOT NULL ORDER BY e.id FOR UPDATE

-- discard
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET status = 4, claim_no = claim_no + 1, lease_until = NULL, done_at = UTC_TIMESTAMP(6) WHERE id IN ({ids})

-- discard_dead
UPDATE `outbox_event` SET status = 4, claim_no = claim_no + 1, lease_until = NULL, done_at = UTC_TIMESTAMP(6) WHERE id = ? AND status = 3

-- discard_rows
SELECT e.id, e.event_id, e.topic FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND
	  (e.status = 3 OR e.status IN (0,2)
  AND (? = 1 OR e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6))) ORDER BY e.id FOR UPDATE

-- done
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET status = 1, done_at = UTC_TIMESTAMP(6), lease_until = NULL, last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)

-- done_delete
DELETE FROM `outbox_event` WHERE id IN ({ids}) AND status IN (0,2,3)

-- done_receipts
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET receipt = CASE id{whens} ELSE receipt END, status = 1,
	  done_at = UTC_TIMESTAMP(6), lease_until = NULL,
  last_error_code = NULL, last_error = NULL WHERE id IN ({ids}) AND status IN (0,2,3)

-- ended
SELECT e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_ended`) WHERE e.ended = 1 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY e.done_at LIMIT ?

-- first_created
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at) FROM `outbox_event` e FORCE INDEX (`outbox_event_ready`) WHERE e.ready_topic = ? ORDER BY e.available_at, e.id LIMIT 1

-- heads
SELECT e.id, e.topic, OCTET_LENGTH(e.payload), CASE WHEN e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) THEN 1 ELSE 0 END,
  CASE WHEN (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) OR e.lease_until < e.available_at THEN TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at) ELSE TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until) END - TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
  (SELECT d.key_seq FROM `outbox_event` d FORCE INDEX (`outbox_event_open`) WHERE d.open_lane = e.open_lane AND d.dead = 1 ORDER BY d.key_seq LIMIT 1)
FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2)

-- held
SELECT e.id, e.claim_no FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id

-- held_lock
SELECT e.id, e.claim_no FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id FOR UPDATE SKIP LOCKED

-- insert 1
INSERT INTO `outbox_event` (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6))

-- insert 2
INSERT INTO `outbox_event` (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6)), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, UTC_TIMESTAMP(6))

-- key 1
INSERT INTO `outbox_key` (lane, last_seq, first_seq, last_id, used_at) VALUES (?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)), ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id), last_seq = last_seq + VALUES(last_seq) - VALUES(first_seq) + 1, used_at = VALUES(used_at)

-- key 2
INSERT INTO `outbox_key` (lane, last_seq, first_seq, last_id, used_at) VALUES (?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)), ?, UTC_TIMESTAMP(6)), (?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+?, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)), ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id), last_seq = last_seq + VALUES(last_seq) - VALUES(first_seq) + 1, used_at = VALUES(used_at)

-- key_read 1
SELECT lane, last_seq, first_seq, prev_id FROM `outbox_key` WHERE lane IN (?)

-- key_read 2
SELECT lane, last_seq, first_seq, prev_id FROM `outbox_key` WHERE lane IN (?,?)

-- keys
SELECT k.lane FROM `outbox_key` k WHERE k.lane > ? ORDER BY k.lane LIMIT ?

-- lane_head
SELECT e.key_seq, e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_open`) WHERE e.dead = 0 AND e.open_lane = ? ORDER BY e.key_seq LIMIT 1

-- lane_rows
SELECT e.id, e.open_lane AS lane, e.key_seq, OCTET_LENGTH(e.payload) AS size, CASE WHEN e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) THEN 1 ELSE 0 END AS ok
FROM `outbox_event` e FORCE INDEX (`outbox_event_open`) WHERE e.dead = 0 AND e.open_lane = ? ORDER BY e.key_seq LIMIT ?

-- list_dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at)
FROM `outbox_event` e FORCE INDEX (`outbox_event_ended`) WHERE e.ended = 3 AND e.done_at IS NULL AND e.id > ? AND (? = '' OR CAST(e.topic AS BINARY) = ?) AND (? = '' OR
  CAST(e.event_type AS BINARY) = ?)
  AND (? = '' OR CAST(e.tenant_id AS BINARY) = ?) ORDER BY e.id LIMIT ?

-- lock
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), (SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), CASE WHEN e.lease_until <= UTC_TIMESTAMP(6) AND e.claimed_by <> ? AND e.lost_claims < 3 THEN 1 ELSE 0 END
FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2) AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.id FOR UPDATE SKIP LOCKED

-- lock_lanes
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), (SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), CASE WHEN e.lease_until <= UTC_TIMESTAMP(6) AND e.claimed_by <> ? AND e.lost_claims < 3 THEN 1 ELSE 0 END,
  (SELECT d.key_seq FROM `outbox_event` d FORCE INDEX (`outbox_event_open`) WHERE d.open_lane = e.open_lane AND d.dead = 0 AND d.key_seq < e.key_seq ORDER BY d.key_seq
    DESC LIMIT 1),
  (SELECT d.key_seq FROM `outbox_event` d FORCE INDEX (`outbox_event_open`) WHERE d.open_lane = e.open_lane AND d.dead = 1 AND d.key_seq < e.key_seq ORDER BY d.key_seq LIMIT 1)
FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2) AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.id FOR UPDATE SKIP LOCKED

-- markable
SELECT e.id FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER BY e.id

-- markable_lock
SELECT e.id FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER BY e.id FOR UPDATE SKIP LOCKED

-- next_topic
SELECT e.ready_topic FROM `outbox_event` e FORCE INDEX (`outbox_event_ready`) WHERE e.ready_topic > ? ORDER BY e.ready_topic LIMIT 1

-- open_page
SELECT e.open_lane, e.key_seq, e.id, e.dead FROM `outbox_event` e FORCE INDEX (`outbox_event_open`) WHERE e.open_lane > ? ORDER BY e.open_lane, e.dead, e.key_seq LIMIT ?

-- redrive
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET status = 2, attempts = 0, lost_claims = 0, claim_no = claim_no +
	  1, lease_until = NULL,
  available_at = UTC_TIMESTAMP(6) WHERE id IN ({ids})

-- redrive_rows
SELECT e.id, e.event_id, e.topic FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND
	  e.status = 3 AND (e.lane IS NULL OR ? = 0)
ORDER BY e.id FOR UPDATE

-- release
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lease_until = NULL WHERE id IN ({ids})

-- renew
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE id IN ({ids})

-- reset_keys
UPDATE `outbox_key` SET last_seq = GREATEST(last_seq, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), first_seq = GREATEST(last_seq, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), last_id = NULL, prev_id = NULL

-- retry
UPDATE `outbox_event` SET status = 2, attempts = attempts + 1, available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, lease_until = NULL,
	  last_error_code = ?, last_error = ?
WHERE id = ?

-- topic_due
SELECT MIN(x.t) FROM (SELECT CASE WHEN (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) OR e.lease_until < e.available_at THEN TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at)
  ELSE TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until) END - TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AS t FROM `outbox_event` e FORCE INDEX (`outbox_event_ready`) WHERE e.ready_topic = ? ORDER BY
    e.available_at, e.id LIMIT 1000) x

-- topic_rows
SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_ready`) WHERE e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.available_at, e.id LIMIT ?

-- topic_rows of 2
SELECT * FROM (SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_ready`) WHERE e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.available_at, e.id LIMIT ?) ua UNION ALL SELECT * FROM (SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_ready`) WHERE e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.available_at, e.id LIMIT ?) ub

-- unavailable
UPDATE `outbox_event` SET available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, lease_until = NULL, last_error_code = ?, last_error = ?
WHERE id = ?

-- undo_events
DELETE FROM `outbox_event` WHERE id IN ({ids})

-- undo_first
DELETE FROM `outbox_key` WHERE lane = ?

-- undo_next
UPDATE `outbox_key` SET last_seq = last_seq - ?, last_id = ?, prev_id = NULL WHERE lane = ?

