-- Fewer indexes, because each of them cost every insert and every mark. Stop all processes of the
-- version before first: their claims would have no index any more.
-- The table is copied, because SQLite changes a CHECK only so: a dead row that left its key has a
-- number without a lane.
CREATE TABLE IF NOT EXISTS {{name:event_lean}} (
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
    CHECK (lane IS NULL OR key_seq IS NOT NULL)
);
-- If the migration was interrupted before the last step, there is only the copy.
CREATE TABLE IF NOT EXISTS {{event}} AS SELECT * FROM {{name:event_lean}} WHERE 0;
INSERT INTO {{name:event_lean}} (
    id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id,
    partition_key, lane, key_seq, payload, content_type, headers, status, attempts, claim_no, lost_claims,
    claimed_by, lease_until, available_at, occurred_at, created_at, done_at, last_error_code, last_error, replay_of,
    receipt)
SELECT id, event_id, event_type, schema_version, topic, aggregate_type, aggregate_id, aggregate_version, tenant_id,
    partition_key, lane, key_seq, payload, content_type, headers, status, attempts, claim_no, lost_claims,
    claimed_by, lease_until, available_at, occurred_at, created_at, done_at, last_error_code, last_error, replay_of,
    receipt
FROM {{event}} WHERE id NOT IN (SELECT id FROM {{name:event_lean}});
DROP TABLE IF EXISTS {{event}};
ALTER TABLE {{name:event_lean}} RENAME TO {{event}};

-- event_ready: claims without a key, next due, backlog. event_key has the open and the dead rows of
-- each key, in order: the first row of a key decides whether anything of the key can be claimed.
-- Claims of keys, next due, backlog and the collection of keys use it. event_dead: the list and the
-- count of dead rows. The cleanup walks the primary key.
CREATE INDEX IF NOT EXISTS {{name:event_ready}} ON {{event}} (topic, available_at, id) WHERE status IN (0, 2) AND lane IS NULL;
CREATE INDEX IF NOT EXISTS {{name:event_key}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2, 3) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_dead}} ON {{event}} (id) WHERE status = 3;
