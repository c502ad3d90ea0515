-- MySQL has no ADD COLUMN IF NOT EXISTS. So the change asks information_schema first, and can be
-- repeated wherever it was interrupted.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND column_name = 'note'), 'DO 0', 'ALTER TABLE {{event}}
    ADD COLUMN note VARCHAR(64)');
PREPARE outbox_note FROM @outbox_sql;
EXECUTE outbox_note;
DEALLOCATE PREPARE outbox_note;
CREATE TABLE IF NOT EXISTS {{name:note}} (
    id   BINARY(16) NOT NULL,
    note TEXT       NOT NULL,
    PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
