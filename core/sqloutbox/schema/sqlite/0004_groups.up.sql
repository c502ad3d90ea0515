-- The group of a failure in the table of events, what people said about groups, and limits of
-- destinations. Processes of the version before need not stop: they do not know the columns. No row
-- is rewritten.
-- SQLite has no ADD COLUMN IF NOT EXISTS: a second time these statements say that there is such a
-- column. error_group is the fingerprint of the last failure. It is NULL in rows that an older
-- process marked, and means nothing in rows without an error: what marks a row done leaves it
-- alone.
ALTER TABLE {{event}} ADD COLUMN error_group TEXT;
-- NULL: no limit.
ALTER TABLE {{pause}} ADD COLUMN per_second REAL;
ALTER TABLE {{pause}} ADD COLUMN in_flight INTEGER;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS {{group}} (
    fingerprint TEXT    NOT NULL PRIMARY KEY,
    note        TEXT    NOT NULL,
    muted_until INTEGER,
    actor       TEXT    NOT NULL,
    updated_at  INTEGER NOT NULL
);
