-- cleanup_delete of 2
DELETE FROM `my_inbox_seen` WHERE (handler_id = ? AND tenant_id = ? AND event_id = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ?)

-- cleanup_discarded_delete of 2
DELETE FROM `my_inbox_failure` WHERE (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?) OR (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?)

-- cleanup_discarded_find
SELECT handler, tenant_id, event_id FROM `my_inbox_failure` WHERE consumer = ? AND status = 0 AND last_error_code = 'discarded' AND received_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY received_at LIMIT ? FOR UPDATE SKIP LOCKED

-- cleanup_find
SELECT tenant_id, event_id FROM `my_inbox_seen` WHERE handler_id = ? AND processed_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY processed_at LIMIT ? FOR UPDATE SKIP LOCKED

-- cleanup_keys
DELETE FROM `my_inbox_key` WHERE consumer = ? AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND LIMIT ?

-- database_advance_key
UPDATE `my_inbox_key` SET last_seq = ?, updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND topic = ? AND partition_key = ? AND last_seq < ?

-- database_insert of 2
INSERT INTO `my_inbox_seen` (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES (?, ?, ?, ?, 1, UTC_TIMESTAMP(6)), (?, ?, ?, ?, 1, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE copies = copies + 1

-- database_key
INSERT INTO `my_inbox_key` (consumer, handler, tenant_id, topic, partition_key, last_seq, updated_at) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE updated_at = UTC_TIMESTAMP(6)

-- database_see of 2
SELECT tenant_id, event_id, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, copies FROM `my_inbox_seen` WHERE (handler_id = ? AND tenant_id = ? AND event_id = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ?) FOR UPDATE

-- dead
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',received_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',failed_at),0) FROM `my_inbox_failure` WHERE consumer = ? AND status = 4

-- desk_consumer
SELECT consumer FROM `my_inbox_failure` WHERE consumer > ? ORDER BY consumer LIMIT 1

-- desk_failures of 2
SELECT 0, CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) FROM `my_inbox_failure` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? UNION ALL SELECT 1, CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) FROM `my_inbox_failure` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- desk_handlers
SELECT h.consumer, h.handler, COALESCE((SELECT p.topic FROM `my_inbox_program` p WHERE p.handler_id = h.handler_id ORDER BY p.seen_at DESC LIMIT 1),''), COALESCE((SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',s.processed_at) FROM `my_inbox_seen` s WHERE s.handler_id = h.handler_id AND s.processed_at IS NOT NULL ORDER BY s.processed_at DESC LIMIT 1),0) FROM `my_inbox_handler` h ORDER BY h.consumer, h.handler LIMIT ?

-- desk_last
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',received_at), handler, tenant_id, event_id FROM `my_inbox_failure` WHERE consumer = ? AND status = ? AND received_at >= CAST('1970-01-01 00:00:00' AS DATETIME(6)) + INTERVAL ? MICROSECOND AND (TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',received_at), handler, tenant_id, event_id) > (?, ?, ?, ?) ORDER BY received_at, handler, tenant_id, event_id LIMIT 1 OFFSET ?

-- desk_rows
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',received_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',failed_at),0), CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END FROM (SELECT * FROM `my_inbox_failure` WHERE consumer = ? AND status = ? AND received_at >= CAST('1970-01-01 00:00:00' AS DATETIME(6)) + INTERVAL ? MICROSECOND AND (TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',received_at), handler, tenant_id, event_id) > (?, ?, ?, ?) ORDER BY received_at, handler, tenant_id, event_id LIMIT ?) f WHERE 1 = 1

-- desk_seen of 2
SELECT 0, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',processed_at),0), attempts, COALESCE(source,'') FROM `my_inbox_seen` WHERE handler_id = ? AND tenant_id = ? AND event_id = ? UNION ALL SELECT 1, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',processed_at),0), attempts, COALESCE(source,'') FROM `my_inbox_seen` WHERE handler_id = ? AND tenant_id = ? AND event_id = ?

-- desk_status
SELECT status FROM `my_inbox_failure` WHERE consumer = ? AND status < ? ORDER BY status DESC LIMIT 1

-- desk_sum
SELECT handler, n, TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),oldest) FROM (SELECT handler, COUNT(*) AS n, MIN(received_at) AS oldest FROM (SELECT handler, received_at, status, last_error_code FROM `my_inbox_failure` WHERE consumer = ? AND status = ? ORDER BY received_at LIMIT ?) f WHERE CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END >= 0 GROUP BY handler) h

-- discard
UPDATE `my_inbox_failure` SET status = 0, attempts = 0, last_error_code = 'discarded', last_error = ?, received_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 4

-- fail
UPDATE `my_inbox_failure` SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, failed_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- first_failure
SELECT status, attempts, TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),received_at) FROM `my_inbox_failure` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? FOR UPDATE

-- forget
DELETE FROM `my_inbox_failure` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 0 AND last_error_code = 'discarded'

-- handlers
SELECT handler FROM `my_inbox_handler` WHERE consumer = ?

-- insert_guarded
INSERT INTO `my_inbox_seen` (handler_id, tenant_id, event_id, source, attempts, processed_at) SELECT ?, ?, ?, ?, 1, UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1 ON DUPLICATE KEY UPDATE copies = copies + 1

-- insert_plain
INSERT INTO `my_inbox_seen` (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES (?, ?, ?, ?, 1, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE copies = copies + 1

-- list
INSERT IGNORE INTO `my_inbox_handler` (handler_id, consumer, handler) VALUES (?, ?, ?)

-- lock_old of 2
SELECT tenant_id, event_id FROM `my_inbox_seen` WHERE (handler_id = ? AND tenant_id = ? AND event_id = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',processed_at) = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',processed_at) = ?) FOR UPDATE SKIP LOCKED

-- old
SELECT s.tenant_id, s.event_id, COALESCE(s.source,''), s.attempts, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',s.processed_at), CASE WHEN f.status IS NULL THEN 0 ELSE 1 END, COALESCE(f.last_error,'') FROM `my_inbox_seen` s LEFT JOIN `my_inbox_failure` f ON f.consumer = ? AND f.handler = ? AND f.tenant_id = s.tenant_id AND f.event_id = s.event_id AND f.status = 0 AND f.last_error_code = 'discarded' WHERE s.handler_id = ? AND s.processed_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY s.processed_at LIMIT ?

-- open
INSERT INTO `my_inbox_seen` (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES (?, ?, ?, ?, 0, NULL) ON DUPLICATE KEY UPDATE copies = copies + 1

-- open_failure
INSERT INTO `my_inbox_failure` (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE attempts = attempts

-- others
SELECT program, COALESCE(topic,'') FROM `my_inbox_program` WHERE handler_id = ? AND program <> ? AND seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY program

-- recover
DELETE FROM `my_inbox_failure` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- redrive
UPDATE `my_inbox_failure` SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = ?, received_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 4

-- register
INSERT INTO `my_inbox_program` (handler_id, program, topic, seen_at) VALUES (?, ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE topic = VALUES(topic), seen_at = VALUES(seen_at)

-- remove of 2
DELETE FROM `my_inbox_seen` WHERE (handler_id = ? AND tenant_id = ? AND event_id = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',processed_at) = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',processed_at) = ?)

-- see
SELECT CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, attempts FROM `my_inbox_seen` WHERE handler_id = ? AND tenant_id = ? AND event_id = ? FOR UPDATE

-- see_failure
SELECT status, attempts, TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),updated_at) FROM `my_inbox_failure` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? FOR UPDATE

-- shared
SELECT h.consumer, h.handler, p.program, COALESCE(p.topic,'') FROM `my_inbox_program` p JOIN `my_inbox_handler` h ON h.handler_id = p.handler_id WHERE p.seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND EXISTS (SELECT 1 FROM `my_inbox_program` o WHERE o.handler_id = p.handler_id AND o.program <> p.program AND o.seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) ORDER BY h.consumer, h.handler, p.program

-- take
UPDATE `my_inbox_seen` SET attempts = ?, processed_at = UTC_TIMESTAMP(6) WHERE handler_id = ? AND tenant_id = ? AND event_id = ? AND processed_at IS NULL

