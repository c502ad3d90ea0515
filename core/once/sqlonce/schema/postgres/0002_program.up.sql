-- The programs that use the keys of a scope. Two programs under one name get the results of each
-- other, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    scope   text        COLLATE "C" NOT NULL,
    program text        COLLATE "C" NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (scope, program)
);
