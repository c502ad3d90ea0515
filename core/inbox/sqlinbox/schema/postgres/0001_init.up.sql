-- The handlers of consumers, and the number that stands for each in inbox_seen: the first 15
-- hexadecimal digits of the SHA-256 of the two names with the byte 1F between them.
CREATE TABLE IF NOT EXISTS {{handler}} (
    handler_id bigint NOT NULL,
    consumer   text   COLLATE "C" NOT NULL,
    handler    text   COLLATE "C" NOT NULL,
    PRIMARY KEY (handler_id)
);

-- The events that handlers have seen. processed_at is NULL for an event that is not processed yet,
-- and inbox_failure says why. source is where the message was read: topic/partition/offset, or the
-- topic alone.
CREATE TABLE IF NOT EXISTS {{seen}} (
    handler_id   bigint      NOT NULL,
    processed_at timestamptz,
    attempts     integer     NOT NULL,
    tenant_id    text        COLLATE "C" NOT NULL,
    event_id     text        COLLATE "C" NOT NULL,
    source       text,
    PRIMARY KEY (handler_id, tenant_id, event_id)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS {{name:inbox_seen_processed}} ON {{seen}} (handler_id, processed_at);

-- The events that handlers have failed with.
-- status: 0 RECEIVED (redriven), 1 PROCESSING, 3 FAILED, 4 DEAD. Failures are written after the
-- rollback, in a transaction of their own. A DEAD event waits for a person. The row of an event
-- that is processed after all is deleted.
CREATE TABLE IF NOT EXISTS {{failure}} (
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
    failed_at         timestamptz,
    PRIMARY KEY (consumer, handler, tenant_id, event_id),
    CONSTRAINT {{name:inbox_failure_status}} CHECK (status IN (0, 1, 3, 4))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS {{name:inbox_failure_open}} ON {{failure}} (consumer, status, received_at);

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

-- The programs that serve a handler, and the topic that each reads. Two programs under one name share
-- the events of the handler, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    handler_id bigint      NOT NULL,
    program    text        COLLATE "C" NOT NULL,
    topic      text        COLLATE "C",
    seen_at    timestamptz NOT NULL,
    PRIMARY KEY (handler_id, program)
);
