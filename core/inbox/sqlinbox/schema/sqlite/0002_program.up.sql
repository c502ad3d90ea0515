-- The programs that serve a handler, and the topic that each reads. Two programs under one name share
-- the events of the handler, most often by mistake. program is the path of a main package.
CREATE TABLE IF NOT EXISTS {{program}} (
    handler_id TEXT    NOT NULL,
    program    TEXT    NOT NULL,
    topic      TEXT,
    seen_at    INTEGER NOT NULL,
    PRIMARY KEY (handler_id, program)
) WITHOUT ROWID;
