-- cleanup_delete of 2
DELETE FROM `my_inbox_event` WHERE (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?) OR (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?)

-- cleanup_find
SELECT handler, tenant_id, event_id FROM `my_inbox_event` WHERE consumer = ? AND status = 2 AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY updated_at LIMIT ? FOR UPDATE SKIP LOCKED

-- cleanup_keys
DELETE FROM `my_inbox_key` WHERE consumer = ? AND updated_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND LIMIT ?

-- database_advance_key
UPDATE `my_inbox_key` SET last_seq = ?, updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND topic = ? AND partition_key = ? AND last_seq < ?

-- database_insert of 2
INSERT INTO `my_inbox_event` (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE seen = seen + 1

-- database_key
INSERT INTO `my_inbox_key` (consumer, handler, tenant_id, topic, partition_key, last_seq, updated_at) VALUES (?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE updated_at = UTC_TIMESTAMP(6)

-- database_see of 2
SELECT tenant_id, event_id, status, attempts, TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),updated_at), seen FROM `my_inbox_event` WHERE (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?) OR (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?) FOR UPDATE

-- dead
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), source_offset IS NOT NULL, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',received_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',failed_at),0) FROM `my_inbox_event` WHERE consumer = ? AND status = 4 AND status <> 2

-- fail
UPDATE `my_inbox_event` SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, failed_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- insert_guarded
INSERT INTO `my_inbox_event` (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1 ON DUPLICATE KEY UPDATE seen = seen + 1

-- insert_plain
INSERT INTO `my_inbox_event` (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE seen = seen + 1

-- open
INSERT INTO `my_inbox_event` (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), NULL) ON DUPLICATE KEY UPDATE seen = seen + 1

-- redrive
UPDATE `my_inbox_event` SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = ?, received_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 4

-- see
SELECT status, attempts, TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),updated_at) FROM `my_inbox_event` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? FOR UPDATE

-- see_failed
SELECT status, attempts, TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),received_at) FROM `my_inbox_event` WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? FOR UPDATE

-- take
UPDATE `my_inbox_event` SET status = 2, attempts = attempts + 1, last_error_code = NULL, last_error = NULL, failed_at = NULL, updated_at = UTC_TIMESTAMP(6), processed_at = UTC_TIMESTAMP(6) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

