-- The group of a failure in the table of events, what people said about groups, and limits of
-- destinations. Processes of the version before need not stop: they do not know the columns. The
-- new columns are the last ones, so that the servers change only the catalog (ALGORITHM = INSTANT)
-- where they can.
-- The statements belong together, as those of migration 2 do: run them on one connection.
-- error_group is the fingerprint of the last failure. It is NULL in rows that an older process
-- marked, and means nothing in rows without an error: what marks a row done leaves it alone.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND column_name = 'error_group'), 'DO 0', 'ALTER TABLE {{event}}
    ADD COLUMN error_group VARCHAR(16)');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
-- NULL: no limit.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = {{schema}}
    AND table_name = {{text:pause}} AND column_name = 'in_flight'), 'DO 0', 'ALTER TABLE {{pause}}
    ADD COLUMN per_second DOUBLE,
    ADD COLUMN in_flight INT');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
DEALLOCATE PREPARE outbox_groups;

-- One row for each group of failures that has a note or was muted. Relays do not use it.
CREATE TABLE IF NOT EXISTS {{group}} (
    fingerprint VARCHAR(16)  NOT NULL,
    note        TEXT         NOT NULL,
    muted_until DATETIME(6),
    actor       VARCHAR(255) NOT NULL,
    updated_at  DATETIME(6)  NOT NULL,
    PRIMARY KEY (fingerprint)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
