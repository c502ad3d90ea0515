-- The outbox: one row is one event for one destination. For MariaDB 10.6 or newer and MySQL 8.0.16
-- or newer.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. All times are UTC. There are no partial indexes: generated columns that are NULL for most
-- rows keep them out of the ranges that claims read. ready_topic is binary because comparisons of
-- texts ignore blanks at the end.
CREATE TABLE IF NOT EXISTS {{event}} (
    id                BINARY(16)    NOT NULL,
    event_id          VARCHAR(36)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    event_type        VARCHAR(128)  NOT NULL,
    schema_version    INT           NOT NULL DEFAULT 0,
    topic             VARCHAR(249)  NOT NULL,
    aggregate_type    VARCHAR(64),
    aggregate_id      VARCHAR(128),
    aggregate_version BIGINT        NOT NULL DEFAULT 0,
    tenant_id         VARCHAR(64),
    partition_key     VARCHAR(255),
    lane              BINARY(16),
    key_seq           BIGINT,
    payload           LONGBLOB      NOT NULL,
    content_type      VARCHAR(127),
    headers           JSON,
    status            TINYINT       NOT NULL DEFAULT 0,
    attempts          INT           NOT NULL DEFAULT 0,
    claim_no          BIGINT        NOT NULL DEFAULT 0,
    lost_claims       INT           NOT NULL DEFAULT 0,
    claimed_by        VARCHAR(255),
    lease_until       DATETIME(6),
    available_at      DATETIME(6)   NOT NULL,
    occurred_at       DATETIME(6)   NOT NULL,
    created_at        DATETIME(6)   NOT NULL,
    done_at           DATETIME(6),
    last_error_code   VARCHAR(64),
    last_error        TEXT,
    replay_of         BINARY(16),
    receipt           TEXT,
    ready_topic       VARBINARY(996) GENERATED ALWAYS AS (CASE WHEN status IN (0, 2) AND lane IS NULL THEN topic END) STORED,
    open_lane         BINARY(16)    GENERATED ALWAYS AS (CASE WHEN status IN (0, 2, 3) THEN lane END) STORED,
    dead              TINYINT       GENERATED ALWAYS AS (CASE WHEN status = 3 THEN 1 ELSE 0 END) STORED,
    ended             TINYINT       GENERATED ALWAYS AS (CASE WHEN status IN (1, 4) THEN 1 WHEN status = 3 THEN 3 END) STORED,
    PRIMARY KEY (id),
    KEY {{name:event_ready}} (ready_topic, available_at, id),
    KEY {{name:event_open}} (open_lane, dead, key_seq),
    KEY {{name:event_ended}} (ended, done_at, id),
    CONSTRAINT {{name:event_status}} CHECK (status BETWEEN 0 AND 4),
    CONSTRAINT {{name:event_lane}} CHECK ((lane IS NULL) = (key_seq IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- One row for each key in use: it gives out dense numbers in commit order.
CREATE TABLE IF NOT EXISTS {{key}} (
    lane      BINARY(16)  NOT NULL,
    last_seq  BIGINT      NOT NULL,
    first_seq BIGINT      NOT NULL,
    last_id   BINARY(16),
    prev_id   BINARY(16),
    used_at   DATETIME(6) NOT NULL,
    PRIMARY KEY (lane)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Changes of rows by people.
CREATE TABLE IF NOT EXISTS {{audit}} (
    id       BIGINT        NOT NULL AUTO_INCREMENT,
    at       DATETIME(6)   NOT NULL,
    action   VARCHAR(32)   NOT NULL,
    actor    VARCHAR(255)  NOT NULL,
    reason   TEXT          NOT NULL,
    row_id   BINARY(16)    NOT NULL,
    event_id VARCHAR(36)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic    VARCHAR(249)  NOT NULL,
    new_id   BINARY(16),
    PRIMARY KEY (id),
    KEY {{name:audit_row}} (row_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
