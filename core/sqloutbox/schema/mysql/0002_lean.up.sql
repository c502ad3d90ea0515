-- Two indexes in place of three, and no CHECKs, because each of them cost every insert and every
-- mark. Stop all processes of the version before first: their claims would fail.
--
-- MySQL has no IF EXISTS for columns, keys and constraints. So each change asks information_schema
-- first, and can be repeated wherever it was interrupted. The statements belong together: run them
-- on one connection, as migration tools do. MySQL before 8.0.19 drops a CHECK only by that name,
-- and MariaDB only as a CONSTRAINT.
SET @outbox_check = IF(VERSION() LIKE '%MariaDB%', 'CONSTRAINT', 'CHECK');
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND constraint_name = {{text:event_status}}),
    CONCAT('ALTER TABLE {{event}} DROP ', @outbox_check, ' {{name:event_status}}'), 'DO 0');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.table_constraints WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND constraint_name = {{text:event_lane}}),
    CONCAT('ALTER TABLE {{event}} DROP ', @outbox_check, ' {{name:event_lane}}'), 'DO 0');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;

-- One statement, so that the table is built again once, and either all of it happens or nothing.
-- event_work has open rows of keys under open_lane and key_seq, in order, dead ones among them: the
-- first row of a key decides whether anything of the key can be claimed. Open rows without a key
-- are at its beginning, by topic and due time. Claims, next due, backlog and the collection of keys
-- use it. event_dead is for the list and the count of dead rows. The cleanup walks the primary key.
-- ready_topic and open_lane stay generated: plain columns that the statements maintain made
-- inserts, claims and marks no faster, and a producer in another language, or a repair by hand,
-- that forgets them would leave events that nobody ever claims.
SET @outbox_sql = IF(EXISTS (SELECT 1 FROM information_schema.columns WHERE table_schema = {{schema}}
    AND table_name = {{text:event}} AND column_name = 'ended'), 'ALTER TABLE {{event}}
    DROP KEY {{name:event_ready}},
    DROP KEY {{name:event_open}},
    DROP KEY {{name:event_ended}},
    DROP COLUMN ended,
    ADD KEY {{name:event_work}} (open_lane, key_seq, ready_topic, available_at),
    ADD KEY {{name:event_dead}} (dead, id)', 'DO 0');
PREPARE outbox_lean FROM @outbox_sql;
EXECUTE outbox_lean;
DEALLOCATE PREPARE outbox_lean;
