DROP TABLE IF EXISTS {{seen}};
DROP TABLE IF EXISTS {{failure}};
DROP TABLE IF EXISTS {{handler}};
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
