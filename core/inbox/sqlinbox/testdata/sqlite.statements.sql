-- cleanup
DELETE FROM "inbox_seen" WHERE rowid IN (SELECT rowid FROM "inbox_seen" WHERE handler_id = ? AND processed_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY processed_at LIMIT ?)

-- cleanup_discarded
DELETE FROM "inbox_failure" WHERE rowid IN (SELECT rowid FROM "inbox_failure" WHERE consumer = ? AND status = 0 AND last_error_code = 'discarded' AND received_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY received_at LIMIT ?)

-- cleanup_keys
DELETE FROM "inbox_key" WHERE (consumer, handler, tenant_id, topic, partition_key) IN (SELECT consumer, handler, tenant_id, topic, partition_key FROM "inbox_key" WHERE consumer = ? AND updated_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? LIMIT ?)

-- database_insert of 2
INSERT INTO "inbox_seen" (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES (?, ?, ?, ?, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)), (?, ?, ?, ?, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING RETURNING tenant_id, event_id

-- database_see of 2
SELECT tenant_id, event_id, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, 0 FROM "inbox_seen" WHERE (handler_id = ? AND tenant_id = ? AND event_id = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ?)

-- database_upsert_lane_advance_lane
INSERT INTO "inbox_key" AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, updated_at) VALUES (?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET last_seq = excluded.last_seq, updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq

-- dead
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), received_at, COALESCE(failed_at,0) FROM "inbox_failure" WHERE consumer = ? AND status = 4

-- desk_consumer
SELECT consumer FROM "inbox_failure" WHERE consumer > ? ORDER BY consumer LIMIT 1

-- desk_failures of 2
SELECT 0, CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), updated_at FROM "inbox_failure" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? UNION ALL SELECT 1, CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), updated_at FROM "inbox_failure" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- desk_handlers
SELECT h.consumer, h.handler, COALESCE((SELECT p.topic FROM "inbox_program" p WHERE p.handler_id = h.handler_id ORDER BY p.seen_at DESC LIMIT 1),''), COALESCE((SELECT s.processed_at FROM "inbox_seen" s WHERE s.handler_id = h.handler_id AND s.processed_at IS NOT NULL ORDER BY s.processed_at DESC LIMIT 1),0) FROM "inbox_handler" h ORDER BY h.consumer, h.handler LIMIT ?

-- desk_last
SELECT received_at, handler, tenant_id, event_id FROM "inbox_failure" WHERE consumer = ? AND status = ? AND received_at >= ? AND (received_at, handler, tenant_id, event_id) > (?, ?, ?, ?) ORDER BY received_at, handler, tenant_id, event_id LIMIT 1 OFFSET ?

-- desk_rows
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), received_at, COALESCE(failed_at,0), CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END FROM (SELECT * FROM "inbox_failure" WHERE consumer = ? AND status = ? AND received_at >= ? AND (received_at, handler, tenant_id, event_id) > (?, ?, ?, ?) ORDER BY received_at, handler, tenant_id, event_id LIMIT ?) f WHERE 1 = 1

-- desk_seen of 2
SELECT 0, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, COALESCE(processed_at,0), attempts, COALESCE(source,'') FROM "inbox_seen" WHERE handler_id = ? AND tenant_id = ? AND event_id = ? UNION ALL SELECT 1, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, COALESCE(processed_at,0), attempts, COALESCE(source,'') FROM "inbox_seen" WHERE handler_id = ? AND tenant_id = ? AND event_id = ?

-- desk_status
SELECT status FROM "inbox_failure" WHERE consumer = ? AND status < ? ORDER BY status DESC LIMIT 1

-- desk_sum
SELECT handler, n, oldest-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM (SELECT handler, COUNT(*) AS n, MIN(received_at) AS oldest FROM (SELECT handler, received_at, status, last_error_code FROM "inbox_failure" WHERE consumer = ? AND status = ? ORDER BY received_at LIMIT ?) f WHERE CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END >= 0 GROUP BY handler) h

-- discard
UPDATE "inbox_failure" SET status = 0, attempts = 0, last_error_code = 'discarded', last_error = ?, received_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 4

-- fail
UPDATE "inbox_failure" SET status = ?, attempts = ?, last_error_code = ?, last_error = ?, failed_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- first_failure
SELECT status, attempts, received_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "inbox_failure" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- forget
DELETE FROM "inbox_failure" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 0 AND last_error_code = 'discarded'

-- handlers
SELECT handler FROM "inbox_handler" WHERE consumer = ?

-- insert_plain
INSERT INTO "inbox_seen" (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES (?, ?, ?, ?, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING

-- list
INSERT INTO "inbox_handler" (handler_id, consumer, handler) VALUES (?, ?, ?) ON CONFLICT (handler_id) DO NOTHING

-- lock_old of 2
SELECT tenant_id, event_id FROM "inbox_seen" WHERE (handler_id = ? AND tenant_id = ? AND event_id = ? AND processed_at = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ? AND processed_at = ?)

-- old
SELECT s.tenant_id, s.event_id, COALESCE(s.source,''), s.attempts, s.processed_at, CASE WHEN f.status IS NULL THEN 0 ELSE 1 END, COALESCE(f.last_error,'') FROM "inbox_seen" s LEFT JOIN "inbox_failure" f ON f.consumer = ? AND f.handler = ? AND f.tenant_id = s.tenant_id AND f.event_id = s.event_id AND f.status = 0 AND f.last_error_code = 'discarded' WHERE s.handler_id = ? AND s.processed_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY s.processed_at LIMIT ?

-- open
INSERT INTO "inbox_seen" (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES (?, ?, ?, ?, 0, NULL) ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING

-- open_failure
INSERT INTO "inbox_failure" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING

-- others
SELECT program, COALESCE(topic,'') FROM "inbox_program" WHERE handler_id = ? AND program <> ? AND seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY program

-- recover
DELETE FROM "inbox_failure" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- redrive
UPDATE "inbox_failure" SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = ?, received_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ? AND status = 4

-- register
INSERT INTO "inbox_program" (handler_id, program, topic, seen_at) VALUES (?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (handler_id, program) DO UPDATE SET topic = excluded.topic, seen_at = excluded.seen_at

-- remove of 2
DELETE FROM "inbox_seen" WHERE (handler_id = ? AND tenant_id = ? AND event_id = ? AND processed_at = ?) OR (handler_id = ? AND tenant_id = ? AND event_id = ? AND processed_at = ?)

-- see
SELECT CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, attempts FROM "inbox_seen" WHERE handler_id = ? AND tenant_id = ? AND event_id = ?

-- see_failure
SELECT status, attempts, updated_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) FROM "inbox_failure" WHERE consumer = ? AND handler = ? AND tenant_id = ? AND event_id = ?

-- shared
SELECT h.consumer, h.handler, p.program, COALESCE(p.topic,'') FROM "inbox_program" p JOIN "inbox_handler" h ON h.handler_id = p.handler_id WHERE p.seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? AND EXISTS (SELECT 1 FROM "inbox_program" o WHERE o.handler_id = p.handler_id AND o.program <> p.program AND o.seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?) ORDER BY h.consumer, h.handler, p.program

-- take
UPDATE "inbox_seen" SET attempts = ?, processed_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE handler_id = ? AND tenant_id = ? AND event_id = ? AND processed_at IS NULL

