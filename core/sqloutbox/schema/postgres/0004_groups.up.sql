-- The group of a failure in the table of events, what people said about groups, and limits of
-- destinations. Processes of the version before need not stop: they do not know the columns.
-- Nothing is rewritten: a column that may be NULL changes only the catalog. Its lock is asked for
-- with a limit, because everybody waits behind a lock that is waited for.
SELECT set_config('lock_timeout', '3s', true);
-- error_group is the fingerprint of the last failure. It is NULL in rows that an older process
-- marked, and means nothing in rows without an error: what marks a row done leaves it alone.
ALTER TABLE {{event}} ADD COLUMN IF NOT EXISTS error_group text COLLATE "C";
-- NULL: no limit.
ALTER TABLE {{pause}} ADD COLUMN IF NOT EXISTS per_second double precision;
ALTER TABLE {{pause}} ADD COLUMN IF NOT EXISTS in_flight integer;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS {{group}} (
    fingerprint text        COLLATE "C" NOT NULL PRIMARY KEY,
    note        text        NOT NULL,
    muted_until timestamptz,
    actor       text        NOT NULL,
    updated_at  timestamptz NOT NULL
);
