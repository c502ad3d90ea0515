-- 0001_init
-- The outbox: one row is one event for one destination. For MariaDB 10.6 or newer and MySQL 8.0.16
-- or newer.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. All times are UTC. There are no partial indexes: generated columns that are NULL for most
-- rows keep them out of the ranges that claims read. ready_topic is binary because comparisons of
-- texts ignore blanks at the end.
CREATE TABLE IF NOT EXISTS `outbox_event` (
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
    KEY `outbox_event_ready` (ready_topic, available_at, id),
    KEY `outbox_event_open` (open_lane, dead, key_seq),
    KEY `outbox_event_ended` (ended, done_at, id),
    CONSTRAINT `outbox_event_status` CHECK (status BETWEEN 0 AND 4),
    CONSTRAINT `outbox_event_lane` CHECK ((lane IS NULL) = (key_seq IS NULL))
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;

-- One row for each key in use: it gives out dense numbers in commit order.
CREATE TABLE IF NOT EXISTS `outbox_key` (
    lane      BINARY(16)  NOT NULL,
    last_seq  BIGINT      NOT NULL,
    first_seq BIGINT      NOT NULL,
    last_id   BINARY(16),
    prev_id   BINARY(16),
    used_at   DATETIME(6) NOT NULL,
    PRIMARY KEY (lane)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Changes of rows by people.
CREATE TABLE IF NOT EXISTS `outbox_audit` (
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
    KEY `outbox_audit_row` (row_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- down
DROP TABLE IF EXISTS `outbox_audit`;
DROP TABLE IF EXISTS `outbox_key`;
DROP TABLE IF EXISTS `outbox_event`;

-- 0002_lean
-- Two indexes in place of three, and no CHECKs, because each of them cost every insert and every
-- mark. Stop all processes of the version before first: their claims would fail.
--
-- MySQL has no IF EXISTS for columns, keys and constraints. So each change asks information_schema
-- first, and can be repeated wherever it was interrupted. The statements belong together: run them
-- on one connection, as migration tools do. MySQL before 8.0.19 drops a CHECK only by that name,
-- and MariaDB only as a CONSTRAINT.
SET @outbox_check = IF(VERSION() LIKE '%MariaDB%', 'CONSTRAINT', 'CHECK');
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND constraint_name = 'outbox_event_status'),
    CONCAT('ALTER TABLE `outbox_event` DROP ', @outbox_check, ' `outbox_event_status`'), 'DO 0');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND constraint_name = 'outbox_event_lane'),
    CONCAT('ALTER TABLE `outbox_event` DROP ', @outbox_check, ' `outbox_event_lane`'), 'DO 0');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;

-- One statement, so that the table is built again once, and either all of it happens or nothing.
-- event_work has open rows of keys under open_lane and key_seq, in order, dead ones among them: the
-- first row of a key decides whether anything of the key can be claimed. Open rows without a key
-- are at its beginning, by topic and due time. Claims, next due, backlog and the collection of keys
-- use it. event_dead is for the list and the count of dead rows. The cleanup walks the primary key.
-- ready_topic and open_lane stay generated: plain columns that the statements maintain made
-- inserts, claims and marks no faster, and a producer in another language, or a repair by hand,
-- that forgets them would leave events that nobody ever claims.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND column_name = 'ended'), 'ALTER TABLE `outbox_event`
    DROP KEY `outbox_event_ready`,
    DROP KEY `outbox_event_open`,
    DROP KEY `outbox_event_ended`,
    DROP COLUMN ended,
    ADD KEY `outbox_event_work` (open_lane, key_seq, ready_topic, available_at),
    ADD KEY `outbox_event_dead` (dead, id)', 'DO 0');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
DEALLOCATE PREPARE outbox_lean;

-- down
-- A dead row that left its key becomes one without a key.
UPDATE `outbox_event` SET key_seq = NULL WHERE lane IS NULL AND key_seq IS NOT NULL;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND column_name = 'ended'), 'DO 0', 'ALTER TABLE `outbox_event`
    DROP KEY `outbox_event_work`,
    DROP KEY `outbox_event_dead`,
    ADD COLUMN ended TINYINT GENERATED ALWAYS AS (CASE WHEN status IN (1, 4) THEN 1 WHEN status = 3 THEN 3 END) STORED,
    ADD KEY `outbox_event_ready` (ready_topic, available_at, id),
    ADD KEY `outbox_event_open` (open_lane, dead, key_seq),
    ADD KEY `outbox_event_ended` (ended, done_at, id)');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND constraint_name = 'outbox_event_status'), 'DO 0',
    'ALTER TABLE `outbox_event` ADD CONSTRAINT `outbox_event_status` CHECK (status BETWEEN 0 AND 4)');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND constraint_name = 'outbox_event_lane'), 'DO 0',
    'ALTER TABLE `outbox_event` ADD CONSTRAINT `outbox_event_lane` CHECK ((lane IS NULL) = (key_seq IS NULL))');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
DEALLOCATE PREPARE outbox_lean;

-- 0003_relay
-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do
-- not use it. Processes of the version before need not stop: they do not know the table.
CREATE TABLE IF NOT EXISTS `outbox_relay` (
    node         VARCHAR(255) NOT NULL,
    host         VARCHAR(255) NOT NULL,
    pid          BIGINT       NOT NULL,
    program      VARCHAR(255) NOT NULL,
    version      VARCHAR(255) NOT NULL,
    all_topics   SMALLINT     NOT NULL,
    topics       LONGTEXT     NOT NULL,
    started_at   DATETIME(6)  NOT NULL,
    seen_at      DATETIME(6)  NOT NULL,
    claimed_at   DATETIME(6),
    published_at DATETIME(6),
    PRIMARY KEY (node)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS `outbox_plan` (
    id           VARCHAR(32) NOT NULL,
    state        VARCHAR(32) NOT NULL,
    version      BIGINT      NOT NULL,
    body         LONGTEXT    NOT NULL,
    ids          LONGBLOB    NOT NULL,
    created_at   DATETIME(6) NOT NULL,
    updated_at   DATETIME(6) NOT NULL,
    worker_until DATETIME(6),
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row for each pause: what is paused ('all' or 'topic:' and the topic), until when (NULL: until
-- it is resumed), by whom and why. Relays read it every two seconds. Claims and producers do not
-- use it.
CREATE TABLE IF NOT EXISTS `outbox_pause` (
    target    VARCHAR(255) NOT NULL,
    paused_at DATETIME(6)  NOT NULL,
    ends_at   DATETIME(6),
    actor     VARCHAR(255) NOT NULL,
    reason    TEXT         NOT NULL,
    PRIMARY KEY (target)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- down
DROP TABLE IF EXISTS `outbox_pause`;
DROP TABLE IF EXISTS `outbox_plan`;
DROP TABLE IF EXISTS `outbox_relay`;

-- 0004_groups
-- The group of a failure in the table of events, what people said about groups, and limits of
-- destinations. Processes of the version before need not stop: they do not know the columns. The
-- new columns are the last ones, so that the servers change only the catalog (ALGORITHM = INSTANT)
-- where they can.
-- The statements belong together, as those of migration 2 do: run them on one connection.
-- error_group is the fingerprint of the last failure. It is NULL in rows that an older process
-- marked, and means nothing in rows without an error: what marks a row done leaves it alone.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND column_name = 'error_group'), 'DO 0', 'ALTER TABLE `outbox_event`
    ADD COLUMN error_group VARCHAR(16)');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
-- NULL: no limit.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_pause' AND column_name = 'in_flight'), 'DO 0', 'ALTER TABLE `outbox_pause`
    ADD COLUMN per_second DOUBLE,
    ADD COLUMN in_flight INT');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
DEALLOCATE PREPARE outbox_groups;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS `outbox_group` (
    fingerprint VARCHAR(16)  NOT NULL,
    note        TEXT         NOT NULL,
    muted_until DATETIME(6),
    actor       VARCHAR(255) NOT NULL,
    updated_at  DATETIME(6)  NOT NULL,
    PRIMARY KEY (fingerprint)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- down
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND column_name = 'error_group'),
    'ALTER TABLE `outbox_event` DROP COLUMN error_group', 'DO 0');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_pause' AND column_name = 'in_flight'),
    'ALTER TABLE `outbox_pause` DROP COLUMN in_flight, DROP COLUMN per_second', 'DO 0');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
DEALLOCATE PREPARE outbox_groups;
DROP TABLE IF EXISTS `outbox_group`;

