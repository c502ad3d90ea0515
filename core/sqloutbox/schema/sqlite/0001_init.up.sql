-- The outbox: one row is one event for one destination.
-- status: 0 NEW, 1 DONE, 2 RETRY, 3 DEAD, 4 DISCARDED. A row is claimed while lease_until lies
-- ahead. All times are microseconds since 1970 UTC.
CREATE TABLE IF NOT EXISTS {{event}} (
    id                BLOB    NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    event_id          TEXT    NOT NULL,
    event_type        TEXT    NOT NULL,
    schema_version    INTEGER NOT NULL DEFAULT 0,
    topic             TEXT    NOT NULL,
    aggregate_type    TEXT,
    aggregate_id      TEXT,
    aggregate_version INTEGER NOT NULL DEFAULT 0,
    tenant_id         TEXT,
    partition_key     TEXT,
    lane              BLOB,
    key_seq           INTEGER,
    payload           BLOB    NOT NULL,
    content_type      TEXT,
    headers           TEXT,
    status            INTEGER NOT NULL DEFAULT 0 CHECK (status BETWEEN 0 AND 4),
    attempts          INTEGER NOT NULL DEFAULT 0,
    claim_no          INTEGER NOT NULL DEFAULT 0,
    lost_claims       INTEGER NOT NULL DEFAULT 0,
    claimed_by        TEXT,
    lease_until       INTEGER,
    available_at      INTEGER NOT NULL,
    occurred_at       INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    done_at           INTEGER,
    last_error_code   TEXT,
    last_error        TEXT,
    replay_of         BLOB,
    receipt           TEXT,
    CHECK ((lane IS NULL) = (key_seq IS NULL))
);

-- Only open rows are in the indexes that claims use, so published rows never slow a claim.
CREATE INDEX IF NOT EXISTS {{name:event_ready}} ON {{event}} (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS {{name:event_open}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_blocked}} ON {{event}} (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_dead}} ON {{event}} (id) WHERE status = 3;
CREATE INDEX IF NOT EXISTS {{name:event_done}} ON {{event}} (done_at) WHERE status IN (1, 4);

-- One row for each key in use: it gives out dense numbers in commit order.
CREATE TABLE IF NOT EXISTS {{key}} (
    lane      BLOB    NOT NULL PRIMARY KEY CHECK (length(lane) = 16),
    last_seq  INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    last_id   BLOB,
    prev_id   BLOB,
    used_at   INTEGER NOT NULL
) WITHOUT ROWID;

-- Changes of rows by people.
CREATE TABLE IF NOT EXISTS {{audit}} (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at       INTEGER NOT NULL,
    action   TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    reason   TEXT    NOT NULL,
    row_id   BLOB    NOT NULL,
    event_id TEXT    NOT NULL,
    topic    TEXT    NOT NULL,
    new_id   BLOB
);
CREATE INDEX IF NOT EXISTS {{name:audit_row}} ON {{audit}} (row_id);
