-- The result of each event for each handler of each consumer.
-- status: 0 RECEIVED, 1 PROCESSING, 2 PROCESSED, 3 FAILED, 4 DEAD. A handler that works in the
-- transaction of its row inserts it as PROCESSED; failures are written after the rollback, in a
-- transaction of their own. A DEAD event waits for a person.
CREATE TABLE IF NOT EXISTS {{inbox}} (
    consumer          VARBINARY(128) NOT NULL,
    handler           VARBINARY(128) NOT NULL,
    tenant_id         VARBINARY(64)  NOT NULL,
    event_id          VARBINARY(255) NOT NULL,
    event_type        VARCHAR(128),
    event_version     INT            NOT NULL DEFAULT 0,
    aggregate_type    VARCHAR(64),
    aggregate_id      VARCHAR(128),
    partition_key     VARCHAR(255),
    key_seq           BIGINT,
    source_topic      VARCHAR(249),
    source_partition  INT,
    source_offset     BIGINT,
    status            TINYINT        NOT NULL,
    attempts          INT            NOT NULL DEFAULT 0,
    seen              BIGINT         NOT NULL DEFAULT 0,
    last_error_code   VARCHAR(64),
    last_error        TEXT,
    received_at       DATETIME(6)    NOT NULL,
    updated_at        DATETIME(6)    NOT NULL,
    processed_at      DATETIME(6),
    failed_at         DATETIME(6),
    PRIMARY KEY (consumer, handler, tenant_id, event_id),
    KEY {{name:inbox_event_status_at}} (consumer, status, updated_at),
    CONSTRAINT {{name:inbox_event_status}} CHECK (status BETWEEN 0 AND 4)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- The newest event of each key that a handler has processed.
CREATE TABLE IF NOT EXISTS {{inbox_key}} (
    consumer      VARBINARY(128) NOT NULL,
    handler       VARBINARY(128) NOT NULL,
    tenant_id     VARBINARY(64)  NOT NULL,
    topic         VARBINARY(249) NOT NULL,
    partition_key VARBINARY(255) NOT NULL,
    last_seq      BIGINT         NOT NULL,
    updated_at    DATETIME(6)    NOT NULL,
    PRIMARY KEY (consumer, handler, tenant_id, topic, partition_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
