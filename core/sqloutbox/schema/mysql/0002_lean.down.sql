-- A dead row that left its key becomes one without a key.
UPDATE {{event}} SET key_seq = NULL WHERE lane IS NULL AND key_seq IS NOT NULL;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND column_name = 'ended'), 'DO 0', 'ALTER TABLE {{event}}
    DROP KEY {{name:event_work}},
    DROP KEY {{name:event_dead}},
    ADD COLUMN ended TINYINT GENERATED ALWAYS AS (CASE WHEN status IN (1, 4) THEN 1 WHEN status = 3 THEN 3 END) STORED,
    ADD KEY {{name:event_ready}} (ready_topic, available_at, id),
    ADD KEY {{name:event_open}} (open_lane, dead, key_seq),
    ADD KEY {{name:event_ended}} (ended, done_at, id)');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND constraint_name = {{text:event_status}}), 'DO 0',
    'ALTER TABLE {{event}} ADD CONSTRAINT {{name:event_status}} CHECK (status BETWEEN 0 AND 4)');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND constraint_name = {{text:event_lane}}), 'DO 0',
    'ALTER TABLE {{event}} ADD CONSTRAINT {{name:event_lane}} CHECK ((lane IS NULL) = (key_seq IS NULL))');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
DEALLOCATE PREPARE outbox_lean;
