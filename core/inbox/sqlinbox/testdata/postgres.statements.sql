-- cleanup
DELETE FROM "app"."inbox_event" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."inbox_event" WHERE consumer = $1 AND status = 2 AND processed_at < statement_timestamp() - $2::bigint * interval '1 microsecond' ORDER BY processed_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED))

-- cleanup_keys
DELETE FROM "app"."inbox_key" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."inbox_key" WHERE consumer = $1 AND updated_at < statement_timestamp() - $2::bigint * interval '1 microsecond' LIMIT $3::bigint FOR UPDATE SKIP LOCKED))

-- database_insert_all
INSERT INTO "app"."inbox_event" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) SELECT $1::text, $2::text, v.tenant, v.event_id, v.type, v.version::integer, v.aggregate_type, v.aggregate_id, v.partition_key, v.key_seq::bigint, v.topic, v.source_partition::integer, v.source_offset::bigint, 2, 1, statement_timestamp(), statement_timestamp(), statement_timestamp() FROM unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[]) AS v(tenant, event_id, type, version, aggregate_type, aggregate_id, partition_key, key_seq, topic, source_partition, source_offset) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING RETURNING tenant_id, event_id

-- database_see_all
SELECT e.tenant_id, e.event_id, e.status, e.attempts, e.age, 0 FROM unnest($1::text[], $2::text[]) AS v(tenant, event_id) CROSS JOIN LATERAL (SELECT tenant_id, event_id, status, attempts, (extract(epoch from updated_at - statement_timestamp())*1000000)::bigint AS age FROM "app"."inbox_event" WHERE consumer = $3 AND handler = $4 AND tenant_id = v.tenant AND event_id = v.event_id LIMIT 1 FOR UPDATE) e

-- database_upsert_lane_advance_lane
INSERT INTO "app"."inbox_key" AS k (consumer, handler, tenant_id, topic, partition_key, last_seq, updated_at) VALUES ($1, $2, $3, $4, $5, $6, statement_timestamp()) ON CONFLICT (consumer, handler, tenant_id, topic, partition_key) DO UPDATE SET last_seq = excluded.last_seq, updated_at = excluded.updated_at WHERE k.last_seq < excluded.last_seq

-- dead
SELECT consumer, handler, tenant_id, event_id, COALESCE(event_type,''), event_version, COALESCE(aggregate_type,''), COALESCE(aggregate_id,''), COALESCE(partition_key,''), COALESCE(key_seq,0), COALESCE(source_topic,''), COALESCE(source_partition,0), COALESCE(source_offset,0), source_offset IS NOT NULL, attempts, COALESCE(last_error_code,''), COALESCE(last_error,''), (extract(epoch from received_at)*1000000)::bigint, COALESCE((extract(epoch from failed_at)*1000000)::bigint,0) FROM "app"."inbox_event" WHERE consumer = ? AND status = 4 AND status <> 2

-- fail
UPDATE "app"."inbox_event" SET status = $1, attempts = $2, last_error_code = $3, last_error = $4, failed_at = statement_timestamp(), updated_at = statement_timestamp() WHERE consumer = $5 AND handler = $6 AND tenant_id = $7 AND event_id = $8

-- insert_plain
INSERT INTO "app"."inbox_event" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 2, 1, statement_timestamp(), statement_timestamp(), statement_timestamp()) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING

-- open
INSERT INTO "app"."inbox_event" (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, received_at, updated_at, processed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 0, 0, statement_timestamp(), statement_timestamp(), NULL) ON CONFLICT (consumer, handler, tenant_id, event_id) DO NOTHING

-- redrive
UPDATE "app"."inbox_event" SET status = 0, attempts = 0, last_error_code = 'redriven', last_error = $1, received_at = statement_timestamp(), updated_at = statement_timestamp() WHERE consumer = $2 AND handler = $3 AND tenant_id = $4 AND event_id = $5 AND status = 4

-- see
SELECT status, attempts, (extract(epoch from updated_at - statement_timestamp())*1000000)::bigint FROM "app"."inbox_event" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4 FOR UPDATE

-- see_failed
SELECT status, attempts, (extract(epoch from received_at - statement_timestamp())*1000000)::bigint FROM "app"."inbox_event" WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4 FOR UPDATE

-- take
UPDATE "app"."inbox_event" SET status = 2, attempts = attempts + 1, last_error_code = NULL, last_error = NULL, failed_at = NULL, updated_at = statement_timestamp(), processed_at = statement_timestamp() WHERE consumer = $1 AND handler = $2 AND tenant_id = $3 AND event_id = $4

