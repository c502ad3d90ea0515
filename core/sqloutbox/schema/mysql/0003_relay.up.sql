-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do
-- not use it. Processes of the version before need not stop: they do not know the table.
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
-- it is resumed), by whom and why. Relays read it every two seconds. Claims and producers do not
-- use it.
CREATE TABLE IF NOT EXISTS {{pause}} (
    target    VARCHAR(255) NOT NULL,
    paused_at DATETIME(6)  NOT NULL,
    ends_at   DATETIME(6),
    actor     VARCHAR(255) NOT NULL,
    reason    TEXT         NOT NULL,
    PRIMARY KEY (target)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
