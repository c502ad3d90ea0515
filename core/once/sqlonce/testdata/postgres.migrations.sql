-- 0001_init
-- Work that is done once per key.
-- status: 0 FREE (its work failed), 1 HELD, 2 DONE. A key is held while lease_until lies ahead, and
-- forgotten after expires_at.
CREATE TABLE IF NOT EXISTS "app"."idempotency_key" (
    scope       text        COLLATE "C" NOT NULL,
    tenant      text        COLLATE "C" NOT NULL,
    id          text        COLLATE "C" NOT NULL,
    fingerprint bytea,
    status      smallint    NOT NULL,
    owner       text        COLLATE "C" NOT NULL,
    fence       bigint      NOT NULL,
    attempts    integer     NOT NULL,
    lease_until timestamptz,
    result      bytea,
    result_type text        COLLATE "C",
    result_meta text        COLLATE "C",
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    done_at     timestamptz,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (scope, tenant, id),
    CONSTRAINT "idempotency_key_status" CHECK (status BETWEEN 0 AND 2),
    CONSTRAINT "idempotency_key_lease" CHECK ((status = 1) = (lease_until IS NOT NULL))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS "idempotency_key_expires" ON "app"."idempotency_key" (expires_at);

-- The programs that use the keys of a scope. Two programs under one name get the results of each
-- other, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS "app"."idempotency_program" (
    scope   text        COLLATE "C" NOT NULL,
    program text        COLLATE "C" NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (scope, program)
);

-- down
DROP TABLE IF EXISTS "app"."idempotency_program";
DROP TABLE IF EXISTS "app"."idempotency_key";

