-- The programs that use the keys of a scope. Two programs under one name get the results of each
-- other, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    scope   VARBINARY(255) NOT NULL,
    program VARBINARY(255) NOT NULL,
    seen_at DATETIME(6)    NOT NULL,
    PRIMARY KEY (scope, program)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin ROW_FORMAT = DYNAMIC;
