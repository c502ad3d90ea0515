-- cleanup
DELETE FROM "app"."inbox_seen" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."inbox_seen" WHERE handler_id = $1 AND processed_at < statement_timestamp() - $2::bigint * interval '1 microsecond' ORDER BY processed_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))

-- cleanup_discarded
DELETE FROM "app"."inbox_failure" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."inbox_failure" WHERE consumer = $1 AND status = 0 AND last_error_code = 'discarded' AND received_at < statement_timestamp() - $2::bigint * interval '1 microsecond' ORDER BY received_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))

-- cleanup_keys
DELETE FROM "app"."inbox_key" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."inbox_key" WHERE consumer = $1 AND updated_at < statement_timestamp() - $2::bigint * interval '1 microsecond' LIMIT $3::bigint FOR UPDATE SKIP LOCKED))

-- database_insert_all
INSERT INTO "app"."inbox_seen" (handler_id, tenant_id, event_id, source, attempts, processed_at) SELECT $1::bigint, v.tenant, v.event_id, v.source, 1, statement_timestamp() FROM unnest($2::text[], $3::text[], $4::text[]) AS v(tenant, event_id, source) ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING RETURNING tenant_id, event_id

-- database_see_all
SELECT e.tenant_id, e.event_id, e.processed, 0 FROM unnest($1::text[], $2::text[]) AS v(tenant, event_id) CROSS JOIN LATERAL (SELECT tenant_id, event_id, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END AS processed FROM "app"."inbox_seen" WHERE handler_id = $3 AND tenant_id = v.tenant AND event_id = v.event_id LIMIT 1 FOR UPDATE) e

-- database_upsert_lane_advance_lane
INSERT INTO "app"."inbox_key" AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, updated_at) VALUES ($1, $2, $3, $4, $5, $6, statement_timestamp()) ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET last_seq = excluded.last_seq, updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq

-- dead
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN received_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(received_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN failed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(failed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."inbox_failure" WHERE consumer = ? AND status = 4

-- desk_consumer
SELECT consumer FROM "app"."inbox_failure" WHERE consumer > $1 ORDER BY consumer LIMIT 1

-- desk_failures of 2
SELECT 0, CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END FROM "app"."inbox_failure" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4 UNION ALL SELECT 1, CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END FROM "app"."inbox_failure" WHERE consumer = $5 AND handler = $6 AND tenant_id = $7 AND event_id = $8

-- desk_handlers
SELECT h.consumer, h.handler, COALESCE((SELECT p.topic FROM "app"."inbox_program" p WHERE p.handler_id = h.handler_id ORDER BY p.seen_at DESC LIMIT 1),''), COALESCE((SELECT CASE WHEN s.processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(s.processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END FROM "app"."inbox_seen" s WHERE s.handler_id = h.handler_id AND s.processed_at IS NOT NULL ORDER BY s.processed_at DESC LIMIT 1),0) FROM "app"."inbox_handler" h ORDER BY h.consumer, h.handler LIMIT $1

-- desk_last
SELECT CASE WHEN received_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(received_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, handler, tenant_id, event_id FROM "app"."inbox_failure" WHERE consumer = $1 AND status = $2 AND received_at >= timestamptz 'epoch' + $3::bigint * interval '1 microsecond' AND (CASE WHEN received_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(received_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, handler, tenant_id, event_id) > ($4, $5, $6, $7) ORDER BY received_at, handler, tenant_id, event_id LIMIT 1 OFFSET $8

-- desk_rows
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), CASE WHEN source_offset IS NULL THEN 0 ELSE 1 END, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN received_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(received_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN failed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(failed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END FROM (SELECT * FROM "app"."inbox_failure" WHERE consumer = ? AND status = ? AND received_at >= timestamptz 'epoch' + ?::bigint * interval '1 microsecond' AND (CASE WHEN received_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(received_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, handler, tenant_id, event_id) > (?, ?, ?, ?) ORDER BY received_at, handler, tenant_id, event_id LIMIT ?) f WHERE 1 = 1

-- desk_seen of 2
SELECT 0, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, COALESCE(CASE WHEN processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), attempts, COALESCE(source,'') FROM "app"."inbox_seen" WHERE handler_id = $1 AND tenant_id = $2 AND event_id = $3 UNION ALL SELECT 1, CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, COALESCE(CASE WHEN processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), attempts, COALESCE(source,'') FROM "app"."inbox_seen" WHERE handler_id = $4 AND tenant_id = $5 AND event_id = $6

-- desk_status
SELECT status FROM "app"."inbox_failure" WHERE consumer = $1 AND status < $2 ORDER BY status DESC LIMIT 1

-- desk_sum
SELECT handler, n, CASE WHEN oldest IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(oldest, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END FROM (SELECT handler, COUNT(*) AS n, MIN(received_at) AS oldest FROM (SELECT handler, received_at, status, last_error_code FROM "app"."inbox_failure" WHERE consumer = $1 AND status = $2 ORDER BY received_at LIMIT $3) f WHERE CASE WHEN status = 0 AND COALESCE(last_error_code,'') = 'discarded' THEN -1 ELSE status END >= 0 GROUP BY handler) h

-- discard
UPDATE "app"."inbox_failure" SET status = 0, attempts = 0, last_error_code = 'discarded', last_error = $1, received_at = statement_timestamp(), updated_at = statement_timestamp() WHERE consumer = $2 AND handler = $3 AND tenant_id = $4 AND event_id = $5 AND status = 4

-- fail
UPDATE "app"."inbox_failure" SET status = $1, attempts = $2, last_error_code = $3, last_error = $4, failed_at = statement_timestamp(), updated_at = statement_timestamp() WHERE consumer = $5 AND handler = $6 AND tenant_id = $7 AND event_id = $8

-- first_failure
SELECT status, attempts, CASE WHEN received_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(received_at, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END FROM "app"."inbox_failure" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4 FOR UPDATE

-- forget
DELETE FROM "app"."inbox_failure" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4 AND status = 0 AND last_error_code = 'discarded'

-- handlers
SELECT handler FROM "app"."inbox_handler" WHERE consumer = $1

-- insert_plain
INSERT INTO "app"."inbox_seen" (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES ($1, $2, $3, $4, 1, statement_timestamp()) ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING

-- list
INSERT INTO "app"."inbox_handler" (handler_id, consumer, handler) VALUES ($1, $2, $3) ON CONFLICT (handler_id) DO NOTHING

-- lock_old of 2
SELECT tenant_id, event_id FROM "app"."inbox_seen" WHERE (handler_id = $1 AND tenant_id = $2 AND event_id = $3 AND CASE WHEN processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $4) OR (handler_id = $5 AND tenant_id = $6 AND event_id = $7 AND CASE WHEN processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $8) FOR UPDATE SKIP LOCKED

-- old
SELECT s.tenant_id, s.event_id, COALESCE(s.source,''), s.attempts, CASE WHEN s.processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(s.processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN f.status IS NULL THEN 0 ELSE 1 END, COALESCE(f.last_error,'') FROM "app"."inbox_seen" s LEFT JOIN "app"."inbox_failure" f ON f.consumer = $1 AND f.handler = $2 AND f.tenant_id = s.tenant_id AND f.event_id = s.event_id AND f.status = 0 AND f.last_error_code = 'discarded' WHERE s.handler_id = $3 AND s.processed_at < statement_timestamp() - $4::bigint * interval '1 microsecond' ORDER BY s.processed_at LIMIT $5

-- open
INSERT INTO "app"."inbox_seen" (handler_id, tenant_id, event_id, source, attempts, processed_at) VALUES ($1, $2, $3, $4, 0, NULL) ON CONFLICT (handler_id, tenant_id, event_id) DO NOTHING

-- open_failure
INSERT INTO "app"."inbox_failure" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0, 0, statement_timestamp(), statement_timestamp()) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING

-- others
SELECT program, COALESCE(topic,'') FROM "app"."inbox_program" WHERE handler_id = $1 AND program <> $2 AND seen_at > statement_timestamp() - $3::bigint * interval '1 microsecond' ORDER BY program

-- recover
DELETE FROM "app"."inbox_failure" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4

-- redrive
UPDATE "app"."inbox_failure" SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = $1, received_at = statement_timestamp(), updated_at = statement_timestamp() WHERE consumer = $2 AND handler = $3 AND tenant_id = $4 AND event_id = $5 AND status = 4

-- register
INSERT INTO "app"."inbox_program" (handler_id, program, topic, seen_at) VALUES ($1, $2, $3, statement_timestamp()) ON CONFLICT (handler_id, program) DO UPDATE SET topic = excluded.topic, seen_at = excluded.seen_at

-- remove of 2
DELETE FROM "app"."inbox_seen" WHERE (handler_id = $1 AND tenant_id = $2 AND event_id = $3 AND CASE WHEN processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $4) OR (handler_id = $5 AND tenant_id = $6 AND event_id = $7 AND CASE WHEN processed_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(processed_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $8)

-- see
SELECT CASE WHEN processed_at IS NULL THEN 0 ELSE 1 END, attempts FROM "app"."inbox_seen" WHERE handler_id = $1 AND tenant_id = $2 AND event_id = $3 FOR UPDATE

-- see_failure
SELECT status, attempts, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END FROM "app"."inbox_failure" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4 FOR UPDATE

-- shared
SELECT h.consumer, h.handler, p.program, COALESCE(p.topic,'') FROM "app"."inbox_program" p JOIN "app"."inbox_handler" h ON h.handler_id = p.handler_id WHERE p.seen_at > statement_timestamp() - $1::bigint * interval '1 microsecond' AND EXISTS (SELECT 1 FROM "app"."inbox_program" o WHERE o.handler_id = p.handler_id AND o.program <> p.program AND o.seen_at > statement_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY h.consumer, h.handler, p.program

-- take
UPDATE "app"."inbox_seen" SET attempts = $1, processed_at = statement_timestamp() WHERE handler_id = $2 AND tenant_id = $3 AND event_id = $4 AND processed_at IS NULL

