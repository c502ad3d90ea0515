-- 0001_init
-- Commands to the world outside: each is done once per tenant, channel and idempotency key, after
-- the transaction that wrote it.
-- status: 0 PENDING, 1 PROCESSING, 2 COMPLETED, 3 FAILED (tried again when available), 4 DEAD. A
-- command is held while lease_until lies ahead. due_channel is NULL for what is not to be run,
-- which keeps it out of the range that claims read.
CREATE TABLE IF NOT EXISTS `my_side_effect_command` (
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
    UNIQUE KEY `my_side_effect_command_key` (tenant_id, channel, idempotency_key),
    KEY `my_side_effect_command_due` (due_channel, available_at, id),
    KEY `my_side_effect_command_done` (status, done_at),
    CONSTRAINT `my_side_effect_command_status` CHECK (status BETWEEN 0 AND 4)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- The programs whose workers execute the effects of a channel. Two programs under one name share its
-- effects, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS `my_side_effect_program` (
    channel VARBINARY(128) NOT NULL,
    program VARBINARY(255) NOT NULL,
    seen_at DATETIME(6)    NOT NULL,
    PRIMARY KEY (channel, program)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- down
DROP TABLE IF EXISTS `my_side_effect_program`;
DROP TABLE IF EXISTS `my_side_effect_command`;

