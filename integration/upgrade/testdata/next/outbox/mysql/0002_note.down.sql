DROP TABLE IF EXISTS {{name:note}};
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND column_name = 'note'),
    'ALTER TABLE {{event}} DROP COLUMN note', 'DO 0');
PREPARE outbox_note FROM @outbox_sql;
EXECUTE outbox_note;
DEALLOCATE PREPARE outbox_note;
