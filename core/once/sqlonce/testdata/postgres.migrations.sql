-- 0001_init
-- Work that is done once per key.
-- status: 0 FREE (its work failed), 1 HELD, 2 DONE. A key is held while lease_until lies ahead, and forgotten after expires_at.
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

-- What each handler of each consumer did with an event.
-- status: 0 RECEIVED, 1 PROCESSING, 2 PROCESSED, 3 FAILED, 4 PARKED. A handler that works in the transaction of its row inserts it as PROCESSED;
-- failures are written after the rollback, in a transaction of their own. What is PARKED waits for a person.
CREATE TABLE IF NOT EXISTS "app"."inbox_event" (
    consumer          text        COLLATE "C" NOT NULL,
    handler           text        COLLATE "C" NOT NULL,
    tenant_id         text        COLLATE "C" NOT NULL,
    event_id          text        COLLATE "C" NOT NULL,
    event_type        text        COLLATE "C",
    event_version     integer     NOT NULL DEFAULT 0,
    aggregate_type    text        COLLATE "C",
    aggregate_id      text        COLLATE "C",
    partition_key     text        COLLATE "C",
    key_seq           bigint,
    source_topic      text        COLLATE "C",
    source_partition  integer,
    source_offset     bigint,
    status            smallint    NOT NULL,
    attempts          integer     NOT NULL DEFAULT 0,
    last_error_code   text,
    last_error        text,
    received_at       timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    processed_at      timestamptz,
    failed_at         timestamptz,
    PRIMARY KEY (consumer, handler, tenant_id, event_id),
    CONSTRAINT "inbox_event_status" CHECK (status BETWEEN 0 AND 4)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS "inbox_event_done" ON "app"."inbox_event" (consumer, processed_at) WHERE status = 2;
CREATE INDEX IF NOT EXISTS "inbox_event_open" ON "app"."inbox_event" (consumer, status, received_at) WHERE status <> 2;

-- The newest event of each key that a handler has processed. Only the primary key is indexed, so that updates stay on the page.
CREATE TABLE IF NOT EXISTS "app"."inbox_key" (
    consumer      text        COLLATE "C" NOT NULL,
    handler       text        COLLATE "C" NOT NULL,
    tenant_id     text        COLLATE "C" NOT NULL,
    topic         text        COLLATE "C" NOT NULL,
    partition_key text        COLLATE "C" NOT NULL,
    last_seq      bigint      NOT NULL,
    updated_at    timestamptz NOT NULL,
    PRIMARY KEY (consumer, handler, tenant_id, topic, partition_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Commands to the world outside: each is done once per tenant, channel and idempotency key, after the transaction that wrote it.
-- status: 0 PENDING, 1 PROCESSING, 2 COMPLETED, 3 FAILED (tried again when available), 4 PARKED. A command is held while lease_until lies ahead.
CREATE TABLE IF NOT EXISTS "app"."side_effect_command" (
    id              text        COLLATE "C" NOT NULL PRIMARY KEY,
    tenant_id       text        COLLATE "C" NOT NULL,
    channel         text        COLLATE "C" NOT NULL,
    idempotency_key text        COLLATE "C" NOT NULL,
    fingerprint     bytea,
    payload         bytea       NOT NULL,
    content_type    text        COLLATE "C",
    headers         jsonb,
    event_id        text        COLLATE "C",
    correlation_id  text        COLLATE "C",
    business_key    text        COLLATE "C",
    external_ref    text        COLLATE "C",
    status          smallint    NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,
    lost_leases     integer     NOT NULL DEFAULT 0,
    fence           bigint      NOT NULL DEFAULT 0,
    owner           text        COLLATE "C",
    lease_until     timestamptz,
    available_at    timestamptz NOT NULL,
    last_error_code text,
    last_error      text,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    done_at         timestamptz,
    CONSTRAINT "side_effect_command_key" UNIQUE (tenant_id, channel, idempotency_key),
    CONSTRAINT "side_effect_command_status" CHECK (status BETWEEN 0 AND 4)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS "side_effect_command_due" ON "app"."side_effect_command" (channel, available_at, id) WHERE status IN (0, 1, 3);
CREATE INDEX IF NOT EXISTS "side_effect_command_parked" ON "app"."side_effect_command" (id) WHERE status = 4;
CREATE INDEX IF NOT EXISTS "side_effect_command_done" ON "app"."side_effect_command" (done_at) WHERE status = 2;

-- down
DROP TABLE IF EXISTS "app"."side_effect_command";
DROP TABLE IF EXISTS "app"."inbox_key";
DROP TABLE IF EXISTS "app"."inbox_event";
DROP TABLE IF EXISTS "app"."idempotency_key";

