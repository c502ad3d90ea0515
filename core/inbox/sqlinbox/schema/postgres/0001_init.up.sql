-- The result of each event for each handler of each consumer.
-- status: 0 RECEIVED, 1 PROCESSING, 2 PROCESSED, 3 FAILED, 4 DEAD. A handler that works in the
-- transaction of its row inserts it as PROCESSED; failures are written after the rollback, in a
-- transaction of their own. A DEAD event waits for a person.
CREATE TABLE IF NOT EXISTS {{inbox}} (
    consumer          text        COLLATE "C" NOT NULL,
    handler           text        COLLATE "C" NOT NULL,
    tenant_id         text        COLLATE "C" NOT NULL,
    event_id          text        COLLATE "C" NOT NULL,
    event_type        text        COLLATE "C",
    event_version     integer     NOT NULL DEFAULT 0,
    aggregate_type    text        COLLATE "C",
    aggregate_id      text        COLLATE "C",
    partition_key     text        COLLATE "C",
    key_seq           bigint,
    source_topic      text        COLLATE "C",
    source_partition  integer,
    source_offset     bigint,
    status            smallint    NOT NULL,
    attempts          integer     NOT NULL DEFAULT 0,
    last_error_code   text,
    last_error        text,
    received_at       timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    processed_at      timestamptz,
    failed_at         timestamptz,
    PRIMARY KEY (consumer, handler, tenant_id, event_id),
    CONSTRAINT {{name:inbox_event_status}} CHECK (status BETWEEN 0 AND 4)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS {{name:inbox_event_done}} ON {{inbox}} (consumer, processed_at) WHERE status = 2;
CREATE INDEX IF NOT EXISTS {{name:inbox_event_open}} ON {{inbox}} (consumer, status, received_at) WHERE status <> 2;

-- The newest event of each key that a handler has processed. Only the primary key is indexed, so
-- that updates stay on the page.
CREATE TABLE IF NOT EXISTS {{inbox_key}} (
    consumer      text        COLLATE "C" NOT NULL,
    handler       text        COLLATE "C" NOT NULL,
    tenant_id     text        COLLATE "C" NOT NULL,
    topic         text        COLLATE "C" NOT NULL,
    partition_key text        COLLATE "C" NOT NULL,
    last_seq      bigint      NOT NULL,
    updated_at    timestamptz NOT NULL,
    PRIMARY KEY (consumer, handler, tenant_id, topic, partition_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
