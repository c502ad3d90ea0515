-- The outbox: one row is one event for one destination. Half of each page is left free for the new
-- versions that a claim writes: they then need no new index entries, and the table ends up smaller
-- than a full one that was spread by its updates.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead.
CREATE TABLE IF NOT EXISTS {{event}} (
    id                uuid        NOT NULL PRIMARY KEY,
    event_id          text        COLLATE "C" NOT NULL,
    event_type        text        COLLATE "C" NOT NULL,
    schema_version    integer     NOT NULL DEFAULT 0,
    topic             text        COLLATE "C" NOT NULL,
    aggregate_type    text        COLLATE "C",
    aggregate_id      text        COLLATE "C",
    aggregate_version bigint      NOT NULL DEFAULT 0,
    tenant_id         text        COLLATE "C",
    partition_key     text        COLLATE "C",
    lane              bytea,
    key_seq           bigint,
    payload           bytea       NOT NULL,
    content_type      text        COLLATE "C",
    headers           jsonb,
    status            smallint    NOT NULL DEFAULT 0,
    attempts          integer     NOT NULL DEFAULT 0,
    claim_no          bigint      NOT NULL DEFAULT 0,
    lost_claims       integer     NOT NULL DEFAULT 0,
    claimed_by        text        COLLATE "C",
    lease_until       timestamptz,
    available_at      timestamptz NOT NULL,
    occurred_at       timestamptz NOT NULL,
    created_at        timestamptz NOT NULL,
    done_at           timestamptz,
    last_error_code   text,
    last_error        text,
    replay_of         uuid,
    receipt           text,
    CONSTRAINT {{name:event_status}} CHECK (status BETWEEN 0 AND 4),
    CONSTRAINT {{name:event_lane}} CHECK ((lane IS NULL) = (key_seq IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Only open rows are in the indexes that claims use, so published rows never slow a claim.
CREATE INDEX IF NOT EXISTS {{name:event_ready}} ON {{event}} (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS {{name:event_open}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_blocked}} ON {{event}} (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_dead}} ON {{event}} (id) WHERE status = 3;
CREATE INDEX IF NOT EXISTS {{name:event_done}} ON {{event}} (done_at) WHERE status IN (1, 4);

-- One row for each key in use: it gives out dense numbers in commit order. No column but the key is
-- indexed, so that its updates stay on the page.
CREATE TABLE IF NOT EXISTS {{key}} (
    lane      bytea       NOT NULL PRIMARY KEY,
    last_seq  bigint      NOT NULL,
    first_seq bigint      NOT NULL,
    last_id   uuid,
    prev_id   uuid,
    used_at   timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Changes of rows by people.
CREATE TABLE IF NOT EXISTS {{audit}} (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    action   text        NOT NULL,
    actor    text        NOT NULL,
    reason   text        NOT NULL,
    row_id   uuid        NOT NULL,
    event_id text        COLLATE "C" NOT NULL,
    topic    text        COLLATE "C" NOT NULL,
    new_id   uuid
);
CREATE INDEX IF NOT EXISTS {{name:audit_row}} ON {{audit}} (row_id);
