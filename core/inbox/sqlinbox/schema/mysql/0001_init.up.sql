-- The handlers of consumers, and the number that stands for each in inbox_seen: the first 15
-- hexadecimal digits of the SHA-256 of the two names with the byte 1F between them.
CREATE TABLE IF NOT EXISTS {{handler}} (
    handler_id BIGINT         NOT NULL,
    consumer   VARBINARY(128) NOT NULL,
    handler    VARBINARY(128) NOT NULL,
    PRIMARY KEY (handler_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- The events that handlers have seen. processed_at is NULL for an event that is not processed yet,
-- and inbox_failure says why. source is where the message was read: topic/partition/offset, or the
-- topic alone.
-- copies counts the further inserts of the row.
CREATE TABLE IF NOT EXISTS {{seen}} (
    handler_id   BIGINT         NOT NULL,
    tenant_id    VARBINARY(64)  NOT NULL,
    event_id     VARBINARY(255) NOT NULL,
    source       VARCHAR(300),
    attempts     INT            NOT NULL,
    copies       BIGINT         NOT NULL DEFAULT 0,
    processed_at DATETIME(6),
    PRIMARY KEY (handler_id, tenant_id, event_id),
    KEY {{name:inbox_seen_processed}} (handler_id, processed_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- The events that handlers have failed with.
-- status: 0 RECEIVED (redriven), 1 PROCESSING, 3 FAILED, 4 DEAD. Failures are written after the
-- rollback, in a transaction of their own. A DEAD event waits for a person. The row of an event
-- that is processed after all is deleted.
CREATE TABLE IF NOT EXISTS {{failure}} (
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
    last_error_code   VARCHAR(64),
    last_error        TEXT,
    received_at       DATETIME(6)    NOT NULL,
    updated_at        DATETIME(6)    NOT NULL,
    failed_at         DATETIME(6),
    PRIMARY KEY (consumer, handler, tenant_id, event_id),
    KEY {{name:inbox_failure_open}} (consumer, status, received_at),
    CONSTRAINT {{name:inbox_failure_status}} CHECK (status IN (0, 1, 3, 4))
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

-- The programs that serve a handler, and the topic that each reads. Two programs under one name share
-- the events of the handler, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    handler_id BIGINT         NOT NULL,
    program    VARBINARY(255) NOT NULL,
    topic      VARCHAR(249),
    seen_at    DATETIME(6)    NOT NULL,
    PRIMARY KEY (handler_id, program)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
