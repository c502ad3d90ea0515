-- cleanup_delete of 2
DELETE FROM `my_idempotency_key` WHERE (scope = ? AND tenant = ? AND id = ?) OR (scope = ? AND tenant = ? AND id = ?)

-- cleanup_find
SELECT scope, tenant, id FROM `my_idempotency_key` WHERE expires_at < UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT ? FOR UPDATE SKIP LOCKED

-- complete
UPDATE `my_idempotency_key` SET status = 2, lease_until = NULL, result = ?, result_type = ?, result_meta = ?, done_at = UTC_TIMESTAMP(6), updated_at = UTC_TIMESTAMP(6), expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 1

-- complete_tx
UPDATE `my_idempotency_key` SET result = ?, result_type = ?, result_meta = ?, updated_at = UTC_TIMESTAMP(6) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 2

-- desk_from
SELECT scope, tenant, id, CASE WHEN status = 1 AND lease_until < UTC_TIMESTAMP(6) THEN 3 ELSE status END, attempts, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',lease_until),0), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at) FROM (SELECT scope, tenant, id, status, attempts, created_at, lease_until, done_at, expires_at FROM `my_idempotency_key` WHERE expires_at <= CAST('1970-01-01 00:00:00' AS DATETIME(6)) + INTERVAL ? MICROSECOND AND (TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at), scope, tenant, id) < (?, ?, ?, ?) ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT ?) k WHERE 1 = 1

-- desk_last
SELECT TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at), scope, tenant, id FROM `my_idempotency_key` WHERE expires_at <= CAST('1970-01-01 00:00:00' AS DATETIME(6)) + INTERVAL ? MICROSECOND AND (TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at), scope, tenant, id) < (?, ?, ?, ?) ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT 1 OFFSET ?

-- desk_named
SELECT scope, tenant, id, CASE WHEN status = 1 AND lease_until < UTC_TIMESTAMP(6) THEN 3 ELSE status END, attempts, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',lease_until),0), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at) FROM `my_idempotency_key` WHERE scope = ? AND expires_at <= CAST('1970-01-01 00:00:00' AS DATETIME(6)) + INTERVAL ? MICROSECOND AND (TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at), scope, tenant, id) < (?, ?, ?, ?)

-- desk_sum
SELECT scope, state, COUNT(*), MIN(remaining) FROM (SELECT scope, CASE WHEN status = 1 AND lease_until < UTC_TIMESTAMP(6) THEN 3 ELSE status END AS state, COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0) AS remaining FROM `my_idempotency_key` ORDER BY expires_at DESC LIMIT ?) k GROUP BY scope, state

-- done
INSERT INTO `my_idempotency_key` (scope, tenant, id, owner, status, fence, attempts, created_at, updated_at, done_at, result, result_type, result_meta, expires_at) VALUES (?, ?, ?, ?, 2, ?, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), ?, ?, ?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE seen = seen + 1

-- erasable
SELECT scope, tenant, id, status, CASE WHEN result IS NOT NULL OR COALESCE(result_meta,'') <> '{"not_kept":true}' THEN 1 ELSE 0 END FROM `my_idempotency_key` WHERE id = ? AND (? = '' OR scope = ?) AND (? = '' OR tenant = ?)

-- erase
UPDATE `my_idempotency_key` SET result = NULL, result_type = NULL, result_meta = '{"not_kept":true}', updated_at = UTC_TIMESTAMP(6) WHERE scope = ? AND tenant = ? AND id = ? AND status = 2

-- extend
UPDATE `my_idempotency_key` SET lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, updated_at = UTC_TIMESTAMP(6), expires_at = GREATEST(expires_at, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 1

-- forget
DELETE FROM `my_idempotency_program` WHERE scope = ? AND seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND

-- hold
INSERT INTO `my_idempotency_key` (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES (?, ?, ?, NULL, ?, 1, ?, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE seen = seen + 1

-- insert
INSERT INTO `my_idempotency_key` (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES (?, ?, ?, ?, ?, 1, 1, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, NULL, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE seen = seen + 1

-- insert_tx_guarded
INSERT INTO `my_idempotency_key` (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) SELECT ?, ?, ?, ?, ?, 2, 1, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), NULL, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND FROM DUAL WHERE @@in_transaction = 1 ON DUPLICATE KEY UPDATE seen = seen + 1

-- insert_tx_plain
INSERT INTO `my_idempotency_key` (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES (?, ?, ?, ?, ?, 2, 1, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), NULL, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND) ON DUPLICATE KEY UPDATE seen = seen + 1

-- lock_old of 2
SELECT scope, tenant, id FROM `my_idempotency_key` WHERE (scope = ? AND tenant = ? AND id = ? AND fence = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at) = ? AND status = ?) OR (scope = ? AND tenant = ? AND id = ? AND fence = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at) = ? AND status = ?) FOR UPDATE SKIP LOCKED

-- look
SELECT status, owner, fence, attempts, fingerprint, COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),expires_at), TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),created_at), result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM `my_idempotency_key` WHERE scope = ? AND tenant = ? AND id = ?

-- old
SELECT scope, tenant, id, fingerprint, owner, status, fence, attempts, TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',created_at), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at), COALESCE(TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',done_at),0), TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at), result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM `my_idempotency_key` WHERE expires_at < UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT ?

-- programs_others
SELECT program FROM `my_idempotency_program` WHERE scope = ? AND program <> ? AND seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND ORDER BY program

-- programs_register
INSERT INTO `my_idempotency_program` (scope, program, seen_at) VALUES (?, ?, UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE seen_at = VALUES(seen_at)

-- programs_shared
SELECT p.scope, p.program FROM `my_idempotency_program` p WHERE p.seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AND EXISTS (SELECT 1 FROM `my_idempotency_program` o WHERE o.scope = p.scope AND o.program <> p.program AND o.seen_at > UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND) ORDER BY p.scope, p.program

-- release
UPDATE `my_idempotency_key` SET status = 0, attempts = ?, lease_until = NULL, updated_at = UTC_TIMESTAMP(6) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 1

-- release_tx
UPDATE `my_idempotency_key` SET status = 0, done_at = NULL, result = NULL, result_type = NULL, result_meta = NULL, updated_at = UTC_TIMESTAMP(6) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 2

-- remove of 2
DELETE FROM `my_idempotency_key` WHERE (scope = ? AND tenant = ? AND id = ? AND fence = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at) = ? AND status = ?) OR (scope = ? AND tenant = ? AND id = ? AND fence = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',updated_at) = ? AND TIMESTAMPDIFF(MICROSECOND,'1970-01-01 00:00:00',expires_at) = ? AND status = ?)

-- see
SELECT status, owner, fence, attempts, fingerprint, COALESCE(TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),lease_until),0), TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),expires_at), TIMESTAMPDIFF(MICROSECOND,UTC_TIMESTAMP(6),created_at), result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM `my_idempotency_key` WHERE scope = ? AND tenant = ? AND id = ? FOR UPDATE

-- take
UPDATE `my_idempotency_key` SET fingerprint = ?, owner = ?, fence = fence + 1, attempts = ?, created_at = CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) ELSE created_at END, result = NULL, result_type = NULL, updated_at = UTC_TIMESTAMP(6), result_meta = ?, status = 1, lease_until = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, done_at = NULL, expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE scope = ? AND tenant = ? AND id = ?

-- take_tx
UPDATE `my_idempotency_key` SET fingerprint = ?, owner = ?, fence = fence + 1, attempts = ?, created_at = CASE WHEN ? = 1 THEN UTC_TIMESTAMP(6) ELSE created_at END, result = NULL, result_type = NULL, updated_at = UTC_TIMESTAMP(6), result_meta = NULL, status = 2, lease_until = NULL, done_at = UTC_TIMESTAMP(6), expires_at = UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND WHERE scope = ? AND tenant = ? AND id = ?

-- who
SELECT status, owner, fence FROM `my_idempotency_key` WHERE scope = ? AND tenant = ? AND id = ?

