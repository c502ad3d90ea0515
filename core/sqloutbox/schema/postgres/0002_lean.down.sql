-- The ALTER TABLE comes first: its lock excludes everybody, so that no later statement waits while
-- it holds another one.
ALTER TABLE {{event}} DROP CONSTRAINT IF EXISTS {{name:event_status}};
ALTER TABLE {{event}} DROP CONSTRAINT IF EXISTS {{name:event_lane}};
-- A dead row that left its key becomes one without a key.
UPDATE {{event}} SET key_seq = NULL WHERE lane IS NULL AND key_seq IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_open}} ON {{event}} (lane, key_seq) WHERE status IN (0, 2) AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_blocked}} ON {{event}} (lane, key_seq) WHERE status = 3 AND lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS {{name:event_done}} ON {{event}} (done_at) WHERE status IN (1, 4);
DROP INDEX IF EXISTS {{index:event_key}};
ALTER TABLE {{event}} ADD CONSTRAINT {{name:event_status}} CHECK (status BETWEEN 0 AND 4);
ALTER TABLE {{event}} ADD CONSTRAINT {{name:event_lane}} CHECK ((lane IS NULL) = (key_seq IS NULL));
