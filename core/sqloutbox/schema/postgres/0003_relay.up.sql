-- One row for each relay that runs: who it is, and when it was last seen. Claims and producers do
-- not use it. Processes of the version before need not stop: they do not know the table.
CREATE TABLE IF NOT EXISTS {{relay}} (
    node         text        COLLATE "C" NOT NULL PRIMARY KEY,
    host         text        NOT NULL,
    pid          bigint      NOT NULL,
    program      text        NOT NULL,
    version      text        NOT NULL,
    all_topics   smallint    NOT NULL,
    topics       text        NOT NULL,
    started_at   timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    claimed_at   timestamptz,
    published_at timestamptz
);

-- Plans of an operator: the rows that a redrive or a discard changes, frozen in ids, and how far it
-- is.
CREATE TABLE IF NOT EXISTS {{plan}} (
    id           text        COLLATE "C" NOT NULL PRIMARY KEY,
    state        text        NOT NULL,
    version      bigint      NOT NULL,
    body         text        NOT NULL,
    ids          bytea       NOT NULL,
    created_at   timestamptz NOT NULL,
    updated_at   timestamptz NOT NULL,
    worker_until timestamptz
);

-- One row for each pause: what is paused ('all' or 'topic:' and the topic), until when (NULL: until
-- it is resumed), by whom and why. Relays read it every two seconds. Claims and producers do not
-- use it.
CREATE TABLE IF NOT EXISTS {{pause}} (
    target    text        COLLATE "C" NOT NULL PRIMARY KEY,
    paused_at timestamptz NOT NULL,
    ends_at   timestamptz,
    actor     text        NOT NULL,
    reason    text        NOT NULL
);
