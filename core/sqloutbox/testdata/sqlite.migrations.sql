-- 0001_init
-- The outbox: one row is one event for one destination.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. error_group is the fingerprint of the last failure, and means nothing in rows without an
-- error: what marks a row done leaves it alone. failures has a line for each of the last
-- refusals that counted. causation_id is a copy of the header, which is made
-- by the database, so that no producer can forget it. All times are microseconds since 1970 UTC.
-- A column of SQLite takes values of every type. In those with a CHECK of their type, another one
-- would stop the claims of other rows too, or keep its row for ever.
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
    causation_id      TEXT GENERATED ALWAYS AS (CASE WHEN json_valid(headers) THEN NULLIF(substr(json_extract(headers, '$.causation_id'), 1, 255), '') END) VIRTUAL,
    error_group       TEXT,
    failures          TEXT,
    CHECK (lane IS NULL OR key_seq IS NOT NULL AND typeof(lane) = 'blob' AND length(lane) = 16),
    CHECK (typeof(topic) = 'text'),
    CHECK (typeof(status) = 'integer' AND typeof(claim_no) = 'integer' AND typeof(available_at) = 'integer'),
    CHECK (typeof(key_seq) IN ('integer', 'null') AND typeof(done_at) IN ('integer', 'null'))
);

-- There are few indexes, because each of them costs every insert and every mark. Only open and dead
-- rows are in them, so published rows never slow a claim.
-- event_ready: claims without a key, next due, backlog. event_key has the open and the dead rows of
-- each key, in order: the first row of a key decides whether anything of the key can be claimed.
-- Claims of keys, next due, backlog and the collection of keys use it. event_dead: the list and the
-- count of dead rows. event_cause: what an event has caused, in any status; it has no row without a
-- cause. The cleanup walks the primary key.
CREATE INDEX IF NOT EXISTS "outbox_event_ready" ON "outbox_event" (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_key" ON "outbox_event" (lane, key_seq) WHERE status IN (0, 2, 3) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS "outbox_event_dead" ON "outbox_event" (id) WHERE status = 3;
CREATE INDEX IF NOT EXISTS "outbox_event_cause" ON "outbox_event" (causation_id) WHERE causation_id IS NOT NULL;

-- One row for each key in use: it gives out dense numbers in commit order.
CREATE TABLE IF NOT EXISTS "outbox_key" (
    lane      BLOB    NOT NULL PRIMARY KEY CHECK (length(lane) = 16),
    last_seq  INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_id   BLOB,
    prev_id   BLOB,
    used_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- Changes of rows by people. detail is what an edit changed.
CREATE TABLE IF NOT EXISTS "outbox_audit" (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    action   TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    row_id   BLOB    NOT NULL,
    event_id TEXT    NOT NULL,
    topic    TEXT    NOT NULL,
    new_id   BLOB,
    detail   TEXT
);
CREATE INDEX IF NOT EXISTS "outbox_audit_row" ON "outbox_audit" (row_id);

-- One row for each relay that runs: who it is, when it was last seen, and what only its memory
-- knows, as JSON. Claims and producers do not use it.
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
    published_at INTEGER,
    state        TEXT
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
-- it is resumed), by whom and why. A row with per_second or in_flight limits its destination instead
-- (NULL: no limit). Relays read the table every two seconds. Claims and producers do not use it.
CREATE TABLE IF NOT EXISTS "outbox_pause" (
    target     TEXT    NOT NULL PRIMARY KEY,
    paused_at  INTEGER NOT NULL,
    ends_at    INTEGER,
    actor      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    per_second REAL,
    in_flight  INTEGER
);

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS "outbox_group" (
    fingerprint TEXT    NOT NULL PRIMARY KEY,
    note        TEXT    NOT NULL,
    muted_until INTEGER,
    actor       TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL
);

-- What relays did, in slots of five minutes, for seven days: part is the number of the slot, a colon
-- and the topic. The row with an empty topic has the topics that have no row of their own, and what
-- waited in all (NULL: nobody has counted). Relays add to it once a minute. Marks do not use it.
CREATE TABLE IF NOT EXISTS "outbox_history" (
    part         TEXT    NOT NULL PRIMARY KEY,
    slot         INTEGER NOT NULL,
    topic        TEXT    NOT NULL,
    published    INTEGER NOT NULL,
    refused      INTEGER NOT NULL,
    died         INTEGER NOT NULL,
    waiting      INTEGER,
    dead         INTEGER,
    blocked_keys INTEGER,
    oldest       INTEGER,
    more         INTEGER
);

-- down
DROP TABLE IF EXISTS "outbox_history";
DROP TABLE IF EXISTS "outbox_group";
DROP TABLE IF EXISTS "outbox_pause";
DROP TABLE IF EXISTS "outbox_plan";
DROP TABLE IF EXISTS "outbox_relay";
DROP TABLE IF EXISTS "outbox_audit";
DROP TABLE IF EXISTS "outbox_key";
DROP TABLE IF EXISTS "outbox_event";

