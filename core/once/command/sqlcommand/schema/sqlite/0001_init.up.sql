-- Commands to the world outside: each is done once per tenant, channel and idempotency key, after
-- the transaction that wrote it.
-- status: 0 PENDING, 1 PROCESSING, 2 COMPLETED, 3 FAILED (tried again when available), 4 DEAD. A
-- command is held while lease_until lies ahead.
CREATE TABLE IF NOT EXISTS {{command}} (
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
CREATE INDEX IF NOT EXISTS {{name:side_effect_command_due}} ON {{command}} (channel, available_at, id) WHERE status IN (0, 1, 3);
CREATE INDEX IF NOT EXISTS {{name:side_effect_command_parked}} ON {{command}} (id) WHERE status = 4;
CREATE INDEX IF NOT EXISTS {{name:side_effect_command_done}} ON {{command}} (done_at) WHERE status = 2;

-- The programs whose workers execute the effects of a channel. Two programs under one name share its
-- effects, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    channel TEXT    NOT NULL,
    program TEXT    NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (channel, program)
) WITHOUT ROWID;
