-- cleanup
DELETE FROM "idempotency_key" WHERE rowid IN (SELECT rowid FROM "idempotency_key" WHERE expires_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) ORDER BY expires_at LIMIT ?)

-- complete
UPDATE "idempotency_key" SET status = 2, lease_until = NULL, result = ?, result_type = ?, result_meta = ?, done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), expires_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 1

-- complete_tx
UPDATE "idempotency_key" SET result = ?, result_type = ?, result_meta = ?, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 2

-- desk_from
SELECT scope, tenant, id, CASE WHEN status = 1 AND lease_until < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) THEN 3 ELSE status END, attempts, created_at, COALESCE(lease_until,0), COALESCE(done_at,0), expires_at FROM (SELECT scope, tenant, id, status, attempts, created_at, lease_until, done_at, expires_at FROM "idempotency_key" WHERE expires_at <= ? AND (expires_at, scope, tenant, id) < (?, ?, ?, ?) ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT ?) k WHERE 1 = 1

-- desk_last
SELECT expires_at, scope, tenant, id FROM "idempotency_key" WHERE expires_at <= ? AND (expires_at, scope, tenant, id) < (?, ?, ?, ?) ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT 1 OFFSET ?

-- desk_named
SELECT scope, tenant, id, CASE WHEN status = 1 AND lease_until < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) THEN 3 ELSE status END, attempts, created_at, COALESCE(lease_until,0), COALESCE(done_at,0), expires_at FROM "idempotency_key" WHERE scope = ? AND expires_at <= ? AND (expires_at, scope, tenant, id) < (?, ?, ?, ?)

-- desk_sum
SELECT scope, state, COUNT(*), MIN(remaining) FROM (SELECT scope, CASE WHEN status = 1 AND lease_until < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) THEN 3 ELSE status END AS state, COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0) AS remaining FROM "idempotency_key" ORDER BY expires_at DESC LIMIT ?) k GROUP BY scope, state

-- done
INSERT INTO "idempotency_key" (scope, tenant, id, owner, status, fence, attempts, created_at, updated_at, done_at, result, result_type, result_meta, expires_at) VALUES (?, ?, ?, ?, 2, ?, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), ?, ?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ON CONFLICT (scope, tenant, id) DO NOTHING

-- erasable
SELECT scope, tenant, id, status, CASE WHEN result IS NOT NULL OR COALESCE(result_meta,'') <> '{"not_kept":true}' THEN 1 ELSE 0 END FROM "idempotency_key" WHERE id = ? AND (? = '' OR scope = ?) AND (? = '' OR tenant = ?)

-- erase
UPDATE "idempotency_key" SET result = NULL, result_type = NULL, result_meta = '{"not_kept":true}', updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE scope = ? AND tenant = ? AND id = ? AND status = 2

-- extend
UPDATE "idempotency_key" SET lease_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), expires_at = MAX(expires_at, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 1

-- forget
DELETE FROM "idempotency_program" WHERE scope = ? AND seen_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?

-- hold
INSERT INTO "idempotency_key" (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES (?, ?, ?, NULL, ?, 1, ?, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, NULL, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ON CONFLICT (scope, tenant, id) DO NOTHING

-- insert
INSERT INTO "idempotency_key" (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES (?, ?, ?, ?, ?, 1, 1, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, NULL, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ON CONFLICT (scope, tenant, id) DO NOTHING

-- insert_tx_plain
INSERT INTO "idempotency_key" (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES (?, ?, ?, ?, ?, 2, 1, 1, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), NULL, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?) ON CONFLICT (scope, tenant, id) DO NOTHING

-- lock_old of 2
SELECT scope, tenant, id FROM "idempotency_key" WHERE (scope = ? AND tenant = ? AND id = ? AND fence = ? AND updated_at = ? AND expires_at = ? AND status = ?) OR (scope = ? AND tenant = ? AND id = ? AND fence = ? AND updated_at = ? AND expires_at = ? AND status = ?)

-- look
SELECT status, owner, fence, attempts, fingerprint, COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), expires_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), created_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM "idempotency_key" WHERE scope = ? AND tenant = ? AND id = ?

-- old
SELECT scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, COALESCE(done_at,0), expires_at, result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM "idempotency_key" WHERE expires_at < (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) ORDER BY expires_at LIMIT ?

-- programs_others
SELECT program FROM "idempotency_program" WHERE scope = ? AND program <> ? AND seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? ORDER BY program

-- programs_register
INSERT INTO "idempotency_program" (scope, program, seen_at) VALUES (?, ?, (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)) ON CONFLICT (scope, program) DO UPDATE SET seen_at = excluded.seen_at

-- programs_shared
SELECT p.scope, p.program FROM "idempotency_program" p WHERE p.seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-? AND EXISTS (SELECT 1 FROM "idempotency_program" o WHERE o.scope = p.scope AND o.program <> p.program AND o.seen_at > (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)-?) ORDER BY p.scope, p.program

-- release
UPDATE "idempotency_key" SET status = 0, attempts = ?, lease_until = NULL, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 1

-- release_tx
UPDATE "idempotency_key" SET status = 0, done_at = NULL, result = NULL, result_type = NULL, result_meta = NULL, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) WHERE scope = ? AND tenant = ? AND id = ? AND owner = ? AND fence = ? AND status = 2

-- remove of 2
DELETE FROM "idempotency_key" WHERE (scope = ? AND tenant = ? AND id = ? AND fence = ? AND updated_at = ? AND expires_at = ? AND status = ?) OR (scope = ? AND tenant = ? AND id = ? AND fence = ? AND updated_at = ? AND expires_at = ? AND status = ?)

-- see
SELECT status, owner, fence, attempts, fingerprint, COALESCE(lease_until-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000),0), expires_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), created_at-(CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM "idempotency_key" WHERE scope = ? AND tenant = ? AND id = ?

-- take
UPDATE "idempotency_key" SET fingerprint = ?, owner = ?, fence = fence + 1, attempts = ?, created_at = CASE WHEN ? = 1 THEN (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) ELSE created_at END, result = NULL, result_type = NULL, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), result_meta = ?, status = 1, lease_until = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+?, done_at = NULL, expires_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE scope = ? AND tenant = ? AND id = ?

-- take_tx
UPDATE "idempotency_key" SET fingerprint = ?, owner = ?, fence = fence + 1, attempts = ?, created_at = CASE WHEN ? = 1 THEN (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000) ELSE created_at END, result = NULL, result_type = NULL, updated_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), result_meta = NULL, status = 2, lease_until = NULL, done_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000), expires_at = (CAST(strftime('%s','now') AS INTEGER)*1000000+CAST(substr(strftime('%f','now'),4) AS INTEGER)*1000)+? WHERE scope = ? AND tenant = ? AND id = ?

-- who
SELECT status, owner, fence FROM "idempotency_key" WHERE scope = ? AND tenant = ? AND id = ?

