-- The programs whose workers execute the effects of a channel. Two programs under one name share its
-- effects, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    channel VARBINARY(128) NOT NULL,
    program VARBINARY(255) NOT NULL,
    seen_at DATETIME(6)    NOT NULL,
    PRIMARY KEY (channel, program)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
