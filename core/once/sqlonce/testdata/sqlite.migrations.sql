-- 0001_init
-- Work that is done once per key. All times are microseconds since 1970 UTC.
-- status: 0 FREE (its work failed), 1 HELD, 2 DONE. A key is held while lease_until lies ahead, and forgotten after expires_at.
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

-- What each handler of each consumer did with an event.
-- status: 0 RECEIVED, 1 PROCESSING, 2 PROCESSED, 3 FAILED, 4 PARKED. A handler that works in the transaction of its row inserts it as PROCESSED;
-- failures are written after the rollback, in a transaction of their own. What is PARKED waits for a person.
CREATE TABLE IF NOT EXISTS "inbox_event" (
    consumer          TEXT    NOT NULL,
    handler           TEXT    NOT NULL,
    tenant_id         TEXT    NOT NULL,
    event_id          TEXT    NOT NULL,
    event_type        TEXT,
    event_version     INTEGER NOT NULL DEFAULT 0,
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    partition_key     TEXT,
    key_seq           INTEGER,
    source_topic      TEXT,
    source_partition  INTEGER,
    source_offset     INTEGER,
    status            INTEGER NOT NULL CHECK (status BETWEEN 0 AND 4),
    attempts          INTEGER NOT NULL DEFAULT 0,
    last_error_code   TEXT,
    last_error        TEXT,
    received_at       INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    processed_at      INTEGER,
    failed_at         INTEGER,
    PRIMARY KEY (consumer, handler, tenant_id, event_id)
);
CREATE INDEX IF NOT EXISTS "inbox_event_done" ON "inbox_event" (consumer, processed_at) WHERE status = 2;
CREATE INDEX IF NOT EXISTS "inbox_event_open" ON "inbox_event" (consumer, status, received_at) WHERE status <> 2;

-- The newest event of each key that a handler has processed.
CREATE TABLE IF NOT EXISTS "inbox_key" (
    consumer      TEXT    NOT NULL,
    handler       TEXT    NOT NULL,
    tenant_id     TEXT    NOT NULL,
    topic         TEXT    NOT NULL,
    partition_key TEXT    NOT NULL,
    last_seq      INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (consumer, handler, tenant_id, topic, partition_key)
) WITHOUT ROWID;

-- Commands to the world outside: each is done once per tenant, channel and idempotency key, after the transaction that wrote it.
-- status: 0 PENDING, 1 PROCESSING, 2 COMPLETED, 3 FAILED (tried again when available), 4 PARKED. A command is held while lease_until lies ahead.
CREATE TABLE IF NOT EXISTS "side_effect_command" (
    id              TEXT    NOT NULL PRIMARY KEY,
    tenant_id       TEXT    NOT NULL,
    channel         TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    fingerprint     BLOB,
    payload         BLOB    NOT NULL,
    content_type    TEXT,
    headers         TEXT,
    event_id        TEXT,
    correlation_id  TEXT,
    business_key    TEXT,
    external_ref    TEXT,
    status          INTEGER NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    attempts        INTEGER NOT NULL DEFAULT 0,
    lost_leases     INTEGER NOT NULL DEFAULT 0,
    fence           INTEGER NOT NULL DEFAULT 0,
    owner           TEXT,
    lease_until     INTEGER,
    available_at    INTEGER NOT NULL,
    last_error_code TEXT,
    last_error      TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    done_at         INTEGER,
    UNIQUE (tenant_id, channel, idempotency_key)
);
CREATE INDEX IF NOT EXISTS "side_effect_command_due" ON "side_effect_command" (channel, available_at, id) WHERE status IN (0, 1, 3);
CREATE INDEX IF NOT EXISTS "side_effect_command_parked" ON "side_effect_command" (id) WHERE status = 4;
CREATE INDEX IF NOT EXISTS "side_effect_command_done" ON "side_effect_command" (done_at) WHERE status = 2;

-- down
DROP TABLE IF EXISTS "side_effect_command";
DROP TABLE IF EXISTS "inbox_key";
DROP TABLE IF EXISTS "inbox_event";
DROP TABLE IF EXISTS "idempotency_key";

