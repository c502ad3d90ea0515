-- cleanup
DELETE FROM "app"."idempotency_key" WHERE ctid = ANY (ARRAY(SELECT ctid FROM "app"."idempotency_key" WHERE expires_at < statement_timestamp() ORDER BY expires_at LIMIT $1::bigint FOR UPDATE SKIP LOCKED))

-- complete
UPDATE "app"."idempotency_key" SET status = 2, lease_until = NULL, result = $1, result_type = $2, result_meta = $3, done_at = statement_timestamp(), updated_at = statement_timestamp(), expires_at = statement_timestamp() + $4::bigint * interval '1 microsecond' WHERE scope = $5 AND tenant = $6 AND id = $7 AND owner = $8 AND fence = $9 AND status = 1

-- complete_tx
UPDATE "app"."idempotency_key" SET result = $1, result_type = $2, result_meta = $3, updated_at = statement_timestamp() WHERE scope = $4 AND tenant = $5 AND id = $6 AND owner = $7 AND fence = $8 AND status = 2

-- desk_from
SELECT scope, tenant, id, CASE WHEN status = 1 AND lease_until < statement_timestamp() THEN 3 ELSE status END, attempts, CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END FROM (SELECT scope, tenant, id, status, attempts, created_at, lease_until, done_at, expires_at FROM "app"."idempotency_key" WHERE expires_at <= timestamptz 'epoch' + ?::bigint * interval '1 microsecond' AND (CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, scope, tenant, id) < (?, ?, ?, ?) ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT ?) k WHERE 1 = 1

-- desk_last
SELECT CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, scope, tenant, id FROM "app"."idempotency_key" WHERE expires_at <= timestamptz 'epoch' + $1::bigint * interval '1 microsecond' AND (CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, scope, tenant, id) < ($2, $3, $4, $5) ORDER BY expires_at DESC, scope DESC, tenant DESC, id DESC LIMIT 1 OFFSET $6

-- desk_named
SELECT scope, tenant, id, CASE WHEN status = 1 AND lease_until < statement_timestamp() THEN 3 ELSE status END, attempts, CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END FROM "app"."idempotency_key" WHERE scope = ? AND expires_at <= timestamptz 'epoch' + ?::bigint * interval '1 microsecond' AND (CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, scope, tenant, id) < (?, ?, ?, ?)

-- desk_sum
SELECT scope, state, COUNT(*), MIN(remaining) FROM (SELECT scope, CASE WHEN status = 1 AND lease_until < statement_timestamp() THEN 3 ELSE status END AS state, COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0) AS remaining FROM "app"."idempotency_key" ORDER BY expires_at DESC LIMIT $1) k GROUP BY scope, state

-- done
INSERT INTO "app"."idempotency_key" (scope, tenant, id, owner, status, fence, attempts, created_at, updated_at, done_at, result, result_type, result_meta, expires_at) VALUES ($1, $2, $3, $4, 2, $5, 1, statement_timestamp(), statement_timestamp(), statement_timestamp(), $6, $7, $8, statement_timestamp() + $9::bigint * interval '1 microsecond') ON CONFLICT (scope, tenant, id) DO NOTHING

-- erasable
SELECT scope, tenant, id, status, CASE WHEN result IS NOT NULL OR COALESCE(result_meta,'') <> '{"not_kept":true}' THEN 1 ELSE 0 END FROM "app"."idempotency_key" WHERE id = $1 AND ($2 = '' OR scope = $3) AND ($4 = '' OR tenant = $5)

-- erase
UPDATE "app"."idempotency_key" SET result = NULL, result_type = NULL, result_meta = '{"not_kept":true}', updated_at = statement_timestamp() WHERE scope = $1 AND tenant = $2 AND id = $3 AND status = 2

-- extend
UPDATE "app"."idempotency_key" SET lease_until = statement_timestamp() + $1::bigint * interval '1 microsecond', updated_at = statement_timestamp(), expires_at = GREATEST(expires_at, statement_timestamp() + $2::bigint * interval '1 microsecond') WHERE scope = $3 AND tenant = $4 AND id = $5 AND owner = $6 AND fence = $7 AND status = 1

-- forget
DELETE FROM "app"."idempotency_program" WHERE scope = $1 AND seen_at < statement_timestamp() - $2::bigint * interval '1 microsecond'

-- hold
INSERT INTO "app"."idempotency_key" (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES ($1, $2, $3, NULL, $4, 1, $5, 1, statement_timestamp(), statement_timestamp(), statement_timestamp() + $6::bigint * interval '1 microsecond', NULL, statement_timestamp() + $7::bigint * interval '1 microsecond') ON CONFLICT (scope, tenant, id) DO NOTHING

-- insert
INSERT INTO "app"."idempotency_key" (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES ($1, $2, $3, $4, $5, 1, 1, 1, statement_timestamp(), statement_timestamp(), statement_timestamp() + $6::bigint * interval '1 microsecond', NULL, statement_timestamp() + $7::bigint * interval '1 microsecond') ON CONFLICT (scope, tenant, id) DO NOTHING

-- insert_tx_plain
INSERT INTO "app"."idempotency_key" (scope, tenant, id, fingerprint, owner, status, fence, attempts, created_at, updated_at, lease_until, done_at, expires_at) VALUES ($1, $2, $3, $4, $5, 2, 1, 1, statement_timestamp(), statement_timestamp(), NULL, statement_timestamp(), statement_timestamp() + $6::bigint * interval '1 microsecond') ON CONFLICT (scope, tenant, id) DO NOTHING

-- lock_old of 2
SELECT scope, tenant, id FROM "app"."idempotency_key" WHERE (scope = $1 AND tenant = $2 AND id = $3 AND fence = $4 AND CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $5 AND CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $6 AND status = $7) OR (scope = $8 AND tenant = $9 AND id = $10 AND fence = $11 AND CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $12 AND CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $13 AND status = $14) FOR UPDATE SKIP LOCKED

-- look
SELECT status, owner, fence, attempts, fingerprint, COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END, CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END, result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM "app"."idempotency_key" WHERE scope = $1 AND tenant = $2 AND id = $3

-- old
SELECT scope, tenant, id, fingerprint, owner, status, fence, attempts, CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, COALESCE(CASE WHEN done_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(done_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END,0), CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END, result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM "app"."idempotency_key" WHERE expires_at < statement_timestamp() ORDER BY expires_at LIMIT $1

-- programs_others
SELECT program FROM "app"."idempotency_program" WHERE scope = $1 AND program <> $2 AND seen_at > statement_timestamp() - $3::bigint * interval '1 microsecond' ORDER BY program

-- programs_register
INSERT INTO "app"."idempotency_program" (scope, program, seen_at) VALUES ($1, $2, statement_timestamp()) ON CONFLICT (scope, program) DO UPDATE SET seen_at = excluded.seen_at

-- programs_shared
SELECT p.scope, p.program FROM "app"."idempotency_program" p WHERE p.seen_at > statement_timestamp() - $1::bigint * interval '1 microsecond' AND EXISTS (SELECT 1 FROM "app"."idempotency_program" o WHERE o.scope = p.scope AND o.program <> p.program AND o.seen_at > statement_timestamp() - $2::bigint * interval '1 microsecond') ORDER BY p.scope, p.program

-- release
UPDATE "app"."idempotency_key" SET status = 0, attempts = $1, lease_until = NULL, updated_at = statement_timestamp() WHERE scope = $2 AND tenant = $3 AND id = $4 AND owner = $5 AND fence = $6 AND status = 1

-- release_tx
UPDATE "app"."idempotency_key" SET status = 0, done_at = NULL, result = NULL, result_type = NULL, result_meta = NULL, updated_at = statement_timestamp() WHERE scope = $1 AND tenant = $2 AND id = $3 AND owner = $4 AND fence = $5 AND status = 2

-- remove of 2
DELETE FROM "app"."idempotency_key" WHERE (scope = $1 AND tenant = $2 AND id = $3 AND fence = $4 AND CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $5 AND CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $6 AND status = $7) OR (scope = $8 AND tenant = $9 AND id = $10 AND fence = $11 AND CASE WHEN updated_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(updated_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $12 AND CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, '0001-01-01 00:00:00+00'), '9999-12-31 00:00:00+00'))*1000000)::bigint END = $13 AND status = $14)

-- see
SELECT status, owner, fence, attempts, fingerprint, COALESCE(CASE WHEN lease_until IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(lease_until, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END,0), CASE WHEN expires_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(expires_at, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END, CASE WHEN created_at IS NOT NULL THEN (extract(epoch from LEAST(GREATEST(created_at, statement_timestamp() - interval '36500 days'), statement_timestamp() + interval '36500 days') - statement_timestamp())*1000000)::bigint END, result, COALESCE(result_type,''), COALESCE(result_meta,'') FROM "app"."idempotency_key" WHERE scope = $1 AND tenant = $2 AND id = $3 FOR UPDATE

-- take
UPDATE "app"."idempotency_key" SET fingerprint = $1, owner = $2, fence = fence + 1, attempts = $3, created_at = CASE WHEN $4 = 1 THEN statement_timestamp() ELSE created_at END, result = NULL, result_type = NULL, updated_at = statement_timestamp(), result_meta = $5, status = 1, lease_until = statement_timestamp() + $6::bigint * interval '1 microsecond', done_at = NULL, expires_at = statement_timestamp() + $7::bigint * interval '1 microsecond' WHERE scope = $8 AND tenant = $9 AND id = $10

-- take_tx
UPDATE "app"."idempotency_key" SET fingerprint = $1, owner = $2, fence = fence + 1, attempts = $3, created_at = CASE WHEN $4 = 1 THEN statement_timestamp() ELSE created_at END, result = NULL, result_type = NULL, updated_at = statement_timestamp(), result_meta = NULL, status = 2, lease_until = NULL, done_at = statement_timestamp(), expires_at = statement_timestamp() + $5::bigint * interval '1 microsecond' WHERE scope = $6 AND tenant = $7 AND id = $8

-- who
SELECT status, owner, fence FROM "app"."idempotency_key" WHERE scope = $1 AND tenant = $2 AND id = $3

