-- Work that is done once per key. For MariaDB 10.6 or newer and MySQL 8.0.16 or newer. All times are UTC.
-- status: 0 FREE (its work failed), 1 HELD, 2 DONE. A key is held while lease_until lies ahead, and forgotten after expires_at.
-- Keys are binary because comparisons of texts ignore blanks at the end. A duplicate counts up seen, so that the number of affected rows tells it
-- from an insert, whatever the driver counts.
CREATE TABLE IF NOT EXISTS {{key}} (
    scope       VARBINARY(255) NOT NULL,
    tenant      VARBINARY(64)  NOT NULL,
    id          VARBINARY(255) NOT NULL,
    fingerprint VARBINARY(32),
    status      TINYINT        NOT NULL,
    owner       VARBINARY(255) NOT NULL,
    fence       BIGINT         NOT NULL,
    attempts    INT            NOT NULL,
    seen        BIGINT         NOT NULL DEFAULT 0,
    lease_until DATETIME(6),
    result      LONGBLOB,
    result_type VARCHAR(127),
    result_meta TEXT,
    created_at  DATETIME(6)    NOT NULL,
    updated_at  DATETIME(6)    NOT NULL,
    done_at     DATETIME(6),
    expires_at  DATETIME(6)    NOT NULL,
    PRIMARY KEY (scope, tenant, id),
    KEY {{name:idempotency_key_expires}} (expires_at),
    CONSTRAINT {{name:idempotency_key_status}} CHECK (status BETWEEN 0 AND 2),
    CONSTRAINT {{name:idempotency_key_lease}} CHECK ((status = 1) = (lease_until IS NOT NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- What each handler of each consumer did with an event.
-- status: 0 RECEIVED, 1 PROCESSING, 2 PROCESSED, 3 FAILED, 4 PARKED. A handler that works in the transaction of its row inserts it as PROCESSED;
-- failures are written after the rollback, in a transaction of their own. What is PARKED waits for a person.
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

-- Commands to the world outside: each is done once per tenant, channel and idempotency key, after the transaction that wrote it.
-- status: 0 PENDING, 1 PROCESSING, 2 COMPLETED, 3 FAILED (tried again when available), 4 PARKED. A command is held while lease_until lies ahead.
-- due_channel is NULL for what is not to be run, which keeps it out of the range that claims read.
CREATE TABLE IF NOT EXISTS {{command}} (
    id              VARCHAR(36)    CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    tenant_id       VARBINARY(64)  NOT NULL,
    channel         VARBINARY(128) NOT NULL,
    idempotency_key VARBINARY(255) NOT NULL,
    fingerprint     VARBINARY(32),
    payload         LONGBLOB       NOT NULL,
    content_type    VARCHAR(127),
    headers         JSON,
    event_id        VARCHAR(255),
    correlation_id  VARCHAR(255),
    business_key    VARCHAR(255),
    external_ref    VARCHAR(1024),
    status          TINYINT        NOT NULL DEFAULT 0,
    attempts        INT            NOT NULL DEFAULT 0,
    lost_leases     INT            NOT NULL DEFAULT 0,
    fence           BIGINT         NOT NULL DEFAULT 0,
    seen            BIGINT         NOT NULL DEFAULT 0,
    owner           VARBINARY(255),
    lease_until     DATETIME(6),
    available_at    DATETIME(6)    NOT NULL,
    last_error_code VARCHAR(64),
    last_error      TEXT,
    created_at      DATETIME(6)    NOT NULL,
    updated_at      DATETIME(6)    NOT NULL,
    done_at         DATETIME(6),
    due_channel     VARBINARY(128) GENERATED ALWAYS AS (CASE WHEN status IN (0, 1, 3) THEN channel END) STORED,
    PRIMARY KEY (id),
    UNIQUE KEY {{name:side_effect_command_key}} (tenant_id, channel, idempotency_key),
    KEY {{name:side_effect_command_due}} (due_channel, available_at, id),
    KEY {{name:side_effect_command_done}} (status, done_at),
    CONSTRAINT {{name:side_effect_command_status}} CHECK (status BETWEEN 0 AND 4)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
