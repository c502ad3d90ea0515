-- channel
SELECT channel FROM "side_effect_command" WHERE status IN (0, 1, 3) AND channel > ? ORDER BY channel LIMIT 1

-- claim
UPDATE "side_effect_command" SET lost_leases = lost_leases + CASE WHEN status = 1 THEN 1 ELSE 0 END, owner = ?, fence = fence + 1, lease_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), status = 1 WHERE id = ? AND (status IN (0, 3) OR status = 1 AND (lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?))

-- cleanup
DELETE FROM "side_effect_command" WHERE rowid IN (SELECT rowid FROM "side_effect_command" WHERE status = 2 AND done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY done_at LIMIT ?)

-- complete
UPDATE "side_effect_command" SET status = 2, external_ref = ?, lease_until = NULL, last_error_code = NULL, last_error = NULL, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND owner = ? AND fence = ? AND status = 1

-- dead
SELECT channel, COUNT(*) FROM (SELECT channel FROM "side_effect_command" WHERE status = 4 LIMIT ?) parked_commands GROUP BY channel

-- discard
UPDATE "side_effect_command" SET status = 2, owner = NULL, lease_until = NULL, last_error_code = 'discarded', last_error = ?, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND status = 4

-- erasable
SELECT id, tenant_id, COALESCE(event_id,''), COALESCE(business_key,''), CASE WHEN status IN (2, 4) THEN 1 ELSE 0 END, CASE WHEN LENGTH(payload) > 0 OR headers IS NOT NULL OR COALESCE(last_error,'erased') <> 'erased' THEN 1 ELSE 0 END FROM "side_effect_command" WHERE id > ? ORDER BY id LIMIT ?

-- erase
UPDATE "side_effect_command" SET payload = ?, content_type = NULL, headers = NULL, last_error = CASE WHEN last_error IS NOT NULL THEN 'erased' END, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND status IN (2, 4)

-- extend
UPDATE "side_effect_command" SET lease_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND owner = ? AND fence = ? AND status = 1

-- fail
UPDATE "side_effect_command" SET status = ?, attempts = attempts + ?, last_error_code = ?, last_error = ?, lease_until = NULL, available_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND owner = ? AND fence = ? AND status = 1

-- get
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE id = ?

-- get_tx
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE id = ?

-- insert_plain
INSERT INTO "side_effect_command" (id, tenant_id, channel, idempotency_key, fingerprint, payload, content_type, headers, event_id, correlation_id, business_key, available_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (tenant_id, channel, idempotency_key) DO NOTHING

-- list
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE status = 

-- lock_old of 2
SELECT id FROM "side_effect_command" WHERE (id = ? AND status = 2) OR (id = ? AND status = 2)

-- look
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE tenant_id = ? AND channel = ? AND idempotency_key = ?

-- old
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE status = 2 AND done_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY done_at LIMIT ?

-- overdue
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE channel = ? AND status IN (0, 1, 3) AND available_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? AND (status <> 1 OR lease_until < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? OR lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ORDER BY available_at, id LIMIT ?

-- pending
SELECT COUNT(*), COALESCE(MIN(since-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)),0) FROM (SELECT CASE WHEN lost_leases = 0 AND COALESCE(last_error_code,'redriven') = 'redriven' THEN MAX(available_at, created_at) ELSE created_at END AS since FROM "side_effect_command" WHERE channel = ? AND status IN (0, 1, 3) ORDER BY available_at, id LIMIT ?) open_commands

-- programs_others
SELECT program FROM "side_effect_program" WHERE channel = ? AND program <> ? AND seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY program

-- programs_register
INSERT INTO "side_effect_program" (channel, program, seen_at) VALUES (?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (channel, program) DO UPDATE SET seen_at = excluded.seen_at

-- programs_shared
SELECT p.channel, p.program FROM "side_effect_program" p WHERE p.seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? AND EXISTS (SELECT 1 FROM "side_effect_program" o WHERE o.channel = p.channel AND o.program <> p.program AND o.seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?) ORDER BY p.channel, p.program

-- redrive
UPDATE "side_effect_command" SET status = 0, attempts = 0, lost_leases = 0, owner = NULL, lease_until = NULL, last_error_code = 'redriven', last_error = ?, available_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE id = ? AND (status IN (0, 3, 4) OR status = 1 AND (lease_until <= (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) OR lease_until > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?))

-- remove of 2
DELETE FROM "side_effect_command" WHERE (id = ? AND status = 2) OR (id = ? AND status = 2)

-- see
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), COALESCE(last_error_code,''), COALESCE(last_error,''), created_at, updated_at, COALESCE(done_at,0) FROM "side_effect_command" WHERE tenant_id = ? AND channel = ? AND idempotency_key = ?

-- who
SELECT status, COALESCE(last_error_code,''), COALESCE(owner,''), fence FROM "side_effect_command" WHERE id = ?

