-- 0001_init
-- The outbox: one row is one event for one destination.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. All times are microseconds since 1970 UTC.
CREATE TABLE IF NOT EXISTS "outbox_event" (
    id                BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    event_id          TEXT    NOT NULL,
    event_type        TEXT    NOT NULL,
    schema_version    INTEGER NOT NULL DEFAULT 0,
    topic             TEXT    NOT NULL,
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    aggregate_version INTEGER NOT NULL DEFAULT 0,
    tenant_id         TEXT,
    partition_key     TEXT,
    lane              BLOB,
    key_seq           INTEGER,
    payload           BLOB    NOT NULL,
    content_type      TEXT,
    headers           TEXT,
    status            INTEGER NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    attempts          INTEGER NOT NULL DEFAULT 0,
    claim_no          INTEGER NOT NULL DEFAULT 0,
    lost_claims       INTEGER NOT NULL DEFAULT 0,
    claimed_by        TEXT,
    lease_until       INTEGER,
    available_at      INTEGER NOT NULL,
    occurred_at       INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    done_at           INTEGER,
    last_error_code   TEXT,
    last_error        TEXT,
    replay_of         BLOB,
    receipt           TEXT,
    CHECK ((lane IS NULL) = (key_seq IS NULL))
);

-- Only open rows are in the indexes that claims use, so published rows never slow a claim.
CREATE INDEX IF NOT EXISTS "outbox_event_ready" ON "outbox_event" (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_open" ON "outbox_event" (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_blocked" ON "outbox_event" (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_dead" ON "outbox_event" (id) WHERE status = 3;
CREATE INDEX IF NOT EXISTS "outbox_event_done" ON "outbox_event" (done_at) WHERE status IN (1, 4);

-- One row for each key in use: it gives out dense numbers in commit order.
CREATE TABLE IF NOT EXISTS "outbox_key" (
    lane      BLOB    NOT NULL PRIMARY KEY CHECK (length(lane) = 16),
    last_seq  INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_id   BLOB,
    prev_id   BLOB,
    used_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- Changes of rows by people.
CREATE TABLE IF NOT EXISTS "outbox_audit" (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    action   TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    row_id   BLOB    NOT NULL,
    event_id TEXT    NOT NULL,
    topic    TEXT    NOT NULL,
    new_id   BLOB
);
CREATE INDEX IF NOT EXISTS "outbox_audit_row" ON "outbox_audit" (row_id);

-- down
DROP TABLE IF EXISTS "outbox_audit";
DROP TABLE IF EXISTS "outbox_key";
DROP TABLE IF EXISTS "outbox_event";

-- 0002_lean
-- Fewer indexes, because each of them cost every insert and every mark. Stop all processes of the
-- version before first: their claims would have no index any more.
-- The table is copied, because SQLite changes a CHECK only so: a dead row that left its key has a
-- number without a lane.
CREATE TABLE IF NOT EXISTS "outbox_event_lean" (
    id                BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    event_id          TEXT    NOT NULL,
    event_type        TEXT    NOT NULL,
    schema_version    INTEGER NOT NULL DEFAULT 0,
    topic             TEXT    NOT NULL,
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    aggregate_version INTEGER NOT NULL DEFAULT 0,
    tenant_id         TEXT,
    partition_key     TEXT,
    lane              BLOB,
    key_seq           INTEGER,
    payload           BLOB    NOT NULL,
    content_type      TEXT,
    headers           TEXT,
    status            INTEGER NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    attempts          INTEGER NOT NULL DEFAULT 0,
    claim_no          INTEGER NOT NULL DEFAULT 0,
    lost_claims       INTEGER NOT NULL DEFAULT 0,
    claimed_by        TEXT,
    lease_until       INTEGER,
    available_at      INTEGER NOT NULL,
    occurred_at       INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    done_at           INTEGER,
    last_error_code   TEXT,
    last_error        TEXT,
    replay_of         BLOB,
    receipt           TEXT,
    CHECK (lane IS NULL OR key_seq IS NOT NULL)
);
-- If the migration was interrupted before the last step, there is only the copy.
CREATE TABLE IF NOT EXISTS "outbox_event" AS SELECT * FROM "outbox_event_lean" WHERE 0;
INSERT INTO "outbox_event_lean" (
    id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id,
    partition_key, lane, key_seq, payload, content_type, headers, status, attempts, claim_no, lost_claims,
    claimed_by, lease_until, available_at, occurred_at, created_at, done_at, last_error_code, last_error, replay_of,
    receipt)
SELECT id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id,
    partition_key, lane, key_seq, payload, content_type, headers, status, attempts, claim_no, lost_claims,
    claimed_by, lease_until, available_at, occurred_at, created_at, done_at, last_error_code, last_error, replay_of,
    receipt
FROM "outbox_event" WHERE id NOT IN (SELECT id FROM "outbox_event_lean");
DROP TABLE IF EXISTS "outbox_event";
ALTER TABLE "outbox_event_lean" RENAME TO "outbox_event";

-- event_ready: claims without a key, next due, backlog. event_key has the open and the dead rows of
-- each key, in order: the first row of a key decides whether anything of the key can be claimed.
-- Claims of keys, next due, backlog and the collection of keys use it. event_dead: the list and the
-- count of dead rows. The cleanup walks the primary key.
CREATE INDEX IF NOT EXISTS "outbox_event_ready" ON "outbox_event" (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_key" ON "outbox_event" (lane, key_seq) WHERE status IN (0, 2, 3) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_dead" ON "outbox_event" (id) WHERE status = 3;

-- down
-- A dead row that left its key becomes one without a key.
UPDATE "outbox_event" SET key_seq = NULL WHERE lane IS NULL AND key_seq IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_open" ON "outbox_event" (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_blocked" ON "outbox_event" (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_done" ON "outbox_event" (done_at) WHERE status IN (1, 4);
DROP INDEX IF EXISTS "outbox_event_key";

-- 0003_relay
-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do
-- not use it. Processes of the version before need not stop: they do not know the table.
CREATE TABLE IF NOT EXISTS "outbox_relay" (
    node         TEXT    NOT NULL PRIMARY KEY,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    program      TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    all_topics   INTEGER NOT NULL,
    topics       TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    seen_at      INTEGER NOT NULL,
    claimed_at   INTEGER,
    published_at INTEGER
);

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS "outbox_plan" (
    id           TEXT    NOT NULL PRIMARY KEY,
    state        TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    body         TEXT    NOT NULL,
    ids          BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    worker_until INTEGER
);

-- One row for each pause: what is paused ('all' or 'topic:' and the topic), until when (NULL: until
-- it is resumed), by whom and why. Relays read it every two seconds. Claims and producers do not
-- use it.
CREATE TABLE IF NOT EXISTS "outbox_pause" (
    target    TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    ends_at   INTEGER,
    actor     TEXT    NOT NULL,
    reason    TEXT    NOT NULL
);

-- down
DROP TABLE IF EXISTS "outbox_pause";
DROP TABLE IF EXISTS "outbox_plan";
DROP TABLE IF EXISTS "outbox_relay";

-- 0004_groups
-- The group of a failure in the table of events, what people said about groups, and limits of
-- destinations. Processes of the version before need not stop: they do not know the columns. No row
-- is rewritten.
-- SQLite has no ADD COLUMN IF NOT EXISTS: a second time these statements say that there is such a
-- column. error_group is the fingerprint of the last failure. It is NULL in rows that an older
-- process marked, and means nothing in rows without an error: what marks a row done leaves it
-- alone.
ALTER TABLE "outbox_event" ADD COLUMN error_group TEXT;
-- NULL: no limit.
ALTER TABLE "outbox_pause" ADD COLUMN per_second REAL;
ALTER TABLE "outbox_pause" ADD COLUMN in_flight INTEGER;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS "outbox_group" (
    fingerprint TEXT    NOT NULL PRIMARY KEY,
    note        TEXT    NOT NULL,
    muted_until INTEGER,
    actor       TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL
);

-- down
ALTER TABLE "outbox_event" DROP COLUMN error_group;
ALTER TABLE "outbox_pause" DROP COLUMN in_flight;
ALTER TABLE "outbox_pause" DROP COLUMN per_second;
DROP TABLE IF EXISTS "outbox_group";

