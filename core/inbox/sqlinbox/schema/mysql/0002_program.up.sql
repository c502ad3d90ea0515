-- The programs that serve a handler, and the topic that each reads. Two programs under one name share
-- the events of the handler, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    handler_id BIGINT         NOT NULL,
    program    VARBINARY(255) NOT NULL,
    topic      VARCHAR(249),
    seen_at    DATETIME(6)    NOT NULL,
    PRIMARY KEY (handler_id, program)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
