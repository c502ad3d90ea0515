SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND column_name = 'error_group'),
    'ALTER TABLE {{event}} DROP COLUMN error_group', 'DO 0');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = {{schema}}
    AND table_name = {{text:pause}} AND column_name = 'in_flight'),
    'ALTER TABLE {{pause}} DROP COLUMN in_flight, DROP COLUMN per_second', 'DO 0');
PREPARE outbox_groups FROM @outbox_sql;
EXECUTE outbox_groups;
DEALLOCATE PREPARE outbox_groups;
DROP TABLE IF EXISTS {{group}};
