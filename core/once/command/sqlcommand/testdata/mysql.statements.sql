-- channel
SELECT due_channel FROM `my_side_effect_command` WHERE due_channel > ? ORDER BY due_channel LIMIT 1

-- claim
UPDATE `my_side_effect_command` SET lost_leases = lost_leases + CASE WHEN status = 1 THEN 1 ELSE 0 END, owner = ?, fence = fence + 1, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, updated_at = UTC_TIMESTAMP(6), status = 1 WHERE id = ? AND (status IN (0, 3) OR status = 1 AND (lease_until <= UTC_TIMESTAMP(6) OR lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))

-- cleanup_delete of 2
DELETE FROM `my_side_effect_command` WHERE (id = ?) OR (id = ?)

-- cleanup_find
SELECT id FROM `my_side_effect_command` WHERE status = 2 AND done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY done_at LIMIT ? FOR UPDATE SKIP LOCKED

-- complete
UPDATE `my_side_effect_command` SET status = 2, external_ref = ?, lease_until = NULL, last_error_code = NULL, last_error = NULL, updated_at = UTC_TIMESTAMP(6), done_at = UTC_TIMESTAMP(6) WHERE id = ? AND owner = ? AND fence = ? AND status = 1

-- dead
SELECT channel, COUNT(*) FROM (SELECT channel FROM `my_side_effect_command` WHERE status = 4 LIMIT ?) parked_commands GROUP BY channel

-- discard
UPDATE `my_side_effect_command` SET status = 2, owner = NULL, lease_until = NULL, last_error_code = 'discarded', last_error = ?, updated_at = UTC_TIMESTAMP(6), done_at = UTC_TIMESTAMP(6) WHERE id = ? AND status = 4

-- erasable
SELECT id, tenant_id, COALESCE(event_id,''), COALESCE(business_key,''), CASE WHEN status IN (2, 4) THEN 1 ELSE 0 END, CASE WHEN LENGTH(payload) > 0 OR headers IS NOT NULL OR COALESCE(last_error,'erased') <> 'erased' THEN 1 ELSE 0 END FROM `my_side_effect_command` WHERE id > ? ORDER BY id LIMIT ?

-- erase
UPDATE `my_side_effect_command` SET payload = ?, content_type = NULL, headers = NULL, last_error = CASE WHEN last_error IS NOT NULL THEN 'erased' END, updated_at = UTC_TIMESTAMP(6) WHERE id = ? AND status IN (2, 4)

-- extend
UPDATE `my_side_effect_command` SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, updated_at = UTC_TIMESTAMP(6) WHERE id = ? AND owner = ? AND fence = ? AND status = 1

-- fail
UPDATE `my_side_effect_command` SET status = ?, attempts = attempts + ?, last_error_code = ?, last_error = ?, lease_until = NULL, available_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE id = ? AND owner = ? AND fence = ? AND status = 1

-- get
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE id = ?

-- get_tx
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE id = ? FOR UPDATE

-- insert_guarded
INSERT INTO `my_side_effect_command` (id, tenant_id, channel, idempotency_key, fingerprint, payload, content_type, headers, event_id, correlation_id, business_key, available_at, created_at, updated_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM DUAL WHERE @@in_transaction = 1 ON DUPLICATE KEY UPDATE seen = seen + 1

-- insert_plain
INSERT INTO `my_side_effect_command` (id, tenant_id, channel, idempotency_key, fingerprint, payload, content_type, headers, event_id, correlation_id, business_key, available_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE seen = seen + 1

-- list
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE status = 

-- lock_old of 2
SELECT id FROM `my_side_effect_command` WHERE (id = ? AND status = 2) OR (id = ? AND status = 2) FOR UPDATE SKIP LOCKED

-- look
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE tenant_id = ? AND channel = ? AND idempotency_key = ?

-- old
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE status = 2 AND done_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY done_at LIMIT ?

-- overdue
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE due_channel = ? AND available_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND (status <> 1 OR lease_until < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND OR lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ORDER BY available_at, id LIMIT ?

-- pending
SELECT COUNT(*), COALESCE(MIN(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),since)),0) FROM (SELECT CASE WHEN lost_leases = 0 AND COALESCE(last_error_code,'redriven') = 'redriven' THEN GREATEST(available_at, created_at) ELSE created_at END AS since FROM `my_side_effect_command` WHERE due_channel = ? ORDER BY available_at, id LIMIT ?) open_commands

-- programs_others
SELECT program FROM `my_side_effect_program` WHERE channel = ? AND program <> ? AND seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY program

-- programs_register
INSERT INTO `my_side_effect_program` (channel, program, seen_at) VALUES (?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at)

-- programs_shared
SELECT p.channel, p.program FROM `my_side_effect_program` p WHERE p.seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND EXISTS (SELECT 1 FROM `my_side_effect_program` o WHERE o.channel = p.channel AND o.program <> p.program AND o.seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) ORDER BY p.channel, p.program

-- redrive
UPDATE `my_side_effect_command` SET status = 0, attempts = 0, lost_leases = 0, owner = NULL, lease_until = NULL, last_error_code = 'redriven', last_error = ?, available_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6) WHERE id = ? AND (status IN (0, 3, 4) OR status = 1 AND (lease_until <= UTC_TIMESTAMP(6) OR lease_until > UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND))

-- remove of 2
DELETE FROM `my_side_effect_command` WHERE (id = ? AND status = 2) OR (id = ? AND status = 2)

-- see
SELECT id, tenant_id, channel, idempotency_key, fingerprint, payload, COALESCE(content_type,''), headers, COALESCE(event_id,''), COALESCE(correlation_id,''), COALESCE(business_key,''), COALESCE(external_ref,''), status, attempts, lost_leases, fence, COALESCE(owner,''), COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), COALESCE(last_error_code,''), COALESCE(last_error,''), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0) FROM `my_side_effect_command` WHERE tenant_id = ? AND channel = ? AND idempotency_key = ? FOR UPDATE

-- who
SELECT status, COALESCE(last_error_code,''), COALESCE(owner,''), fence FROM `my_side_effect_command` WHERE id = ?

