-- A narrow row for each event that a handler has seen, and the failures in a table of their own, in
-- place of inbox_event.

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

-- There is no inbox_event when this file is run again.
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

-- Processes of an older version write no more rows that would be lost.
ALTER TABLE {{inbox}} DROP CONSTRAINT IF EXISTS {{name:inbox_event_moved}}, ADD CONSTRAINT {{name:inbox_event_moved}} CHECK (false) NOT VALID;
INSERT INTO {{handler}} (handler_id, consumer, handler)
SELECT DISTINCT ('x' || lpad(left(encode(sha256(convert_to(consumer || chr(31) || handler, 'UTF8')), 'hex'), 15), 16, '0'))::bit(64)::bigint,
       consumer, handler
  FROM {{inbox}} ON CONFLICT DO NOTHING;
INSERT INTO {{seen}} (handler_id, tenant_id, event_id, source, attempts, processed_at)
SELECT h.handler_id, e.tenant_id, e.event_id, e.source_topic || COALESCE('/' || e.source_partition || '/' || e.source_offset, ''), e.attempts,
       CASE WHEN e.status = 2 THEN COALESCE(e.processed_at, e.updated_at) END
  FROM {{inbox}} e JOIN {{handler}} h ON h.consumer = e.consumer AND h.handler = e.handler ON CONFLICT DO NOTHING;
INSERT INTO {{failure}} (consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id,
       partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, last_error_code, last_error,
       received_at, updated_at, failed_at)
SELECT consumer, handler, tenant_id, event_id, event_type, event_version, aggregate_type, aggregate_id,
       partition_key, key_seq, source_topic, source_partition, source_offset, status, attempts, last_error_code, last_error,
       received_at, updated_at, failed_at
  FROM {{inbox}} WHERE status <> 2 ON CONFLICT DO NOTHING;
DROP TABLE IF EXISTS {{inbox}};
