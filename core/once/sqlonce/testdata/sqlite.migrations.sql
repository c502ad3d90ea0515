-- 0001_init
-- Work that is done once per key. All times are microseconds since 1970 UTC.
-- status: 0 FREE (its work failed), 1 HELD, 2 DONE. A key is held while lease_until lies ahead, and
-- forgotten after expires_at.
CREATE TABLE IF NOT EXISTS "idempotency_key" (
    scope       TEXT    NOT NULL,
    tenant      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    fingerprint BLOB,
    status      INTEGER NOT NULL CHECK (status BETWEEN 0 AND 2),
    owner       TEXT    NOT NULL,
    fence       INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    lease_until INTEGER,
    result      BLOB,
    result_type TEXT,
    result_meta TEXT,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    done_at     INTEGER,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (scope, tenant, id),
    CHECK ((status = 1) = (lease_until IS NOT NULL))
);
CREATE INDEX IF NOT EXISTS "idempotency_key_expires" ON "idempotency_key" (expires_at);

-- The programs that use the keys of a scope. Two programs under one name get the results of each
-- other, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS "idempotency_program" (
    scope   TEXT    NOT NULL,
    program TEXT    NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (scope, program)
) WITHOUT ROWID;

-- down
DROP TABLE IF EXISTS "idempotency_program";
DROP TABLE IF EXISTS "idempotency_key";

