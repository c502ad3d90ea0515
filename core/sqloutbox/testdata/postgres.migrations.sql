-- 0001_init
-- The outbox: one row is one event for one destination. Half of each page is left free for the new
-- versions that a claim writes: they then need no new index entries, and the table ends up smaller
-- than a full one that was spread by its updates.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead.
CREATE TABLE IF NOT EXISTS "app"."outbox_event" (
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
    CONSTRAINT "outbox_event_status" CHECK (status BETWEEN 0 AND 4),
    CONSTRAINT "outbox_event_lane" CHECK ((lane IS NULL) = (key_seq IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
        autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Only open rows are in the indexes that claims use, so published rows never slow a claim.
CREATE INDEX IF NOT EXISTS "outbox_event_ready" ON "app"."outbox_event" (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_open" ON "app"."outbox_event" (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_blocked" ON "app"."outbox_event" (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_dead" ON "app"."outbox_event" (id) WHERE status = 3;
CREATE INDEX IF NOT EXISTS "outbox_event_done" ON "app"."outbox_event" (done_at) WHERE status IN (1, 4);

-- One row for each key in use: it gives out dense numbers in commit order. No column but the key is
-- indexed, so that its updates stay on the page.
CREATE TABLE IF NOT EXISTS "app"."outbox_key" (
    lane      bytea       NOT NULL PRIMARY KEY,
    last_seq  bigint      NOT NULL,
    first_seq bigint      NOT NULL,
    last_id   uuid,
    prev_id   uuid,
    used_at   timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Changes of rows by people.
CREATE TABLE IF NOT EXISTS "app"."outbox_audit" (
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
CREATE INDEX IF NOT EXISTS "outbox_audit_row" ON "app"."outbox_audit" (row_id);

-- down
DROP TABLE IF EXISTS "app"."outbox_audit";
DROP TABLE IF EXISTS "app"."outbox_key";
DROP TABLE IF EXISTS "app"."outbox_event";

-- 0002_lean
-- Fewer indexes and no CHECKs, because each of them cost every insert and every mark. Stop all
-- processes of the version before first: their claims would have no index any more.
ALTER TABLE "app"."outbox_event" DROP CONSTRAINT IF EXISTS "outbox_event_status";
ALTER TABLE "app"."outbox_event" DROP CONSTRAINT IF EXISTS "outbox_event_lane";

-- The open and the dead rows of each key, in order: the first row of a key decides whether anything
-- of the key can be claimed.
CREATE INDEX IF NOT EXISTS "outbox_event_key" ON "app"."outbox_event" (lane, key_seq) WHERE status IN (0, 2, 3) AND lane IS NOT NULL;
DROP INDEX IF EXISTS "app"."outbox_event_open";
DROP INDEX IF EXISTS "app"."outbox_event_blocked";
-- The cleanup walks the primary key.
DROP INDEX IF EXISTS "app"."outbox_event_done";

-- down
-- The ALTER TABLE comes first: its lock excludes everybody, so that no later statement waits while
-- it holds another one.
ALTER TABLE "app"."outbox_event" DROP CONSTRAINT IF EXISTS "outbox_event_status";
ALTER TABLE "app"."outbox_event" DROP CONSTRAINT IF EXISTS "outbox_event_lane";
-- A dead row that left its key becomes one without a key.
UPDATE "app"."outbox_event" SET key_seq = NULL WHERE lane IS NULL AND key_seq IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_open" ON "app"."outbox_event" (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_blocked" ON "app"."outbox_event" (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_done" ON "app"."outbox_event" (done_at) WHERE status IN (1, 4);
DROP INDEX IF EXISTS "app"."outbox_event_key";
ALTER TABLE "app"."outbox_event" ADD CONSTRAINT "outbox_event_status" CHECK (status BETWEEN 0 AND 4);
ALTER TABLE "app"."outbox_event" ADD CONSTRAINT "outbox_event_lane" CHECK ((lane IS NULL) = (key_seq IS NULL));

-- 0003_relay
-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do
-- not use it. Processes of the version before need not stop: they do not know the table.
CREATE TABLE IF NOT EXISTS "app"."outbox_relay" (
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
    published_at timestamptz
);

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS "app"."outbox_plan" (
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
-- it is resumed), by whom and why. Relays read it every two seconds. Claims and producers do not
-- use it.
CREATE TABLE IF NOT EXISTS "app"."outbox_pause" (
    target    text        COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at timestamptz NOT NULL,
    ends_at   timestamptz,
    actor     text        NOT NULL,
    reason    text        NOT NULL
);

-- down
DROP TABLE IF EXISTS "app"."outbox_pause";
DROP TABLE IF EXISTS "app"."outbox_plan";
DROP TABLE IF EXISTS "app"."outbox_relay";

-- 0004_groups
-- The group of a failure in the table of events, what people said about groups, and limits of
-- destinations. Processes of the version before need not stop: they do not know the columns.
-- Nothing is rewritten: a column that may be NULL changes only the catalog. Its lock is asked for
-- with a limit, because everybody waits behind a lock that is waited for.
SELECT set_config('lock_timeout', '3s', true);
-- error_group is the fingerprint of the last failure. It is NULL in rows that an older process
-- marked, and means nothing in rows without an error: what marks a row done leaves it alone.
ALTER TABLE "app"."outbox_event" ADD COLUMN IF NOT EXISTS error_group text COLLATE "C";
-- NULL: no limit.
ALTER TABLE "app"."outbox_pause" ADD COLUMN IF NOT EXISTS per_second double precision;
ALTER TABLE "app"."outbox_pause" ADD COLUMN IF NOT EXISTS in_flight integer;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS "app"."outbox_group" (
    fingerprint text        COLLATE "C" NOT NULL PRIMARY KEY,
    note        text        NOT NULL,
    muted_until timestamptz,
    actor       text        NOT NULL,
    updated_at  timestamptz NOT NULL
);

-- down
SELECT set_config('lock_timeout', '3s', true);
ALTER TABLE "app"."outbox_event" DROP COLUMN IF EXISTS error_group;
ALTER TABLE "app"."outbox_pause" DROP COLUMN IF EXISTS in_flight;
ALTER TABLE "app"."outbox_pause" DROP COLUMN IF EXISTS per_second;
DROP TABLE IF EXISTS "app"."outbox_group";

