SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE()
    AND table_name = 'outbox_event' AND index_name = 'outbox_event_note'), 'DO 0', 'ALTER TABLE {{event}}
    ADD KEY {{name:event_note}} (note)');
PREPARE outbox_index FROM @outbox_sql;
EXECUTE outbox_index;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE()
    AND table_name = 'outbox_audit' AND index_name = 'outbox_audit_row'), 'ALTER TABLE {{audit}}
    DROP KEY {{name:audit_row}}', 'DO 0');
PREPARE outbox_index FROM @outbox_sql;
EXECUTE outbox_index;
DEALLOCATE PREPARE outbox_index;
