-- The outbox: one row is one event for one destination. For MariaDB 10.6 or newer and MySQL 8.0.16
-- or newer.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. error_group is the fingerprint of the last failure, and means nothing in rows without an
-- error: what marks a row done leaves it alone. failures has a line for each of the last
-- refusals that counted. All times are UTC.
--
-- There are few indexes and no CHECKs, because each of them costs every insert and every mark.
-- There are no partial indexes: generated columns that are NULL for most rows keep them out of the
-- ranges that claims read. ready_topic is binary because comparisons of texts ignore blanks at the
-- end. event_work has open rows of keys under open_lane and key_seq, in order, dead ones among them:
-- the first row of a key decides whether anything of the key can be claimed. Open rows without a key
-- are at its beginning, by topic and due time. Claims, next due, backlog and the collection of keys
-- use it. event_dead is for the list and the count of dead rows. The cleanup walks the primary key.
-- Plain columns that the statements maintain, in place of generated ones, made inserts, claims and
-- marks no faster, and a producer in another language, or a repair by hand, that forgets them would
-- leave events that nobody ever claims.
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
    causation_id      VARCHAR(255)  GENERATED ALWAYS AS (NULLIF(LEFT(JSON_UNQUOTE(JSON_EXTRACT(headers, '$.causation_id')), 255), '')) STORED,
    error_group       VARCHAR(16),
    failures          TEXT,
    ready_topic       VARBINARY(996) GENERATED ALWAYS AS (CASE WHEN status IN (0, 2) AND lane IS NULL THEN topic END) STORED,
    open_lane         BINARY(16)    GENERATED ALWAYS AS (CASE WHEN status IN (0, 2, 3) THEN lane END) STORED,
    dead              TINYINT       GENERATED ALWAYS AS (CASE WHEN status = 3 THEN 1 ELSE 0 END) STORED,
    PRIMARY KEY (id),
    KEY {{name:event_work}} (open_lane, key_seq, ready_topic, available_at),
    KEY {{name:event_dead}} (dead, id),
    KEY {{name:event_cause}} (causation_id)
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

-- Changes of rows by people. detail is what an edit changed.
CREATE TABLE IF NOT EXISTS {{audit}} (
    id       BIGINT        NOT NULL AUTO_INCREMENT,
    at       DATETIME(6)   NOT NULL,
    action   VARCHAR(32)   NOT NULL,
    actor    VARCHAR(255)  NOT NULL,
    reason   TEXT          NOT NULL,
    row_id   BINARY(16)    NOT NULL,
    event_id VARCHAR(255)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    topic    VARCHAR(249)  NOT NULL,
    new_id   BINARY(16),
    detail   TEXT,
    PRIMARY KEY (id),
    KEY {{name:audit_row}} (row_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row for each relay that runs: who it is, when it was last seen, and what only its memory
-- knows, as JSON. Claims and producers do not use it.
CREATE TABLE IF NOT EXISTS {{relay}} (
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
    state        LONGTEXT,
    PRIMARY KEY (node)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS {{plan}} (
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
-- it is resumed), by whom and why. A row with per_second or in_flight limits its destination instead
-- (NULL: no limit). Relays read the table every two seconds. Claims and producers do not use it.
CREATE TABLE IF NOT EXISTS {{pause}} (
    target     VARCHAR(255) NOT NULL,
    paused_at  DATETIME(6)  NOT NULL,
    ends_at    DATETIME(6),
    actor      VARCHAR(255) NOT NULL,
    reason     TEXT         NOT NULL,
    per_second DOUBLE,
    in_flight  INT,
    PRIMARY KEY (target)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS {{group}} (
    fingerprint VARCHAR(16)  NOT NULL,
    note        TEXT         NOT NULL,
    muted_until DATETIME(6),
    actor       VARCHAR(255) NOT NULL,
    updated_at  DATETIME(6)  NOT NULL,
    PRIMARY KEY (fingerprint)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- What relays did, in slots of five minutes, for seven days: part is the number of the slot, a colon
-- and the topic. The row with an empty topic has the topics that have no row of their own, and what
-- waited in all (NULL: nobody has counted). Relays add to it once a minute. Marks do not use it.
CREATE TABLE IF NOT EXISTS {{history}} (
    part         VARCHAR(264) NOT NULL,
    slot         DATETIME(6)  NOT NULL,
    topic        VARCHAR(249) NOT NULL,
    published    BIGINT       NOT NULL,
    refused      BIGINT       NOT NULL,
    died         BIGINT       NOT NULL,
    waiting      BIGINT,
    dead         BIGINT,
    blocked_keys BIGINT,
    oldest       BIGINT,
    more         SMALLINT,
    PRIMARY KEY (part)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
