-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do not use it. Processes of the
-- version before need not stop: they do not know the table.
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
