-- The handlers of consumers, and the number that stands for each in inbox_seen: the two names with
-- the byte 1F between them, which is a text, because SQLite computes no hash.
CREATE TABLE IF NOT EXISTS {{handler}} (
    handler_id TEXT NOT NULL,
    consumer   TEXT NOT NULL,
    handler    TEXT NOT NULL,
    PRIMARY KEY (handler_id)
);

-- The events that handlers have seen. processed_at is NULL for an event that is not processed yet,
-- and inbox_failure says why. source is where the message was read: topic/partition/offset, or the
-- topic alone.
CREATE TABLE IF NOT EXISTS {{seen}} (
    handler_id   TEXT    NOT NULL,
    tenant_id    TEXT    NOT NULL,
    event_id     TEXT    NOT NULL,
    source       TEXT,
    attempts     INTEGER NOT NULL,
    processed_at INTEGER,
    PRIMARY KEY (handler_id, tenant_id, event_id)
);
CREATE INDEX IF NOT EXISTS {{name:inbox_seen_processed}} ON {{seen}} (handler_id, processed_at);

-- The events that handlers have failed with.
-- status: 0 RECEIVED (redriven), 1 PROCESSING, 3 FAILED, 4 DEAD. Failures are written after the
-- rollback, in a transaction of their own. A DEAD event waits for a person. The row of an event
-- that is processed after all is deleted.
CREATE TABLE IF NOT EXISTS {{failure}} (
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
    status            INTEGER NOT NULL CHECK (status IN (0, 1, 3, 4)),
    attempts          INTEGER NOT NULL DEFAULT 0,
    last_error_code   TEXT,
    last_error        TEXT,
    received_at       INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    failed_at         INTEGER,
    PRIMARY KEY (consumer, handler, tenant_id, event_id)
);
CREATE INDEX IF NOT EXISTS {{name:inbox_failure_open}} ON {{failure}} (consumer, status, received_at);

-- The newest event of each key that a handler has processed.
CREATE TABLE IF NOT EXISTS {{inbox_key}} (
    consumer      TEXT    NOT NULL,
    handler       TEXT    NOT NULL,
    tenant_id     TEXT    NOT NULL,
    topic         TEXT    NOT NULL,
    partition_key TEXT    NOT NULL,
    last_seq      INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (consumer, handler, tenant_id, topic, partition_key)
) WITHOUT ROWID;

-- The programs that serve a handler, and the topic that each reads. Two programs under one name share
-- the events of the handler, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    handler_id TEXT    NOT NULL,
    program    TEXT    NOT NULL,
    topic      TEXT,
    seen_at    INTEGER NOT NULL,
    PRIMARY KEY (handler_id, program)
) WITHOUT ROWID;
