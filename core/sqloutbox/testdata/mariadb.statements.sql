-- admin: seen
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), COALESCE(e.key_seq,0), COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, e.lane, e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.claimed_by,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), COALESCE(e.error_group,''), COALESCE(e.causation_id,''), e.replay_of, e.claim_no, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) ORDER BY e.id FOR UPDATE

-- append
INSERT INTO `outbox_event` (id, key_seq, available_at, created_at, failures,
	  event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, payload, content_type, headers, occurred_at, replay_of)
SELECT ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), failures, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, ?, payload, content_type, CASE WHEN headers IS NULL OR JSON_TYPE(headers) = 'OBJECT' THEN JSON_INSERT(COALESCE(headers, '{}'), '$.outbox_first_key_seq', CAST(key_seq AS CHAR)) ELSE headers END, occurred_at, replay_of FROM `outbox_event` WHERE id = ?

-- archivable
SELECT e.id, CASE WHEN (e.status = 1 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR e.status = 4 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) THEN OCTET_LENGTH(e.payload) END FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id > ? ORDER BY e.id LIMIT ?

-- archive_rows
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), e.status, e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), COALESCE(e.receipt,''), e.replay_of, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.done_at) FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND (e.status = 1 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR e.status = 4 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) ORDER BY e.id FOR UPDATE SKIP LOCKED

-- audit
INSERT INTO `outbox_audit` (at, action, actor, reason, row_id, event_id, topic, new_id) VALUES (UTC_TIMESTAMP(6), ?, ?, ?, ?, ?, ?, ?)

-- audit: count
SELECT a.action, COUNT(*) FROM `outbox_audit` a WHERE a.id > ? AND a.id <= ? GROUP BY a.action

-- audit: list
SELECT a.id, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',a.at), a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM `outbox_audit` a WHERE a.id < ? ORDER BY a.id DESC LIMIT ?

-- audit: of_row
SELECT a.id, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',a.at), a.action, a.actor, a.reason, a.row_id, a.event_id, a.topic, a.new_id FROM `outbox_audit` a WHERE a.row_id = ? AND a.id < ? ORDER BY a.id DESC LIMIT ?

-- begin_suspect
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lost_claims = -ABS(lost_claims) WHERE id IN ({ids})

-- claim
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lost_claims = ABS(lost_claims) +
  CASE WHEN lease_until <= UTC_TIMESTAMP(6) AND claimed_by <> ? AND lost_claims < 3 THEN 1 ELSE 0 END, claim_no = ?,
  claimed_by = ?, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE id IN ({ids})

-- cleanup
DELETE FROM `outbox_event` WHERE id IN ({ids}) AND (status = 1 AND done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR status = 4 AND done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND)

-- clock
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))

-- collect_delete
DELETE FROM `outbox_key` WHERE lane IN ({ids})

-- collect_empty
SELECT k.lane FROM `outbox_key` k WHERE k.lane IN ({ids}) AND NOT EXISTS (SELECT 1 FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane = k.lane)

-- collect_lock
SELECT k.lane FROM `outbox_key` k WHERE k.lane IN ({ids}) AND k.used_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY k.lane FOR UPDATE SKIP LOCKED

-- count_dead
SELECT COUNT(*), COUNT(DISTINCT x.lane) FROM (SELECT e.lane FROM `outbox_event` e FORCE INDEX (`outbox_event_dead`) WHERE e.dead = 1 LIMIT ?) x

-- count_keyed
SELECT COUNT(*), COUNT(x.pending), MIN(CASE WHEN x.pending = 1 THEN x.created_at END)
  FROM (SELECT CASE WHEN e.status <> 3 THEN 1 END AS pending, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at) AS created_at
    FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NOT NULL ORDER BY e.open_lane LIMIT ?) x

-- count_ready
SELECT COUNT(*), MIN(x.created_at) FROM (SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at) AS created_at FROM `outbox_event`
	  e FORCE INDEX (`outbox_event_work`)
  WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic IS NOT NULL ORDER BY e.ready_topic LIMIT ?) x

-- dead
UPDATE `outbox_event` SET failures = RIGHT(CONCAT(COALESCE(failures, ''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)), ' ', attempts + 1, ?), 5100), status = 3, attempts = attempts + 1, lease_until = NULL,
  lane = CASE WHEN ? = 1 THEN NULL ELSE lane END, last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?

-- dead_for_append
SELECT e.id, e.event_id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.partition_key, ''),
  e.key_seq, CASE WHEN e.replay_of IS NULL THEN 0 ELSE 1 END FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND e.status = 3 AND e.key_seq IS NOT NULL AND (? = 1 OR e.lane IS NULL) ORDER BY e.id FOR UPDATE

-- dead_heads
SELECT e.id FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status = 3 AND
  e.lane IS NOT NULL ORDER BY e.id FOR UPDATE SKIP LOCKED

-- discard
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET status = 4, claim_no = 0, claimed_by = NULL, lease_until = NULL, done_at = UTC_TIMESTAMP(6) WHERE id IN ({ids})

-- discard_dead
UPDATE `outbox_event` SET status = 4, claim_no = 0, claimed_by = NULL, lease_until = NULL, done_at = UTC_TIMESTAMP(6) WHERE id = ? AND status = 3

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
SELECT e.id, CASE WHEN (e.status = 1 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR e.status = 4 AND e.done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) THEN 1 ELSE 0 END FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id > ? ORDER BY e.id LIMIT ?

-- first_created
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? ORDER BY e.available_at, e.id LIMIT 1

-- first_lane
SELECT e.open_lane FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane > ? ORDER BY e.open_lane, e.key_seq LIMIT 1

-- heads
SELECT e.id, e.topic, COALESCE(e.tenant_id, ''), OCTET_LENGTH(e.payload),
  CASE WHEN e.status <> 3 AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) THEN 1 ELSE 0 END, CASE WHEN (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) OR e.lease_until < e.available_at THEN TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at) ELSE TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until) END - TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)),
  CASE WHEN e.status = 3 THEN 1 ELSE 0 END
FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2,3)

-- held
SELECT e.id, e.claim_no FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id

-- held_lock
SELECT e.id, e.claim_no FROM `outbox_event` e FORCE INDEX (PRIMARY)
WHERE e.id IN ({ids}) AND e.claimed_by = ? AND e.status IN (0,2) AND e.lease_until IS NOT NULL ORDER BY e.id FOR UPDATE SKIP LOCKED

-- history: add 2
INSERT INTO `outbox_history` (part, slot, topic, published, refused, died)
VALUES (CONCAT(TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300, ':', ?), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL (TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300) * 300 SECOND, ?, ?, ?, ?), (CONCAT(TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300, ':', ?), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL (TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300) * 300 SECOND, ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE published = published + VALUES(published), refused = refused + VALUES(refused), died = died + VALUES(died)

-- history: forget
DELETE FROM `outbox_history` WHERE part < CONCAT((TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300) - ?, ':') AND
  slot < (SELECT x.bound FROM (SELECT slot + INTERVAL 1 HOUR AS bound FROM `outbox_history` ORDER BY part LIMIT 1) x)

-- history: open
INSERT IGNORE INTO `outbox_history` (part, slot, topic, published, refused, died)
VALUES (CONCAT(TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300, ':', ''), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL (TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300) * 300 SECOND, '', 0, 0, 0)

-- history: read
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',slot), CAST(SUM(published) AS SIGNED), CAST(SUM(refused) AS SIGNED), CAST(SUM(died) AS SIGNED), MAX(waiting), MAX(dead), MAX(blocked_keys), MAX(oldest), MAX(more)
FROM `outbox_history` WHERE part >= CONCAT((TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300) - ?, ':') AND (? = '' OR topic = ?)
GROUP BY slot ORDER BY slot LIMIT 2017

-- history: set
UPDATE `outbox_history` SET waiting = ?, dead = ?, blocked_keys = ?, oldest = ?, more = ?
WHERE part = CONCAT(TIMESTAMPDIFF(SECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP()) DIV 300, ':', '')

-- insert 2
INSERT INTO `outbox_event` (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at) SELECT CAST(? AS BINARY), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS BINARY), ?, COALESCE(CAST(? AS BINARY), UNCOMPRESS('')), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, CAST(? AS CHAR), UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1 UNION ALL SELECT CAST(? AS BINARY), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS BINARY), ?, COALESCE(CAST(? AS BINARY), UNCOMPRESS('')), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, CAST(? AS CHAR), UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1

-- insert 2, by the log
INSERT INTO `outbox_event` (id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, lane, key_seq, payload, content_type, headers, claim_no, claimed_by, lease_until, available_at, occurred_at, created_at, status, done_at) SELECT CAST(? AS BINARY), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS BINARY), ?, COALESCE(CAST(? AS BINARY), UNCOMPRESS('')), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, CAST(? AS CHAR), UTC_TIMESTAMP(6), ?, CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) END FROM DUAL WHERE @@in_transaction = 1 UNION ALL SELECT CAST(? AS BINARY), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), CAST(? AS CHAR), CAST(? AS BINARY), ?, COALESCE(CAST(? AS BINARY), UNCOMPRESS('')), CAST(? AS CHAR), CAST(? AS CHAR), ?, CAST(? AS CHAR), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, CAST(? AS CHAR), UTC_TIMESTAMP(6), ?, CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) END FROM DUAL WHERE @@in_transaction = 1

-- insert one
INSERT INTO `outbox_event` (id, event_id, event_type, topic, payload, occurred_at, available_at, created_at) SELECT ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1

-- insert one, by the log
INSERT INTO `outbox_event` (id, event_id, event_type, topic, payload, occurred_at, status, claimed_by, done_at, available_at, created_at) SELECT ?, ?, ?, ?, ?, ?, 1, 'log', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1

-- insert one, everything
INSERT INTO `outbox_event` (id, event_id, event_type, topic, payload, occurred_at, claim_no, claimed_by, lease_until, available_at, lane, key_seq, schema_version, aggregate_type, aggregate_id, aggregate_version, tenant_id, partition_key, content_type, headers, created_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1

-- insert one, hot and ordered
INSERT INTO `outbox_event` (id, event_id, event_type, topic, payload, occurred_at, claim_no, claimed_by, lease_until, available_at, lane, key_seq, created_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6), ?, ?, UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1

-- key 1
INSERT INTO `outbox_key` (lane, last_seq, first_seq, last_id, used_at) SELECT ? AS c1, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+? AS c2, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AS c3, ? AS c4, UTC_TIMESTAMP(6) AS c5 FROM DUAL WHERE @@in_transaction = 1 ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id), last_seq = last_seq + VALUES(last_seq) - VALUES(first_seq) + 1, used_at = VALUES(used_at) RETURNING lane, last_seq, first_seq, prev_id

-- key 2
INSERT INTO `outbox_key` (lane, last_seq, first_seq, last_id, used_at) SELECT c1, c2, c3, c4, c5 FROM (SELECT CAST(? AS BINARY(16)) AS c1, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+? AS c2, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AS c3, CAST(? AS BINARY(16)) AS c4, UTC_TIMESTAMP(6) AS c5 UNION ALL SELECT CAST(? AS BINARY(16)) AS c1, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))+? AS c2, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AS c3, CAST(? AS BINARY(16)) AS c4, UTC_TIMESTAMP(6) AS c5) v WHERE @@in_transaction = 1 ON DUPLICATE KEY UPDATE prev_id = last_id, last_id = VALUES(last_id), last_seq = last_seq + VALUES(last_seq) - VALUES(first_seq) + 1, used_at = VALUES(used_at) RETURNING lane, last_seq, first_seq, prev_id

-- keys
SELECT k.lane FROM `outbox_key` k WHERE k.lane > ? ORDER BY k.lane LIMIT ?

-- lane_page
SELECT e.open_lane, COALESCE(e.key_seq, 0), e.id FROM `outbox_event` e FORCE INDEX (`outbox_event_work`)
WHERE e.open_lane > ? ORDER BY e.open_lane, e.key_seq LIMIT ?

-- lane_rows
SELECT e.id, e.topic, COALESCE(e.tenant_id, ''), COALESCE(e.key_seq, 0), OCTET_LENGTH(e.payload),
  CASE WHEN e.status <> 3 AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) THEN 1 ELSE 0 END, CASE WHEN e.status = 3 THEN 1 ELSE 0 END
FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane = ? ORDER BY e.key_seq LIMIT ?

-- leave
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lane = NULL WHERE id IN ({ids})

-- list_dead
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), e.attempts, ABS(e.lost_claims), COALESCE(e.last_error_code,''), COALESCE(e.last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at)
FROM `outbox_event` e FORCE INDEX (`outbox_event_dead`) WHERE e.dead = 1 AND e.id > ? AND (? = '' OR CAST(e.topic AS BINARY) = ?) AND (? = '' OR
  CAST(e.event_type AS BINARY) = ?)
  AND (? = '' OR CAST(e.tenant_id AS BINARY) = ?) ORDER BY e.id LIMIT ?

-- lock
SELECT e.id, e.event_id, e.event_type, e.schema_version, e.topic, COALESCE(e.aggregate_type,''), COALESCE(e.aggregate_id,''), e.aggregate_version, COALESCE(e.tenant_id,''), COALESCE(e.partition_key,''), e.lane, COALESCE(e.key_seq,0), e.payload, COALESCE(e.content_type,''), e.headers, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.occurred_at), e.attempts, ABS(e.lost_claims), e.claim_no, e.replay_of, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.created_at), (SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), CASE WHEN e.lease_until <= UTC_TIMESTAMP(6) AND e.claimed_by <> ? AND e.lost_claims < 3 THEN 1 ELSE 0 END
FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2) AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.id FOR UPDATE SKIP LOCKED

-- markable
SELECT e.id FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER BY e.id

-- markable_lock
SELECT e.id FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND e.status IN (0,2,3) ORDER BY e.id FOR UPDATE SKIP LOCKED

-- next_topic
SELECT e.ready_topic FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic > ? ORDER BY e.ready_topic LIMIT 1

-- pause: clock
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))

-- pause: pause
INSERT INTO `outbox_pause` (target, paused_at, ends_at, actor, reason)
VALUES (?, UTC_TIMESTAMP(6), TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ? MICROSECOND, ?, ?)
ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), ends_at = VALUES(ends_at), actor = VALUES(actor), reason = VALUES(reason)

-- pause: resume
DELETE FROM `outbox_pause` WHERE target = ? AND (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6))

-- pause: settings
SELECT target, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',paused_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',ends_at), COALESCE(per_second, 0), COALESCE(in_flight, 0),
  actor, reason, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))
FROM `outbox_pause` WHERE target LIKE 'rate:%' OR (ends_at IS NULL OR ends_at > UTC_TIMESTAMP(6))
ORDER BY CASE WHEN target LIKE 'rate:%' THEN 0 WHEN target LIKE 'tenant:%' THEN 2 ELSE 1 END, target LIMIT 2000

-- rate: remove
DELETE FROM `outbox_pause` WHERE target = ?

-- rate: set
INSERT INTO `outbox_pause` (target, paused_at, per_second, in_flight, actor, reason)
VALUES (?, UTC_TIMESTAMP(6), ?, ?, ?, ?)
ON DUPLICATE KEY UPDATE paused_at = VALUES(paused_at), per_second = VALUES(per_second), in_flight = VALUES(in_flight), actor = VALUES(actor), reason = VALUES(reason)

-- redrive
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET status = 2, attempts = 0, lost_claims = 0, claim_no = 0,
  claimed_by = NULL, lease_until = NULL,
  available_at = UTC_TIMESTAMP(6) WHERE id IN ({ids})

-- redrive_rows
SELECT e.id, e.event_id, e.topic FROM `outbox_event` e FORCE INDEX (PRIMARY) WHERE e.id IN ({ids}) AND
	  e.status = 3 AND (e.key_seq IS NULL OR e.lane IS NOT NULL AND ? = 0)
ORDER BY e.id FOR UPDATE

-- relay: beat
INSERT INTO `outbox_relay` (node, host, pid, program, version, all_topics, topics, seen_at, started_at, claimed_at, published_at, state)
VALUES (?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND, ?)
ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at), started_at = VALUES(started_at), claimed_at = VALUES(claimed_at), published_at = VALUES(published_at), state = VALUES(state)

-- relay: forget
DELETE FROM `outbox_relay` WHERE seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND

-- relay: pending_topics
SELECT x.topic FROM (SELECT e.topic AS topic, e.status AS status
  FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane >= ? AND e.open_lane <= ?
  ORDER BY e.open_lane, e.key_seq LIMIT 100) x
WHERE x.status <> 3 LIMIT 1

-- relay: relays
SELECT node, host, pid, program, version, all_topics, topics, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',started_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',seen_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',claimed_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',published_at), state, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))
FROM `outbox_relay` ORDER BY seen_at DESC, node LIMIT 1000

-- relay: remove
DELETE FROM `outbox_relay` WHERE node = ?

-- release
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lease_until = NULL WHERE id IN ({ids})

-- renew
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE id IN ({ids})

-- reset_keys
UPDATE `outbox_key` SET last_seq = GREATEST(last_seq, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), first_seq = GREATEST(last_seq, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6))), last_id = NULL, prev_id = NULL WHERE lane <> X'00000000000000000000000000000000'

-- retry
UPDATE `outbox_event` SET failures = RIGHT(CONCAT(COALESCE(failures, ''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)), ' ', attempts + 1, ?), 5100),
	  status = 2, attempts = attempts + 1, available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, lease_until = NULL,
	  last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?

-- topic_due
SELECT MIN(x.t) FROM (SELECT CASE WHEN (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) OR e.lease_until < e.available_at THEN TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at)
  ELSE TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until) END - TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AS t FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? ORDER BY
    e.available_at, e.id LIMIT 1000) x

-- topic_due without 2 tenants
SELECT MIN(x.t) FROM (SELECT CASE WHEN (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) OR e.lease_until < e.available_at THEN TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.available_at)
  ELSE TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',e.lease_until) END - TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',UTC_TIMESTAMP(6)) AS t FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND (e.tenant_id IS NULL OR CAST(e.tenant_id AS BINARY) NOT IN (?,?)) ORDER BY
    e.available_at, e.id LIMIT 1000) x

-- topic_rows
SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.available_at, e.id LIMIT ?

-- topic_rows of 2
SELECT * FROM (SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.available_at, e.id LIMIT ?) ua UNION ALL SELECT * FROM (SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY e.available_at, e.id LIMIT ?) ub

-- topic_rows of 2 without 2 tenants
SELECT * FROM (SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) AND (e.tenant_id IS NULL OR CAST(e.tenant_id AS BINARY) NOT IN (?,?)) ORDER BY e.available_at, e.id LIMIT ?) ua UNION ALL SELECT * FROM (SELECT e.id, e.topic, OCTET_LENGTH(e.payload) FROM `outbox_event` e FORCE INDEX (`outbox_event_work`) WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic = ? AND e.available_at <= UTC_TIMESTAMP(6) AND (e.lease_until IS NULL OR e.lease_until <= UTC_TIMESTAMP(6) OR e.lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) AND (e.tenant_id IS NULL OR CAST(e.tenant_id AS BINARY) NOT IN (?,?)) ORDER BY e.available_at, e.id LIMIT ?) ub

-- try_alone
UPDATE `outbox_event` FORCE INDEX (PRIMARY) SET lost_claims = ABS(lost_claims), available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE id IN ({ids})

-- type: backlog
SELECT x.event_type, x.status, COUNT(*) FROM (
  SELECT * FROM (SELECT CAST(e.event_type AS BINARY) AS event_type, e.status AS status FROM `outbox_event` e FORCE INDEX (`outbox_event_work`)
    WHERE e.open_lane IS NULL AND e.key_seq IS NULL AND e.ready_topic IS NOT NULL ORDER BY e.ready_topic LIMIT ?) a
  UNION ALL
  SELECT * FROM (SELECT CAST(e.event_type AS BINARY) AS event_type, e.status AS status FROM `outbox_event` e FORCE INDEX (`outbox_event_work`)
    WHERE e.open_lane IS NOT NULL ORDER BY e.open_lane LIMIT ?) b WHERE b.status <> 3
  UNION ALL
  SELECT * FROM (SELECT CAST(e.event_type AS BINARY) AS event_type, e.status AS status FROM `outbox_event` e FORCE INDEX (`outbox_event_dead`)
    WHERE e.dead = 1 LIMIT ?) c
) x GROUP BY x.event_type, x.status

-- unavailable
UPDATE `outbox_event` SET available_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, lease_until = NULL, last_error_code = ?, last_error = ?, error_group = ?
WHERE id = ?

-- undo_events
DELETE FROM `outbox_event` WHERE id IN ({ids})

-- undo_first
DELETE FROM `outbox_key` WHERE lane = ?

-- undo_next
UPDATE `outbox_key` SET last_seq = last_seq - ?, last_id = ?, prev_id = NULL WHERE lane = ?

