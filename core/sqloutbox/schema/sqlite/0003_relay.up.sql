-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do
-- not use it. Processes of the version before need not stop: they do not know the table.
CREATE TABLE IF NOT EXISTS {{relay}} (
    node         TEXT    NOT NULL PRIMARY KEY,
    host         TEXT    NOT NULL,
    pid          INTEGER NOT NULL,
    program      TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    all_topics   INTEGER NOT NULL,
    topics       TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    seen_at      INTEGER NOT NULL,
    claimed_at   INTEGER,
    published_at INTEGER
);

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS {{plan}} (
    id           TEXT    NOT NULL PRIMARY KEY,
    state        TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    body         TEXT    NOT NULL,
    ids          BLOB    NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    worker_until INTEGER
);

-- One row for each pause: what is paused ('all' or 'topic:' and the topic), until when (NULL: until
-- it is resumed), by whom and why. Relays read it every two seconds. Claims and producers do not
-- use it.
CREATE TABLE IF NOT EXISTS {{pause}} (
    target    TEXT    NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    ends_at   INTEGER,
    actor     TEXT    NOT NULL,
    reason    TEXT    NOT NULL
);
