-- The programs whose workers execute the effects of a channel. Two programs under one name share its
-- effects, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    channel TEXT    NOT NULL,
    program TEXT    NOT NULL,
    seen_at INTEGER NOT NULL,
    PRIMARY KEY (channel, program)
) WITHOUT ROWID;
