-- cleanup
DELETE FROM "inbox_event" WHERE rowid IN (SELECT rowid FROM "inbox_event" WHERE consumer = ? AND status = 2 AND processed_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY processed_at LIMIT ?)

-- cleanup_keys
DELETE FROM "inbox_key" WHERE (consumer, handler, tenant_id, topic, partition_key) IN (SELECT consumer, handler, tenant_id, topic, partition_key FROM "inbox_key" WHERE consumer = ? AND updated_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? LIMIT ?)

-- database_insert of 2
INSERT INTO "inbox_event" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING RETURNING tenant_id, event_id

-- database_see of 2
SELECT tenant_id, event_id, status, attempts, updated_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), 0 FROM "inbox_event" WHERE (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?) OR (consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?)

-- database_upsert_lane_advance_lane
INSERT INTO "inbox_key" AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, updated_at) VALUES (?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET last_seq = excluded.last_seq, updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq

-- dead
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), source_offset IS NOT NULL, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), received_at, COALESCE(failed_at,0) FROM "inbox_event" WHERE consumer = ? AND status = 4 AND status <> 2

-- fail
UPDATE "inbox_event" SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, failed_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- insert_plain
INSERT INTO "inbox_event" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 2, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING

-- open
INSERT INTO "inbox_event" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), NULL) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING

-- redrive
UPDATE "inbox_event" SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = ?, received_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 4

-- see
SELECT status, attempts, updated_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "inbox_event" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- see_failed
SELECT status, attempts, received_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "inbox_event" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- take
UPDATE "inbox_event" SET status = 2, attempts = attempts + 1, last_error_code = NULL, last_error = NULL, failed_at = NULL, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), processed_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

