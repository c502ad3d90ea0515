-- channel
SELECT channel FROM "app"."side_effect_command" WHERE status IN (0, 1, 3) AND channel > $1 ORDER BY channel LIMIT 1

-- claim
UPDATE "app"."side_effect_command" SET lost_leases = lost_leases + CASE WHEN status = 1 THEN 1 ELSE 0 END, owner = $1, fence = fence + 1, lease_until = statement_timestamp() + $2::bigint * interval '1 microsecond', updated_at = statement_timestamp(), status = 1 WHERE id = $3 AND (status IN (0, 3) OR status = 1 AND (lease_until <= statement_timestamp() OR lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond'))

-- cleanup
DELETE FROM "app"."side_effect_command" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."side_effect_command" WHERE status = 2 AND done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' ORDER BY done_at LIMIT $2::bigint FOR UPDATE SKIP LOCKED))

-- complete
UPDATE "app"."side_effect_command" SET status = 2, external_ref = $1, lease_until = NULL, last_error_code = NULL, last_error = NULL, updated_at = statement_timestamp(), done_at = statement_timestamp() WHERE id = $2 AND owner = $3 AND fence = $4 AND status = 1

-- dead
SELECT channel, COUNT(*) FROM (SELECT channel FROM "app"."side_effect_command" WHERE status = 4 LIMIT $1) parked_commands GROUP BY channel

-- discard
UPDATE "app"."side_effect_command" SET status = 2, owner = NULL, lease_until = NULL, last_error_code = 'discarded', last_error = $1, updated_at = statement_timestamp(), done_at = statement_timestamp() WHERE id = $2 AND status = 4

-- erasable
SELECT id, tenant_id, COALESCE(event_id,''), COALESCE(business_key,''), CASE WHEN status IN (2, 4) THEN 1 ELSE 0 END, CASE WHEN LENGTH(payload) > 0 OR headers IS NOT NULL OR COALESCE(last_error,'erased') <> 'erased' THEN 1 ELSE 0 END FROM "app"."side_effect_command" WHERE id > $1 ORDER BY id LIMIT $2

-- erase
UPDATE "app"."side_effect_command" SET payload = $1, content_type = NULL, headers = NULL, last_error = CASE WHEN last_error IS NOT NULL THEN 'erased' END, updated_at = statement_timestamp() WHERE id = $2 AND status IN (2, 4)

-- extend
UPDATE "app"."side_effect_command" SET lease_until = statement_timestamp() + $1::bigint * interval '1 microsecond', updated_at = statement_timestamp() WHERE id = $2 AND owner = $3 AND fence = $4 AND status = 1

-- fail
UPDATE "app"."side_effect_command" SET status = $1, attempts = attempts + $2, last_error_code = $3, last_error = $4, lease_until = NULL, available_at = statement_timestamp(), updated_at = statement_timestamp() WHERE id = $5 AND owner = $6 AND fence = $7 AND status = 1

-- get
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE id = $1

-- get_tx
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE id = $1 FOR UPDATE

-- insert_plain
INSERT INTO "app"."side_effect_command" (id, tenant_id, channel, idempotency_key, fingerprint, payload, content_type, headers, event_id, correlation_id, business_key, available_at, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, statement_timestamp() + $12::bigint * interval '1 microsecond', statement_timestamp(), statement_timestamp()) ON CONFLICT (tenant_id, channel, idempotency_key) DO NOTHING

-- list
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE status = 

-- lock_old of 2
SELECT id FROM "app"."side_effect_command" WHERE (id = $1 AND status = 2) OR (id = $2 AND status = 2) FOR UPDATE SKIP LOCKED

-- look
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE tenant_id = $1 AND channel = $2 AND idempotency_key = $3

-- old
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE status = 2 AND done_at < statement_timestamp() - $1::bigint * interval '1 microsecond' ORDER BY done_at LIMIT $2

-- overdue
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE channel = $1 AND status IN (0, 1, 3) AND available_at < statement_timestamp() - $2::bigint * interval '1 microsecond' AND (status <> 1 OR lease_until < statement_timestamp() - $3::bigint * interval '1 microsecond' OR lease_until > statement_timestamp() + $4::bigint * interval '1 microsecond') ORDER BY available_at, id LIMIT $5

-- pending
SELECT COUNT(*), COALESCE(MIN(CASE WHEN since IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(since, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END),0) FROM (SELECT CASE WHEN lost_leases = 0 AND COALESCE(last_error_code,'redriven') = 'redriven' THEN GREATEST(available_at, created_at) ELSE created_at END AS since FROM "app"."side_effect_command" WHERE channel = $1 AND status IN (0, 1, 3) ORDER BY available_at, id LIMIT $2) open_commands

-- programs_others
SELECT program FROM "app"."side_effect_program" WHERE channel = $1 AND program <> $2 AND seen_at > statement_timestamp() - $3::bigint * interval '1 microsecond' ORDER BY program

-- programs_register
INSERT INTO "app"."side_effect_program" (channel, program, seen_at) VALUES ($1, $2, statement_timestamp()) ON CONFLICT (channel, program) DO UPDATE SET seen_at = excluded.seen_at

-- programs_shared
SELECT p.channel, p.program FROM "app"."side_effect_program" p WHERE p.seen_at > statement_timestamp() - $1::bigint * interval '1 microsecond' AND EXISTS (SELECT 1 FROM "app"."side_effect_program" o WHERE o.channel = p.channel AND o.program <> p.program AND o.seen_at > statement_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY p.channel, p.program

-- redrive
UPDATE "app"."side_effect_command" SET status = 0, attempts = 0, lost_leases = 0, owner = NULL, lease_until = NULL, last_error_code = 'redriven', last_error = $1, available_at = statement_timestamp(), updated_at = statement_timestamp() WHERE id = $2 AND (status IN (0, 3, 4) OR status = 1 AND (lease_until <= statement_timestamp() OR lease_until > statement_timestamp() + $3::bigint * interval '1 microsecond'))

-- remove of 2
DELETE FROM "app"."side_effect_command" WHERE (id = $1 AND status = 2) OR (id = $2 AND status = 2)

-- see
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), COALESCE(last_error_code,''), COALESCE(last_error,''), CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0) FROM "app"."side_effect_command" WHERE tenant_id = $1 AND channel = $2 AND idempotency_key = $3 FOR UPDATE

-- who
SELECT status, COALESCE(last_error_code,''), COALESCE(owner,''), fence FROM "app"."side_effect_command" WHERE id = $1

