-- The result of each event for each handler of each consumer.
-- status: 0 RECEIVED, 1 PROCESSING, 2 PROCESSED, 3 FAILED, 4 DEAD. A handler that works in the
-- transaction of its row inserts it as PROCESSED; failures are written after the rollback, in a
-- transaction of their own. A DEAD event waits for a person.
CREATE TABLE IF NOT EXISTS {{inbox}} (
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
CREATE INDEX IF NOT EXISTS {{name:inbox_event_done}} ON {{inbox}} (consumer, processed_at) WHERE status = 2;
CREATE INDEX IF NOT EXISTS {{name:inbox_event_open}} ON {{inbox}} (consumer, status, received_at) WHERE status <> 2;

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
