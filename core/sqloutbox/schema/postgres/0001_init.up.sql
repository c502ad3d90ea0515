-- The outbox: one row is one event for one destination. Half of each page is left free for the new
-- versions that a claim writes: they then need no new index entries, and the table ends up smaller
-- than a full one that was spread by its updates.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. error_group is the fingerprint of the last failure, and means nothing in rows without an
-- error: what marks a row done leaves it alone. failures has a line for each of the last
-- refusals that counted. causation_id is a copy of the header, which is made
-- by the database, so that no producer can forget it.
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
    causation_id      text        COLLATE "C" GENERATED ALWAYS AS (NULLIF(left(headers ->> 'causation_id', 255), '')) STORED,
    error_group       text        COLLATE "C",
    failures          text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- There are few indexes and no CHECKs, because each of them costs every insert and every mark. Only
-- open and dead rows are in the indexes, so published rows never slow a claim.
-- event_ready: claims without a key, next due, backlog. event_key has the open and the dead rows of
-- each key, in order: the first row of a key decides whether anything of the key can be claimed.
-- Claims of keys, next due, backlog and the collection of keys use it. event_dead: the list and the
-- count of dead rows. event_cause: what an event has caused, in any status; it has no row without a
-- cause. The cleanup walks the primary key.
CREATE INDEX IF NOT EXISTS {{name:event_ready}} ON {{event}} (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS {{name:event_key}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2, 3) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_dead}} ON {{event}} (id) WHERE status = 3;
CREATE INDEX IF NOT EXISTS {{name:event_cause}} ON {{event}} (causation_id) WHERE causation_id IS NOT NULL;

-- One row for each key in use: it gives out dense numbers in commit order. No column but the key is
-- indexed, so that its updates stay on the page. timeline is PostgreSQL's, at the last number. Aurora
-- has none. Where these functions are refused, drop the default's expression: SET DEFAULT ''.
CREATE TABLE IF NOT EXISTS {{key}} (
    lane      bytea       NOT NULL PRIMARY KEY,
    last_seq  bigint      NOT NULL,
    first_seq bigint      NOT NULL,
    last_id   uuid,
    prev_id   uuid,
    used_at   timestamptz NOT NULL,
    timeline  text        COLLATE "C" NOT NULL DEFAULT CASE WHEN to_regproc('aurora_version') IS NULL THEN substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) ELSE '' END
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Changes of rows by people. detail is what an edit changed.
CREATE TABLE IF NOT EXISTS {{audit}} (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    action   text        NOT NULL,
    actor    text        NOT NULL,
    reason   text        NOT NULL,
    row_id   uuid        NOT NULL,
    event_id text        COLLATE "C" NOT NULL,
    topic    text        COLLATE "C" NOT NULL,
    new_id   uuid,
    detail   text
);
CREATE INDEX IF NOT EXISTS {{name:audit_row}} ON {{audit}} (row_id);

-- One row for each relay that runs: who it is, when it was last seen, and what only its memory
-- knows, as JSON. Claims and producers do not use it.
CREATE TABLE IF NOT EXISTS {{relay}} (
    node         text        COLLATE "C" NOT NULL PRIMARY KEY,
    host         text        NOT NULL,
    pid          bigint      NOT NULL,
    program      text        NOT NULL,
    version      text        NOT NULL,
    all_topics   smallint    NOT NULL,
    topics       text        NOT NULL,
    started_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    claimed_at   timestamptz,
    published_at timestamptz,
    state        text
);

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS {{plan}} (
    id           text        COLLATE "C" NOT NULL PRIMARY KEY,
    state        text        NOT NULL,
    version      bigint      NOT NULL,
    body         text        NOT NULL,
    ids          bytea       NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    worker_until timestamptz
);

-- One row for each pause: what is paused ('all' or 'topic:' and the topic), until when (NULL: until
-- it is resumed), by whom and why. A row with per_second or in_flight limits its destination instead
-- (NULL: no limit). Relays read the table every two seconds. Claims and producers do not use it.
CREATE TABLE IF NOT EXISTS {{pause}} (
    target     text        COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at  timestamptz NOT NULL,
    ends_at    timestamptz,
    actor      text        NOT NULL,
    reason     text        NOT NULL,
    per_second double precision,
    in_flight  integer
);

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS {{group}} (
    fingerprint text        COLLATE "C" NOT NULL PRIMARY KEY,
    note        text        NOT NULL,
    muted_until timestamptz,
    actor       text        NOT NULL,
    updated_at  timestamptz NOT NULL
);

-- What relays did, in slots of five minutes, for seven days: part is the number of the slot, a colon
-- and the topic. The row with an empty topic has the topics that have no row of their own, and what
-- waited in all (NULL: nobody has counted). Relays add to it once a minute. Marks do not use it.
CREATE TABLE IF NOT EXISTS {{history}} (
    part         text        COLLATE "C" NOT NULL PRIMARY KEY,
    slot         timestamptz NOT NULL,
    topic        text        COLLATE "C" NOT NULL,
    published    bigint      NOT NULL,
    refused      bigint      NOT NULL,
    died         bigint      NOT NULL,
    waiting      bigint,
    dead         bigint,
    blocked_keys bigint,
    oldest       bigint,
    more         smallint
);
