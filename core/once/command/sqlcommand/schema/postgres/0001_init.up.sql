-- Commands to the world outside: each is done once per tenant, channel and idempotency key, after
-- the transaction that wrote it.
-- status: 0 PENDING, 1 PROCESSING, 2 COMPLETED, 3 FAILED (tried again when available), 4 DEAD. A
-- command is held while lease_until lies ahead.
CREATE TABLE IF NOT EXISTS {{command}} (
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
    CONSTRAINT {{name:side_effect_command_key}} UNIQUE (tenant_id, channel, idempotency_key),
    CONSTRAINT {{name:side_effect_command_status}} CHECK (status BETWEEN 0 AND 4)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS {{name:side_effect_command_due}} ON {{command}} (channel, available_at, id) WHERE status IN (0, 1, 3);
CREATE INDEX IF NOT EXISTS {{name:side_effect_command_parked}} ON {{command}} (id) WHERE status = 4;
CREATE INDEX IF NOT EXISTS {{name:side_effect_command_done}} ON {{command}} (done_at) WHERE status = 2;

-- The programs whose workers execute the effects of a channel. Two programs under one name share its
-- effects, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    channel text        COLLATE "C" NOT NULL,
    program text        COLLATE "C" NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (channel, program)
);
